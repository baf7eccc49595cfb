import { describe, expect, test } from "vitest";
import { shellWord } from "../../serving/answers/reproduce.ts";
import { AnswerCache } from "../../serving/http/answer-cache.ts";
import { negotiateCoding } from "../../serving/http/encoding.ts";
import { clientKeyOf, Limiter, parseProxies } from "../../serving/http/limits.ts";
import { renderMarkdown } from "../../serving/pages/markdown.ts";
import { LayeredMap } from "../../serving/tables/layered-map.ts";
import { fc } from "../helpers/histories.ts";

describe("client key", () => {
  const proxies = ["10.0.0.0/8", "2001:db8:ffff::/48", "192.0.2.1"];
  test.each<[string | undefined, string | null, string[], string]>([
    ["203.0.113.9", null, [], "203.0.113.9"],
    ["203.0.113.9", "198.51.100.1", [], "203.0.113.9"],
    ["203.0.113.9", "198.51.100.1", proxies, "203.0.113.9"],
    ["10.1.2.3", "198.51.100.1", proxies, "198.51.100.1"],
    ["10.1.2.3", "6.6.6.6, 198.51.100.1", proxies, "198.51.100.1"],
    ["10.1.2.3", "6.6.6.6, 198.51.100.1, 10.9.9.9, 192.0.2.1", proxies, "198.51.100.1"],
    ["10.1.2.3", "nonsense", proxies, "10.1.2.3"],
    ["10.1.2.3", "6.6.6.6, nonsense, 10.9.9.9", proxies, "10.9.9.9"],
    ["10.1.2.3", null, proxies, "10.1.2.3"],
    ["::ffff:203.0.113.9", null, [], "203.0.113.9"],
    ["::ffff:10.1.2.3", "198.51.100.7", proxies, "198.51.100.7"],
    ["2001:db8:1:2aa::1", null, [], "20010db8000102/56"],
    ["2001:db8:1:2bb:ffff::9", null, [], "20010db8000102/56"],
    ["2001:db8:1:3aa::1", null, [], "20010db8000103/56"],
    ["2001:db8:ffff::5", "[2001:db8:1:2aa::1]:4711", proxies, "20010db8000102/56"],
    ["10.1.2.3", "198.51.100.1:5678", proxies, "198.51.100.1"],
    ["10.1.2.3", "198.51.100.1:5678, 10.9.9.9:80", proxies, "198.51.100.1"],
    ["10.1.2.3", "198.51.100:5678", proxies, "10.1.2.3"],
    ["fe80::1%eth0", null, [], "fe800000000000/56"],
    [undefined, "198.51.100.1", proxies, "local"],
  ])("%s behind %s, proxies %j: %s", (peer, forwarded, trusted, key) => {
    expect(clientKeyOf(peer, forwarded, parseProxies(trusted))).toBe(key);
  });

  test.each(["", "10.0.0.0/99", "proxy.example", "10.0.0"])("a proxy setting %j is refused by name", (text) => {
    expect(() => parseProxies([text])).toThrow(JSON.stringify(text));
  });
});

describe("limiter", () => {
  test("never gives more than the quota at once, nor more than quota a window in the long run", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 50 }),
        fc.array(fc.integer({ min: 0, max: 5000 }), { maxLength: 200 }),
        (quota, waits) => {
          let now = 0;
          const limiter = new Limiter({ name: "t", quota, windowS: 10 }, () => now);
          let given = 0;
          for (const wait of waits) {
            now += wait;
            const taken = limiter.take("a");
            if (taken.ok) given++;
            expect(taken.remaining).toBeGreaterThanOrEqual(0);
            expect(given).toBeLessThanOrEqual(quota + (now / 10_000) * quota + 0.001);
          }
        },
      ),
    );
  });

  test("a refused client is served after Retry-After, and not a second before it", () => {
    let now = 0;
    const limiter = new Limiter({ name: "t", quota: 3, windowS: 60 }, () => now);
    for (let i = 0; i < 3; i++) limiter.take("a");
    const { ok, resetS } = limiter.take("a");
    expect([ok, resetS]).toEqual([false, 20]);
    now = 19_000;
    expect(limiter.take("a").ok).toBe(false);
    now = 20_000;
    expect(limiter.take("a").ok).toBe(true);
  });

  test("the table is bounded: who was seen longest ago goes", () => {
    const limiter = new Limiter({ name: "t", quota: 1, windowS: 60 }, () => 0, 2);
    const take = (client: string) => limiter.take(client).ok;
    expect([take("a"), take("b"), take("a"), take("c"), take("b"), take("c")]).toEqual([
      true,
      true,
      false,
      true,
      true,
      false,
    ]);
  });
});

