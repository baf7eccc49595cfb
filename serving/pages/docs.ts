import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { raw } from "hono/html";
import { page } from "./layout.ts";
import { leadOf, renderMarkdown, titleOf } from "./markdown.ts";

export interface Doc {
  type: "html" | "text";
  text: string;
  /** First heading, and the first sentence below it as plain text; a script has its name and none. */
  title: string;
  lead: string;
}

/**
 * The documentation of a folder, read once: `name.md` as a page under `name`, `name.mjs` as plain text under its whole
 * name. No other file of the folder is served, so no path of a request ever reaches the file system.
 */
export function readDocs(dir: string): ReadonlyMap<string, Doc> {
  const docs = new Map<string, Doc>();
  if (!existsSync(dir)) return docs;
  for (const file of readdirSync(dir).sort()) {
    if (!/^[a-z0-9-]+\.(?:md|mjs)$/.test(file)) continue;
    const text = readFileSync(join(dir, file), "utf8");
    if (file.endsWith(".mjs")) docs.set(file, { type: "text", text, title: file, lead: "" });
    else
      docs.set(file.slice(0, -3), {
        type: "html",
        title: titleOf(text),
        lead: leadOf(text),
        text: page({ title: titleOf(text), body: raw(renderMarkdown(text)), kind: "doc" }),
      });
  }
  return docs;
}
