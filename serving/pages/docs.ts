import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { html, raw } from "hono/html";
import { page } from "./layout.ts";
import { leadOf, renderMarkdown, titleOf } from "./markdown.ts";

export interface Doc {
  type: "html" | "text";
  /** The rendered page, or the script. */
  readonly text: string;
  /** First heading of a page; of a script, its file name. */
  title: string;
  /** First sentence below the heading, as plain text; of a script "". */
  readonly lead: string;
}

/**
 * Reads the documentation of a folder, once: `name.md` becomes a page `name`; a script (`.mjs`, `.py`, `.go`) is served
 * as plain text under its whole name. Other files are not served, so no path of a request reaches the file system.
 * @param fillIn fills facts of the running service into a page's Markdown
 */
export function readDocs(dir: string, fillIn = (markdown: string): string => markdown): ReadonlyMap<string, Doc> {
  const docs = new Map<string, Doc>();
  if (!existsSync(dir)) return docs;
  for (const file of readdirSync(dir).sort()) {
    if (!/^[a-z0-9-]+\.(?:md|mjs|py|go)$/.test(file)) continue;
    const text = readFileSync(join(dir, file), "utf8");
    if (!file.endsWith(".md")) docs.set(file, { type: "text", text, title: file, lead: "" });
    else docs.set(file.slice(0, -3), documentOf(text, fillIn));
  }
  return docs;
}

/**
 * Creates a page whose Markdown is rendered when it is first requested: rendering all pages at the start of the process
 * took longer than the rest of the start. Its first sentence is read when the list of pages is first
 * shown.
 */
function documentOf(markdown: string, fillIn: (markdown: string) => string): Doc {
  const [opening = ""] = markdown.split("\n## ", 1);
  const title = titleOf(opening);
  let lead: string | null = null;
  let text: string | null = null;
  return {
    type: "html",
    title,
    get lead() {
      lead ??= leadOf(opening);
      return lead;
    },
    get text() {
      text ??= page({ title, body: raw(renderMarkdown(fillIn(markdown))), kind: "doc" });
      return text;
    },
  };
}

/** Pages grouped by audience, in reading order; pages that are not named here are listed last. */
const GROUPS: readonly (readonly [string, readonly string[]])[] = [
  [
    "Before you pay",
    [
      "check-before-you-pay",
      "pay-on-delivery",
      "buy",
      "route",
      "exposure",
      "integrations",
      "client",
      "skill",
      "cursor-rule",
      "facilitator",
      "watchers",
      "paid-operations",
      "reports",
      "companies-lookup",
      "api",
    ],
  ],
  ["If you sell", ["listings", "schedule", "corrections"]],
  [
    "How it is measured and proven",
    [
      "how-a-letter-is-made",
      "verification-method",
      "classes",
      "evidence",
      "archive",
      "audit",
      "card-bundle",
      "mirror",
      "witness",
      "monitor",
      "analysts",
      "trace",
    ],
  ],
  ["If you run it", ["operate", "networks-and-wallets", "deploy", "commands", "settings", "market"]],
];

const docItem = (name: string, { type, title, lead }: Doc): unknown =>
  html`<dt><a href="/docs/${name}">${title}</a></dt><dd>${type === "text" ? "A script to read and to run." : lead}</dd>`;

const docGroup = (words: string, i: number, items: readonly unknown[]): unknown =>
  items.length === 0
    ? ""
    : html`<section aria-labelledby="group-${i}" class="rule"><h2 id="group-${i}">${words}</h2><dl class="pages">${items}</dl></section>`;

/** Renders the list of all pages of the documentation, each with its first sentence. */
export function docsIndexPage(docs: ReadonlyMap<string, Doc>): string {
  const groupedNames = new Set(GROUPS.flatMap(([, names]) => names));
  const rest = [...docs.keys()].filter((name) => !groupedNames.has(name));
  const groups = [...GROUPS, ["Further", rest] as const].map(([words, names], i) =>
    docGroup(
      words,
      i,
      names.flatMap((name) => (docs.has(name) ? [docItem(name, docs.get(name)!)] : [])),
    ),
  );
  const body = html`<h1>Documentation</h1>${groups}`;
  return page({ title: "Touchstone: documentation", body, kind: "doc" });
}
