import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FLAGS } from "../../pipelines/record/vocabulary.ts";
import { paymentsPart } from "../../serving/pages/endpoint-facts.ts";
import { flagWords } from "../../serving/pages/words.ts";
import type { View } from "../../serving/tables/view.ts";
import { capOf, cardOf, componentsOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, ManualClock, servingOver, type TestServing } from "../helpers/serving.ts";

const EVIL = "<script>alert(1)</script>";
const SUM = { url: "https://seller.example/api/sum?a=1&b=2", class: "arithmetic", description: `Adds ${EVIL}` };
const LATE = { url: "https://late.example/x" };
const FAIL = { url: "https://fail.example/'x", defects: [{ defect: "no_402", says: `free ${EVIL}` }] };

let record: PublicRecord;
/** A module for the page, which no test here runs. */
const PROVE = { text: "export {};\n", sha256: "0".repeat(64), integrity: `sha256-${"A".repeat(43)}=` };
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const failing = cardOf(FAIL, {
    band: "F",
    composite: 0.2,
    flags: ["early_fail"],
    components: { ...componentsOf(12.7), latency_p95: { point: null, lower: null, n_eff: 0, method: "lines4/1;none" } },
  });
  await record.publish(
    ...[SUM, LATE, FAIL].map((spec) => [listingDraft(spec)]),
    record.grades([failing], `F ${EVIL}.`),
    record.grades([cardOf(SUM)], "B on OUTCOME_VERIFIED, composite 0.871."),
    [
      {
        kind: "correction",
        capability_id: capOf(SUM),
        body: { id: "rec_c", fault: "ours", says: `wrong ${EVIL}`, issued_at: "2026-11-01T00:00:00.000Z" },
      },
    ],
  );
  const payments = {
    offers: { present: 2, unread: 1, valid: 1, authorised: 0 },
    receipts: { present: 7, unread: 0, valid: 6, authorised: 5 },
    settlers: [
      { network: "eip155:8453", sender: `0x${EVIL}`, calls: 34, median_s: 0, max_s: 12 },
      { network: "eip155:137", sender: "0xother", calls: 1, median_s: null, max_s: null },
    ],
    unsettled: 3,
    buyers: {
      ...{ network: "eip155:8453", asset: "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", pay_to: `0x${EVIL}` },
      ...{ since: 1_763_078_400, until: 1_763_683_200, from_block: 38_000_000, to_block: 38_302_399, whole: true },
      ...{ payers: 42, transfers: 1203, total: "312.400000", largest_share: 0.4199, effective_payers: 4.2 },
      ours: { transfers: 12, total: "0.120000" },
    },
  };
  const looked = {
    ...{ retried: "asked_again", retried_at: Date.parse("2026-11-20T08:00:00.000Z") },
    payments: JSON.stringify(payments),
  };
  await record.live([rowOf(SUM, { price: "0.020100", paid_calls: 77, ...looked }), rowOf(FAIL, { pay_to: null })]);
  serving = await servingOver(record, { proveFile: PROVE });
});
afterAll(() => record.close());

const textOf = async (path: string): Promise<string> => (await serving.get(path)).text();
const cell = (html: string): string =>
  html
    .replace(/<style>[\s\S]*?<\/style>/, "")
    .replace(/<[^>]+>/g, " ")
    .replace(/\s+/g, " ");

