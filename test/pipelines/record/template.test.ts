import { describe, expect, test } from "vitest";
import {
  compileTemplate,
  fillTemplate,
  isTemplate,
  segmentsOf,
  variablesOf,
} from "../../../pipelines/record/template.ts";
import { normaliseUrl } from "../../../pipelines/record/url.ts";
import { fc } from "../../helpers/histories.ts";

const taken = (template: string, url: string): boolean =>
  compileTemplate(normaliseUrl(template))!.matches(segmentsOf(normaliseUrl(url)));

describe("templates", () => {
  test.each([
    ["https://e.example/users/:id", true],
    ["https://e.example/users/{id}", true],
    ["https://e.example/x?years={years}", true],
    ["https://e.example/x?path=a/{b}", true],
    ["https://e.example/x?path={a/b}", false],
    ["https://e.example/files/*", true],
    ["https://e.example/files/:rest*", true],
    ["https://e.example/videos:lookup", false],
    ["https://e.example/a%3Ab", false],
    ["https://e.example/:8080", false],
    ["https://e.example/}{", false],
    ["https://e.example/", false],
  ])("%s is a template: %s", (url, is) => {
    expect(isTemplate(normaliseUrl(url))).toBe(is);
  });

  test.each([
    ["https://e.example/users/:id", "https://e.example/users/7", true],
    ["https://e.example/users/:id", "https://e.example/users/7/", true],
    ["https://e.example/users/:id", "https://e.example/users/", false],
    ["https://e.example/users/:id", "https://e.example/users/7/x", false],
    ["https://e.example/v{n}.json", "https://e.example/v3.json", true],
    ["https://e.example/v{n}.json", "https://e.example/v3.xml", false],
    ["https://e.example/v{n}.json", "https://e.example/v.json", false],
    ["https://e.example/files/*", "https://e.example/files/a/b/c", true],
    ["https://e.example/files/*", "https://e.example/files/", false],
    ["https://e.example/*", "https://e.example/", false],
    ["https://e.example/x?years={years}", "https://e.example/x?years=2", true],
    ["https://e.example/?q={q}", "https://e.example/?q=2", true],
  ])("%s takes %s: %s", (template, url, takes) => {
    expect(taken(template, url)).toBe(takes);
  });

  test.each([
    ["https://e.example/a/b/:id", "https://e.example/a/b"],
    ["https://e.example/a/:x/b/:id", "https://e.example/a"],
    ["https://e.example/*", "https://e.example"],
    ["http://e:81/v{n}", "http://e:81"],
    ["https://e.example/a/b?x={x}", "https://e.example/a/b"],
  ])("the literal prefix of %s is %s", (template, prefix) => {
    expect(compileTemplate(normaliseUrl(template))?.prefix).toBe(prefix);
  });
});

describe("filled", () => {
  const values: Record<string, string> = {
    ...{ var: "value", hello: "Hello World!", empty: "", half: "50%", path: "/foo/bar", semi: ";", who: "fred" },
    ...{ dub: "me/too", base: "http://example.com/home/", up: "fRed", v: "6", dot: ".", dots: "..", é: "é€𝄞" },
  };
  const fill = (template: string) => fillTemplate(normaliseUrl(template), (name) => values[name] ?? `?${name}`);

  // Level 1 and simple expansions of RFC 6570, sections 1.2 and 3.2.2.
  test.each([
    ["{var}", "value"],
    ["{hello}", "Hello%20World%21"],
    ["{half}", "50%25"],
    ["O{empty}X", "OX"],
    ["{path}", "%2Ffoo%2Fbar"],
    ["{semi}", "%3B"],
    ["{who}", "fred"],
    ["{dub}", "me%2Ftoo"],
    ["{base}", "http%3A%2F%2Fexample.com%2Fhome%2F"],
    ["up{up}{v}", "upfRed6"],
  ])("%s of RFC 6570 is %s", (template, path) => {
    expect(fill(`https://e.example/a/${template}/z`)).toBe(`https://e.example/a/${path}/z`);
  });

  test.each([
    ["https://e.example/users/:who", "https://e.example/users/fred"],
    ["https://e.example/users/:who*", "https://e.example/users/fred"],
    ["https://e.example/users/:who.json", "https://e.example/users/fred.json"],
    ["https://e.example/{v}:who/x:who", "https://e.example/6:who/x:who"],
    ["https://e.example/{{who}}", "https://e.example/%7Bfred%7D"],
    ["https://e.example/{two words}/{é}", "https://e.example/%3Ftwo%20words/%C3%A9%E2%82%AC%F0%9D%84%9E"],
    ["https://e.example/files/*", "https://e.example/files/%3F%2A"],
    ["https://e.example/a*b/**", "https://e.example/a*b/%3F%2A"],
    ["https://e.example/x?a={hello}&b=1&c={who},{v}", "https://e.example/x?a=Hello+World%21&b=1&c=fred%2C6"],
    ["https://e.example/plain?a=1", "https://e.example/plain?a=1"],
    ["https://e.example/a{dot}/{v}{dots}", "https://e.example/a./6.."],
  ])("%s is %s", (template, url) => expect(fill(template)).toBe(url));

  test.each(["{dot}", "{dots}", "{dot}{dot}", "%2E{dot}", "{dot}%2e", ":dots", "{empty}{dots}"])(
    "a segment %s would be another path",
    (segment) => expect(fill(`https://e.example/a/${segment}/z`)).toBe(null),
  );

  test.each([
    ["https://e.example/users/:who/{v}", ["who", "v"]],
    ["https://e.example/{v}/{v}?a={who}&b={v}", ["v", "who"]],
    ["https://e.example/files/*", ["*"]],
    ["https://e.example/videos:lookup", []],
    ["https://e.example/a*b", []],
  ])("%s has the variables %j", (url, names) => expect(variablesOf(normaliseUrl(url))).toEqual(names));

  test("a lone surrogate is a replacement character, and no error", () => {
    expect(fillTemplate("https://e.example/%7Ba%7D", () => "\ud800")).toBe("https://e.example/%EF%BF%BD");
  });
});

