import { describe, expect, test } from "vitest";
import { BadUrl, normaliseUrl, pathKey, platformOf, registrableDomain } from "../../../pipelines/record/url.ts";
import { fc } from "../../helpers/histories.ts";

describe("normalised url", () => {
  test.each([
    ["HTTP://Example.COM:80/a#frag", "http://example.com/a"],
    ["https://user:secret@example.com:443/", "https://example.com/"],
    ["https://example.com:8443/", "https://example.com:8443/"],
    ["https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"],
    ["https://example.com/%7euser/%2fx", "https://example.com/~user/%2Fx"],
    ["https://example.com/claude-fable-5%3abatch", "https://example.com/claude-fable-5%3Abatch"],
    ["https://example.com/videos:lookup", "https://example.com/videos:lookup"],
    ["https://example.com/a/../b/./c", "https://example.com/b/c"],
    ["https://example.com?b=2&a=1&b=1", "https://example.com/?a=1&b=2&b=1"],
    ["https://example.com/?", "https://example.com/"],
    ["https://example.com/?a&a=", "https://example.com/?a&a="],
    ["http://0x7f.1/", "http://127.0.0.1/"],
    ["https://api.example.com./x", "https://api.example.com/x"],
    ["https://api.example.com.:8443/x", "https://api.example.com:8443/x"],
    ["https://api.example.com../x", "https://api.example.com../x"],
    ["https://./x", "https://./x"],
  ])("%s -> %s", (text, normal) => {
    expect(normaliseUrl(text)).toBe(normal);
  });

  test.each([
    "ftp://example.com/",
    "javascript:alert(1)",
    "monopoly://x",
    "/relative",
    "",
    "https://",
    `https://e.example/${"a".repeat(2048)}`,
  ])("%s is refused", (text) => {
    expect(() => normaliseUrl(text)).toThrow(BadUrl);
  });

  test("is idempotent, and http and https stay apart", () => {
    fc.assert(
      fc.property(fc.webUrl({ withQueryParameters: true, withFragments: true }), (text) => {
        const once = normaliseUrl(text);
        expect(normaliseUrl(once)).toBe(once);
        expect(once.split(":")[0]).toBe(text.split(":")[0]);
        expect(once).not.toContain("#");
      }),
    );
  });

  test("the order of distinct query names does not matter; that of a repeated name does", () => {
    const name = fc.stringMatching(/^[a-z]{1,4}$/);
    fc.assert(
      fc.property(fc.uniqueArray(fc.tuple(name, name), { selector: (pair) => pair[0], maxLength: 6 }), (pairs) => {
        const url = (list: [string, string][]) => `https://e.example/?${list.map((p) => p.join("=")).join("&")}`;
        expect(normaliseUrl(url([...pairs].reverse()))).toBe(normaliseUrl(url(pairs)));
      }),
    );
    expect(normaliseUrl("https://e.example/?a=1&a=2")).not.toBe(normaliseUrl("https://e.example/?a=2&a=1"));
  });
});

test("path key drops the query and one trailing slash", () => {
  expect(pathKey("https://e.example/a/?x=1")).toBe("https://e.example/a");
  expect(pathKey("https://e.example/")).toBe("https://e.example");
});

test.each([
  ["https://api.shop.example.co.uk/x", "example.co.uk"],
  ["https://one.vercel.app/", "one.vercel.app"],
  ["https://two.vercel.app/", "two.vercel.app"],
  ["http://127.0.0.1:8080/", "127.0.0.1:8080"],
  ["http://localhost:1/", "localhost:1"],
])("registrable domain of %s is %s", (url, domain) => {
  expect(registrableDomain(url)).toBe(domain);
});

test.each([
  ["https://name.vercel.app/a", "vercel.app"],
  ["https://other.github.io/", "github.io"],
  ["https://a.b.seller.co.uk/", "seller.co.uk"],
  ["http://127.0.0.1:4021/x", "127.0.0.1:4021"],
  ["http://localhost:4021/x", "localhost:4021"],
])("%s counts under %s where a cap protects something", (url, platform) => {
  expect(platformOf(url)).toBe(platform);
});
