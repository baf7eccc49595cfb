import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { expect, test } from "vitest";
import * as commands from "./commands-page.ts";
import { PAGE, settingsOf, settingsPage } from "./settings-page.ts";

const ROOT = resolve(import.meta.dirname, "..");
const CODE = ["infra", "pipelines", "serving", "commands", "fixtures", "sql", "test"];
/** Not a page of ours: a stand-in for any, and an outside specification. */
const OTHERS = new Set(["name.md", "thrift-compact-protocol.md"]);
const WHERE = ["docs", "docs/design", "infra/deploy", "infra/deploy/kafka", "."];

const filesOf = (dir: string, ending: RegExp): string[] =>
  readdirSync(join(ROOT, dir), { recursive: true, encoding: "utf8" })
    .map((file) => join(dir, file))
    .filter((file) => !file.includes("node_modules") && ending.test(file) && statSync(join(ROOT, file)).isFile());

/** Comments cite pages by their bare name, as in `records.md, Paying`. */
test("every page that the code cites is there", () => {
  const files = [...CODE.flatMap((dir) => filesOf(dir, /\.(?:ts|mjs|sql|sh|yaml|conf)$/)), "touchstone.ts"];
  const missing = files.flatMap((file) => {
    const text = readFileSync(join(ROOT, file), "utf8");
    const cited = [...text.matchAll(/(?<![-\w./*$}<])((?:docs\/)?(?:design\/)?[a-z0-9-]+\.md)\b/g)].map(
      (found) => found[1]!,
    );
    return cited
      .filter((name) => !OTHERS.has(name))
      .filter((name) => !WHERE.some((dir) => existsSync(join(ROOT, dir, name))))
      .map((name) => `${file}: ${name}`);
  });
  expect(files.length).toBeGreaterThan(300);
  expect(missing).toEqual([]);
});

test("every link between pages leads to a file", () => {
  const pages = [...filesOf("docs", /\.md$/), ...readdirSync(ROOT).filter((name) => name.endsWith(".md"))];
  const dead = pages.flatMap((page) =>
    [...readFileSync(join(ROOT, page), "utf8").matchAll(/\]\(([^)#:\s]+)(?:#[^)]*)?\)/g)]
      .map((found) => found[1]!)
      .filter((link) => !link.startsWith("/") && !existsSync(resolve(ROOT, dirname(page), link)))
      .map((link) => `${page}: ${link}`),
  );
  expect(pages.length).toBeGreaterThan(15);
  expect(dead).toEqual([]);
});

/** The first file of a row has its whole path; other names are paths too, or lie beside that file or its folder. */
test("the tour leads to files and folders that are there", () => {
  const rows = readFileSync(join(ROOT, "docs/design/tour.md"), "utf8").split("\n");
  const stops = rows.flatMap((row) => /^\| \d \| `([^`]+)` \|/.exec(row)?.[1] ?? []);
  expect(stops).toHaveLength(14);
  const missing = rows.flatMap((row) => {
    const named = [...row.matchAll(/`([\w./-]+\/[\w./-]*|[\w-]+\.(?:ts|json))`/g)].map((found) => found[1]!);
    const [first] = named;
    const beside = first === undefined ? "." : dirname(first);
    return named.filter((name) => ![".", beside, dirname(beside)].some((dir) => existsSync(join(ROOT, dir, name))));
  });
  expect(missing).toEqual([]);
});

test("the reference of the settings is what the schema says: npx tsx test/settings-page.ts", () => {
  expect(settingsOf().length).toBeGreaterThan(60);
  expect(readFileSync(PAGE, "utf8")).toBe(settingsPage());
});

test("the tables of the commands and of their exit codes are what the program has: npx tsx test/commands-page.ts", () => {
  expect(readFileSync(commands.PAGE, "utf8")).toBe(commands.commandsPage());
});