test("the answer cache keeps within its number and its size, and forgets in time", () => {
  let now = 0;
  const made = (text: string) => ({ bytes: Buffer.from(text), etag: '"x"', madeAt: now });
  const cache = new AnswerCache({ ttlMs: 10, maxEntries: 3, maxBytes: 100 }, () => now);
  for (const key of ["a", "b", "c", "d"]) cache.set(key, made("1"));
  expect([cache.get("a"), cache.get("b")?.bytes.toString(), cache.size]).toEqual([undefined, "1", 3]);
  cache.set("e", made("x".repeat(98)));
  expect([cache.get("d"), cache.get("e")?.bytes.length, cache.size]).toEqual([undefined, 98, 1]);
  cache.set("f", made("x".repeat(500)));
  expect(cache.size).toBe(0);
  cache.set("g", made("1"));
  now = 10;
  expect([cache.get("g"), cache.size]).toEqual([undefined, 0]);
  cache.set("h", made("1"));
  now = 15;
  cache.set("i", made("1"));
  now = 20;
  cache.set("j", made("1"));
  // Nobody asked for it again: it is gone all the same.
  expect([cache.size, cache.get("i")?.etag, cache.get("h")]).toEqual([2, '"x"', undefined]);
});

test("a layered map answers as a plain one, before and after it merges", () => {
  const plain = new Map<string, number>();
  let layered = LayeredMap.empty<number>();
  const versions: [LayeredMap<number>, number][] = [];
  for (let step = 0; step < 40; step++) {
    const changes = new Map(
      Array.from({ length: 97 }, (_, i) => [`k${(step * 61 + i * 7) % 3000}`, step * 1000 + i] as const),
    );
    for (const [key, value] of changes) plain.set(key, value);
    layered = layered.with(changes);
    versions.push([layered, plain.size]);
    expect(layered.size).toBe(plain.size);
  }
  for (const [key, value] of plain) expect(layered.get(key)).toBe(value);
  expect([...layered.values()]).toEqual([...plain.values()]);
  for (const [version, size] of versions) expect([...version.values()]).toHaveLength(size);
});

test.each([
  [null, "identity"],
  ["", "identity"],
  ["gzip", "gzip"],
  ["gzip, deflate, br, zstd", "zstd"],
  ["*", "zstd"],
  ["zstd;q=0, *;q=0.1", "gzip"],
  ["identity, gzip;q=0", "identity"],
  ["GZIP;Q=0.2", "gzip"],
  ["gzip;q=nonsense", "identity"],
  ["gzip;q=1.5", "identity"],
  ["zstd;q=0.4, gzip;q=0.8", "gzip"],
  ["zstd;q=0.8, gzip;q=0.800", "zstd"],
  ["identity;q=1, gzip;q=0.5, zstd;q=0.5", "identity"],
  ["identity;q=0.3, *;q=0.5", "zstd"],
  ["identity, gzip", "gzip"],
  ["x-gzip", "gzip"],
  ["br, deflate", "identity"],
  ["*;q=0", "identity"],
  [" gzip ; q=0.5 ", "gzip"],
])("Accept-Encoding %j: %s", (header, coding) => {
  expect(negotiateCoding(header)).toBe(coding);
});

