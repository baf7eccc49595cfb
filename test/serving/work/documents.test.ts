import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { DOCUMENT_KINDS, type Extracted } from "../../../serving/schemas/extract.ts";
import { createExtractor } from "../../../serving/work/extract/extractor.ts";

/**
 * Documents made by other programs (fixtures/documents/SOURCES.md), each held against what was put into it: known.json was
 * written from the texts that went in, not from what came out.
 */
const FOLDER = resolve(import.meta.dirname, "../../../fixtures/documents");

interface Known {
  kind?: Extracted["kind"];
  headings?: string[];
  tables?: string[][][];
  /** Rows of each table, where they are too many to name. */
  rows?: number[];
  links?: string[];
  has?: string[];
  lacks?: string[];
  ends?: string;
  metadata?: Partial<Extracted["metadata"]>;
  cut?: string[];
  recognised?: boolean;
  fault?: string;
}

const KNOWN = JSON.parse(readFileSync(join(FOLDER, "known.json"), "utf8")) as Record<string, Known>;
/** Types with which a server would send what does not say its charset itself. */
const TYPES: Record<string, string> = { "text/latin1-letter.txt": "text/plain; charset=iso-8859-1" };

const extractor = createExtractor({ limits: { wallMs: 300_000, cpuMs: 100_000 }, waitMs: 300_000 });
afterAll(() => extractor.close());

const read = (name: string) =>
  extractor.read({
    bytes: readFileSync(join(FOLDER, name)),
    kinds: DOCUMENT_KINDS,
    url: `https://corpus.example/${name}`,
    type: TYPES[name],
  });

const line = (text: string) => text.replace(/\s+/g, " ");

test("every document of the folder is known", () => {
  const kinds = readdirSync(FOLDER, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const files = kinds.flatMap(({ name }) => readdirSync(join(FOLDER, name)).map((file) => `${name}/${file}`));
  expect(files.sort()).toEqual(Object.keys(KNOWN).sort());
});

describe("what was put into a document is read of it", () => {
  test.each(Object.entries(KNOWN))("%s", async (name, known) => {
    if (known.fault) {
      await expect(read(name)).rejects.toThrow(known.fault);
      return;
    }
    const said = await read(name);
    expect([said.kind, said.mismatch]).toEqual([known.kind ?? name.split("/")[0], null]);
    expect(said.recognised !== null).toBe(known.recognised === true);
    if (known.headings) expect(said.headings.map(({ text }) => text)).toEqual(known.headings);
    for (const { text, offset } of said.headings) expect(line(said.text.slice(offset))).toContain(text.slice(0, 9));
    if (known.tables) expect(said.tables.map(({ rows }) => rows)).toEqual(known.tables);
    if (known.rows) expect(said.tables.map(({ rows }) => rows.length)).toEqual(known.rows);
    if (known.links) expect(said.links.map(({ url }) => url)).toEqual(known.links);
    for (const text of known.has ?? []) {
      expect(/[\t\n]/.test(text) ? said.text : line(said.text)).toContain(/[\t\n]/.test(text) ? text : line(text));
    }
    for (const text of known.lacks ?? []) expect(said.text).not.toContain(text);
    if (known.ends) expect(said.text.endsWith(known.ends)).toBe(true);
    expect(said.metadata).toMatchObject(known.metadata ?? {});
    expect([...said.cut].sort()).toEqual(known.cut ?? []);
  });
});