describe("every page", () => {
  const pages = [
    "/",
    `/endpoint/${capOf(SUM)}`,
    `/endpoint/${capOf(LATE)}`,
    `/endpoint/${capOf(FAIL)}`,
    "/docs/check-before-you-pay",
    "/docs/verification-method",
  ];

  test.each(pages.map((_, i) => i))(
    "page %i loads nothing, runs at most the button of its proof, and allows exactly its own style",
    async (i) => {
      const response = await serving.get(pages[i]!);
      const whole = await response.text();
      expect([response.status, response.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
      const [, script] = /<script type="module">([^<]*)<\/script>/.exec(whole) ?? [];
      const html = whole.replace(`<script type="module">${script}</script>`, "");
      expect(script !== undefined).toBe(pages[i]!.startsWith("/endpoint/") && pages[i] !== `/endpoint/${capOf(LATE)}`);
      expect(html).not.toMatch(/<script|<img|<iframe|<link| style=| on[a-z]+=|javascript:/i);
      const style = /<style>([\s\S]*?)<\/style>/.exec(html)![1]!;
      const hash = createHash("sha256").update(style).digest("base64");
      // The market has a form that asks this host; no other page may send anything anywhere.
      const form = pages[i] === "/" ? "'self'" : "'none'";
      const started = createHash("sha256")
        .update(script ?? "")
        .digest("base64");
      const own = `'sha256-${started}' '${PROVE.integrity}' https://touchstone.test/prove.mjs`;
      const scripts = script === undefined ? "" : ` script-src ${own}; connect-src 'self';`;
      expect(response.headers.get("content-security-policy")).toBe(
        `default-src 'none';${scripts} style-src 'sha256-${hash}'; base-uri 'none'; form-action ${form}; frame-ancestors 'none'`,
      );
      expect(html.includes("<form")).toBe(pages[i] === "/");
      expect(style).toContain("prefers-color-scheme:dark");
    },
  );

  test.each(pages.map((_, i) => i))(
    "page %i has a language, a title, one main heading, and tables with headings",
    async (i) => {
      const html = await textOf(pages[i]!);
      expect(html).toMatch(/^<!doctype html>\n<html lang="en">/);
      expect(html.match(/<title>[^<]+<\/title>/g)!.length).toBeGreaterThanOrEqual(1);
      expect(html.match(/<h1[ >]/g)).toHaveLength(1);
      for (const table of html.match(/<table[ >][\s\S]*?<\/table>/g) ?? []) {
        expect(table).toMatch(/<th scope="col"/);
        expect(table).not.toMatch(/<th(?:>| (?!scope="(?:col|row)"))/);
      }
    },
  );
});

describe("the market", () => {
  const rowsOf = (html: string): string[] => html.match(/<tr role="row"><td[\s\S]*?<\/tr>/g) ?? [];

  test("a row an endpoint: letter, why, components, tier, composite, progress, price, paid calls, last seen", async () => {
    const html = await textOf("/");
    const rows = rowsOf(html).map(cell);
    expect(rows).toHaveLength(3);
    expect(rows[0]).toContain(
      "B seller.example/api/sum?a=1&amp;b=2 GET Adds &lt;script&gt;alert(1)&lt;/script&gt; B on OUTCOME_VERIFIED",
    );
    expect(rows[0]).toContain(
      "B on OUTCOME_VERIFIED, composite 0.871. Liveness: at least 0.911, at most 1.000, seen 0.980;",
    );
    expect(rows[0]).toContain("outcome, 0.871 30 of 30 0.0201 USDC 77 2026-11-21 11:55 UTC");
    expect(rows[1]).toMatch(/^ F .*F &lt;script&gt;alert\(1\)&lt;\/script&gt;\. .* 12 of 30/);
    expect(rows[2]).toMatch(
      /^ unrated .*UNRATED: 0 of 30 paid calls so far; unknown, not bad\. nothing measured 0 of 30 – – – $/,
    );
    const figures = /<details id="figures">[\s\S]*?<\/details>/.exec(html)![0];
    expect(cell(figures)).toContain("Latency (p95) Price stability seller.example/api/sum");
    expect(figures.match(/<tr>/g)).toHaveLength(3);
    expect(html.match(/aria-details="figures"/g)).toHaveLength(2);
  });

  test.each([
    ["/?letter=F", ["F"]],
    ["/?letter=UNRATED", ["unrated"]],
    ["/?letter=A", []],
    ["/?q=SELLER.example", ["B"]],
    ["/?q=adds", ["B"]],
    ["/?q=%3Cscript%3E&letter=B", ["B"]],
    ["/?q=ller.exam", ["B"]],
    ["/?q=adding+a+script", ["B"]],
    ["/?q=nobody", []],
    ["/?sort=worst", ["F", "B", "unrated"]],
    ["/?sort=host", ["F", "unrated", "B"]],
    ["/?sort=progress", ["F", "unrated", "B"]],
    ["/?q=&letter=&sort=", ["B", "F", "unrated"]],
  ])("%s shows %j", async (path, letters) => {
    const html = await textOf(path);
    expect(rowsOf(html).map((row) => /<span class="grade[^>]*>([^<]+)/.exec(row)![1])).toEqual(letters);
    expect(html).not.toContain("<script");
    if (letters.length === 0) expect(html).toContain("Nothing is listed that matches.");
  });

  test("says when its time was simulated, and only then", async () => {
    const simulated = await servingOver(record, { clock: new ManualClock(undefined, true) });
    for (const path of ["/", `/endpoint/${capOf(SUM)}`]) {
      expect(await (await simulated.get(path)).text()).toContain("Time in this record was simulated");
      expect(await textOf(path)).not.toContain("simulated");
    }
  });

  test.each([
    ["/?page=1", 200],
    ["/?page=2", 200],
    ["/?page=0", 400],
    ["/?page=", 400],
    ["/?page=x", 400],
    ["/?letter=E", 400],
    ["/?letter=A&letter=B", 400],
    ["/?sort=price", 400],
    [`/?q=${"x".repeat(100)}`, 200],
    [`/?q=${"x".repeat(101)}`, 400],
  ])("%s is a %i", async (path, status) => {
    expect((await serving.get(path)).status).toBe(status);
  });

  test("more than a page of endpoints is told apart by pages", async () => {
    const many = await PublicRecord.open();
    await many.publish(...Array.from({ length: 101 }, (_, i) => [listingDraft({ url: `https://m.example/${i}` })]));
    const big = await servingOver(many);
    const count = async (path: string) =>
      (await (await big.get(path)).text()).match(/<th scope="row" role/g)?.length ?? 0;
    expect([await count("/"), await count("/?page=2"), await count("/?page=3")]).toEqual([100, 1, 0]);
    expect(await (await big.get("/?q=m.example&sort=host")).text()).toContain(
      '<a rel="next" href="/?q=m.example&amp;sort=host&amp;page=2">',
    );
    await many.close();
  });
});

describe("an endpoint's page", () => {
  test("shows what the interface lists", async () => {
    const text = cell(await textOf(`/endpoint/${capOf(SUM)}`));
    for (const part of [
      ...["30 of 30 paid calls", "Price per call 0.0201 USDC", "Paid calls 77", "Free handshakes 100, 99 answered"],
      ...[
        "First seen 2026-09-01 00:00 UTC",
        "Last seen 2026-11-21 11:55 UTC",
        "Retry after a lost answer unsafe: the same payment, shown again, got a 402: a client that pays it pays twice",
        "Settled by 0x&lt;script&gt;alert(1)&lt;/script&gt; on eip155:8453: 34 calls, half of them with the answer, the slowest 12 s after it",
        "0xother on eip155:137: 1 call Others who pay it 0x&lt;script&gt;alert(1)&lt;/script&gt; on eip155:8453, 2025-11-14 to 2025-11-20: 42 payers, 1203 transfers, 312.40 USDC; the largest sent 41 % of it, as concentrated as 4.2 equal payers. (besides, 12 payments of our own, 0.12; blocks 38000000 to 38302399) Answered, never settled 3 calls",
        "Signed offers 1 valid, 0 authorised of 2, 1 not read (in its newest 402) Signed receipts 6 valid, 5 authorised of 7 (of all paid calls)",
        "Protocol x402",
        "Networks offered eip155:84532 Networks listed eip155:84532",
        "the headline card is leaf 4 of the log",
      ],
      ...[
        "Description Adds",
        "Url https://seller.example/api/sum?a=1&amp;b=2",
        "Method GET",
        "Class arithmetic",
        "Checkable level truth",
      ],
      ...[
        `Endpoint id ${capOf(SUM)}`,
        "curl -gsSi -m 20 -H &#39;Accept: application/json&#39; &#39;https://seller.example/api/sum?a=1&amp;b=2&#39;",
      ],
      ...["What we got wrong 2026-11-01 00:00 UTC : wrong &lt;script&gt;"],
    ]) {
      expect(text).toContain(part);
    }
  });

  test("says that nobody else pays it, and that not all days could be read", async () => {
    const buyers = {
      ...{ network: "eip155:137", asset: "0xa", pay_to: "0xp", since: 0, until: 604_800, from_block: 9, to_block: 10 },
      ...{ whole: false, payers: 0, transfers: 0, total: "0.000000", largest_share: null, effective_payers: null },
      ours: { transfers: 0, total: "0.000000" },
    };
    const payments = JSON.stringify({ offers: null, receipts: null, settlers: [], unsettled: 0, buyers });
    const view = { row: () => ({ payments }) } as unknown as View;
    expect(cell(String(await paymentsPart(view, "cap")))).toContain(
      "0xp on eip155:137, 1970-01-01 to 1970-01-07: nobody. (blocks 9 to 10: not all of these days could be read)",
    );
  });

  test("says nothing of payments where none were seen", async () => {
    expect(await textOf(`/endpoint/${capOf(FAIL)}`)).not.toContain('id="payments"');
  });

  test("the checkable level is a schema only where an answer was held against one", async () => {
    const own = await PublicRecord.open();
    const [schema, parse, free] = ["schema", "parse", "free"].map((name) => ({ url: `https://${name}.example/` }));
    await own.publish([schema!, parse!, free!].map((spec) => listingDraft(spec)));
    const none = { point: null, lower: null, upper: null, n_eff: 0, method: "lines4/1;none" };
    const tier = "DELIVERY_VERIFIED" as const;
    const bare = { ...componentsOf(12), schema_conformance: none };
    await own.publish(
      own.grades([cardOf(schema!, { tier })], "B."),
      own.grades([cardOf(parse!, { tier, components: bare, flags: ["no_schema_advertised"] })], "C."),
    );
    const there = await servingOver(own);
    const level = async (spec: { url: string }) =>
      /Checkable level<\/dt><dd>(\w+):/.exec(await (await there.get(`/endpoint/${capOf(spec)}`)).text())![1];
    expect([await level(schema!), await level(parse!), await level(free!)]).toEqual(["schema", "parse", "none"]);
    await own.close();
  });

  test("the picture has a name, a description and the same figures as text", async () => {
    const html = await textOf(`/endpoint/${capOf(FAIL)}`);
    const svg = /<svg role="img" aria-labelledby="picture[\s\S]*?<\/svg>/.exec(html)![0];
    expect(svg).toMatch(/^<svg role="img" aria-labelledby="picture-title picture-desc"/);
    expect(svg).toContain('<title id="picture-title">');
    expect(svg).toContain("Correctness: at least 0.902");
    expect(svg.match(/class="bound"/g)).toHaveLength(5);
    expect(cell(svg)).toContain("Latency (p95) not bounded yet");
    expect(cell(html)).toContain("Latency (p95) – – – 0.0 lines4/1;none");
    expect(html).toContain("free &lt;script&gt;");
  });

  test("every flag has its sentence, and one of a later version stands as its name", async () => {
    for (const flag of FLAGS) expect(flagWords(flag)).toMatch(/^[A-Z].{20,}\.$/);
    expect(new Set(FLAGS.map(flagWords)).size).toBe(FLAGS.length);
    expect(flagWords("toString")).toMatch(/no words for yet/);
    expect(cell(await textOf(`/endpoint/${capOf(FAIL)}`))).toContain(`early_fail ${flagWords("early_fail")}`);
  });

  test("without a card there is no picture", async () => {
    const html = await textOf(`/endpoint/${capOf(LATE)}`);
    expect(html).not.toContain('role="img"');
    expect(cell(html)).toContain("0 of 30 paid calls");
    for (const section of [
      "Over time",
      "Failed checks",
      "What went wrong, call by call",
      "Flags",
      "Components",
      "What is wrong with the listing",
    ]) {
      expect(html).not.toContain(`>${section}</h2>`);
    }
  });

  test("is named by host and path, and what the seller says stands below as its words", async () => {
    const html = await textOf(`/endpoint/${capOf(SUM)}`);
    expect(html).toContain("<h1>seller.example/api/sum</h1>");
    expect(html).toMatch(/<blockquote class="said"><p>Adds &lt;script&gt;/);
    expect(html).toMatch(/<title>seller\.example\/api\/sum: B<\/title>/);
    const row = (await textOf("/?letter=B")).match(/<th scope="row" role[\s\S]*?<\/th>/)![0];
    expect(row).toMatch(/<a href="[^"]+">seller\.example\/api\/sum\?a=1&amp;b=2<\/a>.*<q [^>]*>Adds &lt;script&gt;/);
  });

  test("of who is silent it is said when it last answered, not when we last probed", async () => {
    const dead = { url: "https://dead.example/x" };
    const dark = { url: "https://dark.example/x" };
    const own = await PublicRecord.open();
    const cards = [dead, dark].map((spec) => cardOf(spec, { band: "UNRATED", flags: ["dark"] }));
    await own.publish(
      ...[dead, dark].map((spec) => [listingDraft(spec)]),
      ...cards.map((card) => own.grades([card], "UNRATED: so.")),
    );
    await own.live([rowOf(dead, { probes: 90, answered: 0 }), rowOf(dark, { probes: 90, answered: 40 })]);
    const there = await servingOver(own);
    const page = async (path: string) => cell(await (await there.get(path)).text());
    expect(await page(`/endpoint/${capOf(dead)}`)).toContain("Last answered never Last probed 2026-11-21 11:55 UTC");
    expect(await page(`/endpoint/${capOf(dark)}`)).toContain("Last answered more than 72 hours ago Last probed");
    const market = await page("/");
    expect([market.includes("never answered"), market.includes("silent"), market.includes("11:55 UTC")]).toEqual([
      true,
      true,
      false,
    ]);
    await own.close();
  });

  test.each([
    [`/endpoint/cap_${"0".repeat(26)}`, 404],
    ["/endpoint/nonsense", 400],
    ["/docs/nonsense", 404],
    ["/no/such/address", 404],
    ["/v1/nonsense", 404],
  ])("%s: a page for people, a problem document for programs, %i for both", async (path, status) => {
    const page = await serving.get(path, { headers: { accept: "text/html,*/*" } });
    const problem = await serving.get(path);
    expect([
      page.status,
      page.headers.get("content-type"),
      problem.status,
      problem.headers.get("content-type"),
    ]).toEqual([...[status, "text/html; charset=utf-8", status, "application/problem+json"]]);
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(page.headers.get("cache-control")).toBe("no-store");
  });
});

describe("the box on the home page", () => {
  test("asks this host, and says what the record holds as a check does", async () => {
    expect(await textOf("/")).toContain('<form method="get" action="/check" class="box">');
    const html = await textOf(`/check?url=${encodeURIComponent(SUM.url)}`);
    expect(cell(html)).toContain("Grade B B on OUTCOME_VERIFIED, composite 0.871.");
    expect(html).toContain(`<a href="/endpoint/${capOf(SUM)}">seller.example/api/sum?a=1&amp;b=2</a>`);
    expect(html).toContain('value="https://seller.example/api/sum?a=1&amp;b=2"');
  });

  test("takes a url without its scheme, and puts an unknown one in line", async () => {
    expect(await textOf("/check?url=seller.example/api/sum%3Fa=1%26b=2")).toContain(`/endpoint/${capOf(SUM)}`);
    const unknown = cell(await textOf("/check?url=https://nobody.example/y"));
    expect(unknown).toContain("Grade unrated Not in the record; unknown, not bad.");
  });

  test.each(["javascript:alert(1)", "https://", "cap_nothing", "x".repeat(2_048)])(
    "says what is wrong with %j",
    async (url) => {
      const response = await serving.get(`/check?url=${encodeURIComponent(url)}`);
      const html = await response.text();
      expect([response.status, response.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
      expect(html).toContain('role="alert"');
      expect(html).not.toContain("<script");
    },
  );

  test("without a url it is the form alone", async () => {
    expect(cell(await textOf("/check"))).toContain("Check before you pay");
    expect((await serving.get("/check?url=a&url=b")).status).toBe(400);
  });
});

describe("verify-a-check.mjs", () => {
  const script = new URL("../../docs/verify-a-check.mjs", import.meta.url).pathname;
  const run = async (answer: unknown, keys: unknown): Promise<{ code: number; out: string }> => {
    const dir = await mkdtemp(join(tmpdir(), "verify-"));
    try {
      await writeFile(join(dir, "a.json"), JSON.stringify(answer));
      await writeFile(join(dir, "k.json"), JSON.stringify(keys));
      const { stdout } = await promisify(execFile)(process.execPath, [
        script,
        join(dir, "a.json"),
        join(dir, "k.json"),
      ]);
      return { code: 0, out: stdout };
    } catch (error) {
      const { code, stdout } = error as { code: number; stdout: string };
      return { code, out: stdout };
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  };

  test("uses none of our code, and is the script that the page shows and serves", async () => {
    const source = await readFile(script, "utf8");
    expect([...source.matchAll(/from "([^"]+)"/g)].map((match) => match[1])).toEqual(["node:crypto", "node:fs"]);
    expect(source.trimEnd().split("\n").length).toBeLessThanOrEqual(18);
    const page = await readFile(new URL("../../docs/check-before-you-pay.md", import.meta.url), "utf8");
    expect(page).toContain(`\`\`\`\n${source.trimEnd()}\n\`\`\``);
    const served = await serving.get("/docs/verify-a-check.mjs");
    expect([await served.text(), served.headers.get("content-type")]).toEqual([source, "text/plain; charset=utf-8"]);
  });

  test("believes a real answer, and nothing else", async () => {
    const answer = JSON.parse(await textOf(checkPath({ url: SUM.url }))) as {
      signing_key_id: string;
      answered_at: string;
    };
    const keys = JSON.parse(await textOf("/.well-known/svc-keys.json")) as { keys: { purpose: string; kid: string }[] };
    expect(await run(answer, keys)).toEqual({
      code: 0,
      out: `good: signed by ${answer.signing_key_id} at ${answer.answered_at}\n`,
    });
    const changed = (change: object) =>
      keys.keys.map((key) => (key.purpose === "answers" ? { ...key, ...change } : key));
    const others = keys.keys.filter((key) => key.purpose !== "answers");
    const bad = await Promise.all([
      run({ ...answer, band: "A" }, keys),
      run({ ...answer, extra: 1 }, keys),
      run(answer, { keys: others }),
      run(answer, { keys: changed({ purpose: "cards" }) }),
      run(answer, { keys: changed({ retired_at: answer.answered_at }) }),
      run(answer, { keys: changed({ valid_from: "2026-11-22T00:00:00.000Z" }) }),
    ]);
    for (const { code, out } of bad) expect([code, out]).toEqual([1, "BAD: do not believe this answer\n"]);
  });
});