test("a shell word says exactly its text, whatever is in it", () => {
  expect(shellWord("https://h.example/it's;rm -rf $HOME`x`")).toBe(`'https://h.example/it'\\''s;rm -rf $HOME\`x\`'`);
});

describe("markdown", () => {
  test.each([
    ["# A `b` & c", '<h1 id="a-b-c">A <code>b</code> &amp; c</h1>'],
    ["one\ntwo **bold** *it*", "<p>one\ntwo <strong>bold</strong> <em>it</em></p>"],
    ["- a\n- b\n  more", "<ul>\n<li>a</li>\n<li>b\nmore</li>\n</ul>"],
    ["1. a\n2. b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>"],
    ["```\n<b>*x*</b>\n```", '<pre tabindex="0"><code>&lt;b&gt;*x*&lt;/b&gt;</code></pre>'],
    ["> said", "<blockquote>\n<p>said</p>\n</blockquote>"],
    ["`**a** <b>` **c**", "<p><code>**a** &lt;b&gt;</code> <strong>c</strong></p>"],
    [
      "[x](https://a.example/?q=1&r=2) [y](/docs/api) [z](#a)",
      '<p><a href="https://a.example/?q=1&amp;r=2">x</a> <a href="/docs/api">y</a> <a href="#a">z</a></p>',
    ],
    ["[e](evidence.md) [h](api.md#head)", '<p><a href="/docs/evidence">e</a> <a href="/docs/api#head">h</a></p>'],
    ["[x](../evidence.md)", "<p>[x](../evidence.md)</p>"],
    ["2 * 3 * 4", "<p>2 * 3 * 4</p>"],
  ])("%j", (text, html) => {
    expect(renderMarkdown(text)).toBe(html);
  });

  test("tables have headings", () => {
    const html = renderMarkdown("## Parts\nright behind text\n| a | b |\n|---|--:|\n| `1` | 2 |\n\nafter").replaceAll(
      "\n",
      "",
    );
    expect(html).toContain(
      '<p>right behind text</p><div class="scroll" tabindex="0" role="region" aria-label="Parts, as a table">',
    );
    expect(html).toContain('<thead><tr><th scope="col">a</th><th scope="col" class="n">b</th></tr></thead>');
    expect(html).toContain('<tbody><tr><td id="1"><code>1</code></td><td class="n">2</td></tr></tbody>');
    expect(html).toMatch(/<p>after<\/p>$/);
  });

  test("no text becomes a tag or a script of its own", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.constantFrom(
            "<",
            ">",
            '"',
            "'",
            "`",
            "*",
            "**",
            "[x](",
            "javascript:alert(1)",
            ")",
            "//evil.example",
            "\n",
            "# ",
            "- ",
            "|",
            "|---|---|",
            "\u0000",
            "0",
            " onclick=",
            "```",
          ),
          { maxLength: 40 },
        ),
        (parts) => {
          const html = renderMarkdown(parts.join(""));
          const tags = [...html.matchAll(/<\/?([a-z0-9]+)([^>]*)>/g)];
          const known =
            /^(?:h[1-6]|p|ul|ol|li|pre|code|strong|em|a|table|thead|tbody|tr|th|td|blockquote|div|caption|hr|br)$/;
          for (const [, name, attributes] of tags) {
            expect(name).toMatch(known);
            expect(attributes).toMatch(
              /^(?: (?:id|tabindex|role|class|scope)="[a-z0-9 -]*"| aria-label="[^"<>]*"| href="(?:|(?:https?:\/\/|\/(?!\/)|#)[^"<>]*)")*$/,
            );
          }
          expect(html.replace(/<\/?[a-z0-9]+[^>]*>/g, "")).not.toMatch(/[<>]/);
        },
      ),
      { numRuns: 500 },
    );
  });
});
