import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parseUrl } from "../../infra/url.ts";
import { METHOD_PAGE } from "../../pipelines/record/verifier-version.ts";
import { PROBLEMS } from "../../serving/http/problem.ts";
import { OPERATIONS } from "../../serving/operations.ts";
import { readDocs } from "../../serving/pages/docs.ts";
import { renderMarkdown } from "../../serving/pages/markdown.ts";

/** Every page of the documentation as it is served: nothing of it stands there as it was written, and no link is dead. */
const docs = readDocs(join(import.meta.dirname, "../../docs"));
const pages = [...docs].filter(([, { type }]) => type === "html").map(([name, { text }]) => [name, text] as const);

const main = (html: string): string => /<main[^>]*>([\s\S]*)<\/main>/.exec(html)![1]!;
/** Text of a page outside of code. */
const prose = (html: string): string =>
  main(html)
    .replace(/<(pre|code)[^>]*>[\s\S]*?<\/\1>/g, "CODE")
    .replace(/<[^>]+>/g, "\n");

/** What of a text is still Markdown, or a table that was not read as one. */
const unread = (html: string): string[] =>
  prose(html)
    .match(/^.*(?:\||\]\(|\*\*|__|`|^\s*#{1,6} |^\s*[-*] ).*$/gm)
    ?.map((line) => line.slice(0, 120)) ?? [];

const anchors = new Map(
  pages.map(([name, html]) => [name, new Set([...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id!))]),
);

/** Paths of the service that a link may name: those of its table, without the ones that want an id. */
const ADDRESSES = new Set(OPERATIONS.map(({ path }) => path).filter((path) => !path.includes(":")));

function dead(from: string, href: string): boolean {
  if (/^https?:/.test(href)) return parseUrl(href) === null;
  const [path, anchor] = href.split("#") as [string, string?];
  const [, page] = /^\/docs\/(.+)$/.exec(path) ?? [];
  const name = path === "" ? from : page;
  if (name === undefined) return !ADDRESSES.has(path);
  return !docs.has(name) || (anchor !== undefined && !anchors.get(name)?.has(anchor));
}

const linksOf = (html: string): string[] => [...html.matchAll(/<a [^>]*href="([^"]*)"/g)].map(([, href]) => href!);

test("there are pages to look at", () => {
  expect(pages.length).toBeGreaterThan(20);
});

describe.each(pages)("%s", (name, html) => {
  test("shows nothing as it was written", () => {
    expect(unread(html)).toEqual([]);
  });

  test("has no dead link", () => {
    expect(linksOf(main(html)).filter((href) => dead(name, href))).toEqual([]);
  });
});

test("the checks find a fault where there is one", () => {
  const html = `<main>${renderMarkdown("a | b\n\n**open\n\n[x](../name.md) [y](/docs/nowhere) [z](api.md#nowhere) [w](/v1/nothing)")}</main>`;
  expect(unread(html)).toHaveLength(3);
  expect(linksOf(html).filter((href) => dead("api", href))).toEqual([
    "/docs/nowhere",
    "/docs/api#nowhere",
    "/v1/nothing",
  ]);
});

test("addresses that cards and problem documents name lead to their place", () => {
  expect(dead("", METHOD_PAGE)).toBe(false);
  for (const code of Object.keys(PROBLEMS)) {
    expect([code, dead("", `/docs/api#${code.replaceAll("_", "-")}`)]).toEqual([code, false]);
  }
});
