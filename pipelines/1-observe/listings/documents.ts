import { parse as parseYaml } from "yaml";
import { isObject, type JsonObject, parseJson } from "../json.ts";
import { baseOf, itemsOf, MAX_ITEMS } from "../wellknown.ts";
import { cardItems, isAgentCard } from "./cards.ts";
import { isOpenApi, openApiItems } from "./openapi.ts";
import { type Rejected, rejected } from "./reasons.ts";
import { csvRows, lineRows, looksLikeCsv, looksLikeLines, MAX_ROWS, ndjsonRows, type Rows } from "./tables.ts";

export const FORMS = ["openapi", "agent-card", "list", "ndjson", "csv", "lines", "none"] as const;
export type Form = (typeof FORMS)[number];

/** A document of listings, whatever form it came in. */
export interface Listed {
  form: Form;
  items: JsonObject[];
  /** Rows that cannot even be looked at as items. */
  rejected: Rejected[];
  /** What relative addresses are relative to, where the document says so itself. */
  base?: string;
  /** Was everything read that the document names? Only then can it say that something is gone. */
  whole: boolean;
}

/** Longest YAML that is read: its parser is slow, and OpenAPI documents are smaller. */
const MAX_YAML = 8 * 1024 * 1024;

const nothing = (document: unknown): Listed => ({
  form: "none",
  items: [],
  rejected: [rejected("no_list", document)],
  whole: false,
});

/** Rows of a table as items: a text is an address, and what is neither text nor object is none. */
function tabled(form: Form, { rows, rejected: refused }: Rows): Listed {
  const bad = [...refused];
  const items = rows.flatMap((row): JsonObject[] => {
    if (isObject(row)) return [row];
    if (typeof row === "string") return [{ url: row }];
    bad.push(rejected("not_an_item", row));
    return [];
  });
  return { form, items, rejected: bad, whole: bad.length === 0 };
}

/**
 * Reads a parsed document: an OpenAPI 3 description, an agent card, a page of a Bazaar catalogue, any form of a
 * seller's `/.well-known/x402`, or a plain list. Never throws.
 * @param max items that are read; the rest are rejected as too many
 */
export function readListed(document: unknown, max = MAX_ITEMS): Listed {
  if (isOpenApi(document)) {
    const { items, rejected: refused } = openApiItems(document);
    if (items.length === 0) return nothing(document);
    return { form: "openapi", items, rejected: refused, whole: refused.length === 0 };
  }
  const read = itemsOf(document);
  const items = read.items.length === 0 && isAgentCard(document) ? cardItems(document) : read.items;
  if (items.length === 0 && read.rejected.length === 0 && !read.listed) return nothing(document);
  const over = items.slice(max).map((row) => rejected("too_many", row));
  const base = baseOf(document);
  return {
    form: items === read.items ? "list" : "agent-card",
    items: items.slice(0, max),
    rejected: [...read.rejected, ...over],
    ...(base === undefined ? {} : { base }),
    whole: over.length === 0,
  };
}

function yamlOrNothing(text: string): unknown {
  if (text.length > MAX_YAML || !/^(?:---\s|[\w"'$-]+\s*:)/m.test(text.slice(0, 4096))) return undefined;
  try {
    const value: unknown = parseYaml(text, { maxAliasCount: 100, logLevel: "silent" });
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reads the text of a file or an answer by what is in it: JSON, NDJSON, CSV with a header line, one address a line, or
 * YAML. `none` when it is nothing of these. Never throws.
 */
export function readText(input: string): Listed {
  const text = input.replace(/^\ufeff/, "");
  const json = parseJson(text);
  if (json !== undefined) return readListed(json, MAX_ROWS);
  if (/^\s*[[{]/.test(text)) return tabled("ndjson", ndjsonRows(text));
  if (looksLikeLines(text)) return tabled("lines", lineRows(text));
  if (looksLikeCsv(text)) return tabled("csv", csvRows(text));
  const yaml = yamlOrNothing(text);
  return yaml === undefined ? nothing(text.slice(0, 4096)) : readListed(yaml, MAX_ROWS);
}