/** The rule of templates, word by word and with no care for time. */
const reference = {
  placeholder: /^(?::[A-Za-z_]\w*\*?|\*|\*\*)$/,
  braces: /%7B[^/]*?%7D|\{[^/]*?\}/,
  isTemplate(url: string): boolean {
    const { pathname, search } = new URL(url);
    const placed = (segment: string) => this.placeholder.test(segment) || this.braces.test(segment);
    return pathname.split("/").some(placed) || this.braces.test(search);
  },
  segment(want: string, have: string): boolean {
    if (this.placeholder.test(want)) return have.length > 0;
    const braces = this.braces.exec(want);
    if (!braces) return want === have;
    const [head, tail] = [want.slice(0, braces.index), want.slice(braces.index + braces[0].length)];
    return have.length > head.length + tail.length && have.startsWith(head) && have.endsWith(tail);
  },
  takes(template: string, url: string): boolean {
    const [want, have] = [template, url].map((text) => new URL(text).pathname.replace(/\/$/, "").split("/"));
    if (new URL(template).origin !== new URL(url).origin) return false;
    for (const [i, segment] of want!.entries()) {
      if (segment === "*" || segment === "**" || /^:[A-Za-z_]\w*\*$/.test(segment)) return have!.length > i;
      if (have![i] === undefined || !this.segment(segment, have![i]!)) return false;
    }
    return want!.length === have!.length;
  },
  prefix(template: string): string {
    const { origin, pathname } = new URL(template);
    const segments = pathname.replace(/\/$/, "").split("/").slice(1);
    const end = segments.findIndex((segment) => this.placeholder.test(segment) || this.braces.test(segment));
    return [origin, ...(end < 0 ? segments : segments.slice(0, end))].join("/");
  },
};

const word = fc.constantFrom("a", "b", "ab", "users", "v1.json", "%20", "x:y", "", "é");
const hole = fc.constantFrom(
  ":id",
  ":rest*",
  "*",
  "**",
  "{id}",
  "{a}{b}",
  "{",
  "}",
  "}{",
  "{}",
  "v{n}.json",
  "%7Bn%7D",
  ":8",
  "a*",
);
const path = (segment: fc.Arbitrary<string>) =>
  fc
    .tuple(fc.array(segment, { maxLength: 5 }), fc.constantFrom("", "/", "?q=1", "?q={q}", "/?q=a/{q}", "?{/}"))
    .map(([segments, end]) => normaliseUrl(`https://h.example/${segments.join("/")}${end}`));

describe("against the rule, word by word", () => {
  test("what is a template, its prefix, and what it takes", () => {
    fc.assert(
      fc.property(path(fc.oneof(word, hole)), path(word), (template, url) => {
        const compiled = compileTemplate(template);
        expect(compiled !== null).toBe(reference.isTemplate(template));
        if (!compiled) return;
        expect(compiled.prefix).toBe(reference.prefix(template));
        expect(compiled.matches(segmentsOf(url))).toBe(reference.takes(template, url));
      }),
      { numRuns: 5_000 },
    );
  });

  test("a url that was made from a template, by the same rule", () => {
    fc.assert(
      fc.property(path(fc.oneof(word, hole)), fc.constantFrom("7", "a/b"), (template, value) => {
        const filled = template.replaceAll(/%7B[^/]*?%7D|:[A-Za-z_]\w*/g, "7").replaceAll("*", value);
        const compiled = compileTemplate(template);
        if (compiled) expect(compiled.matches(segmentsOf(filled))).toBe(reference.takes(template, filled));
      }),
      { numRuns: 5_000 },
    );
  });
});
