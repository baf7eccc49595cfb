import { parse as parseYaml } from "yaml";
import { get, hashOf, isObject, type JsonObject, MAX_NESTED, MAX_VALUES_LONG_TEXT, parseJson, show } from "../json.ts";
import { type Rejected, refusesPaidCalls, rejectRow, resourceOf } from "./claims.ts";
import { isOpenApi, openApiItems } from "./openapi.ts";
import { looksLikeCsv, looksLikeLines, MAX_ROWS, parseCsv, parseLines, parseNdjson, type Rows } from "./tables.ts";
import { findBase, isAgentCard, MAX_ITEMS, readAgentCard, readItems } from "./wellknown.ts";

const FORMS = ["openapi", "agent-card", "list", "ndjson", "csv", "lines", "none"] as const;
export type Form = (typeof FORMS)[number];

/** The content of a document of listings in any of the supported forms. */
export interface ParsedListing {
  form: Form;
  items: JsonObject[];
  /** Rows that are neither objects nor addresses. */
  rejected: Rejected[];
  /** Base of relative addresses, if the document names one. */
  base?: string;
  /** Was the whole document read? Only then does a missing row mean that it was delisted. */
  whole: boolean;
  /** Does the document describe itself as one page of several? */
  paged?: boolean;
}

/** Longest YAML that is read, characters. Its parser is slow, and OpenAPI documents are smaller. */
const MAX_YAML = 4 * 1024 * 1024;
/** Most values of one YAML text. The target of an alias is counted each time. */
const MAX_YAML_VALUES = 500_000;

const createEmptyListing = (document: unknown): ParsedListing => ({
  form: "none",
  items: [],
  rejected: [rejectRow("no_list", document)],
  whole: false,
});

/** Decodes bytes as UTF-8; null when they are not valid. */
export function decodeUtf8(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/**
 * Converts the rows of a table to items. A text counts as an address; a row that is neither text nor object is
 * rejected.
 */
function createTableListing(form: Form, { rows, rejected: refused }: Rows): ParsedListing {
  const bad = [...refused];
  const items = rows.flatMap((row): JsonObject[] => {
    if (isObject(row)) return [row];
    if (typeof row === "string") return [{ url: row }];
    bad.push(rejectRow("not_an_item", row));
    return [];
  });
  return { form, items, rejected: bad, whole: bad.length === 0 };
}

/**
 * Reads a parsed document: an OpenAPI 3 description, an agent card, a page of a Bazaar catalogue, any form of a
 * seller's `/.well-known/x402`, or a plain list. Never throws.
 * @param max most items that are read; the others are rejected as too many
 */
export function parseListing(document: unknown, max = MAX_ITEMS): ParsedListing {
  const listed = readDocumentItems(document, max);
  if (!refusesPaidCalls(document)) return listed;
  return { ...listed, items: listed.items.map((item) => ({ ...item, paid_test_calls: false })) };
}

function readDocumentItems(document: unknown, max: number): ParsedListing {
  if (isOpenApi(document)) {
    const { items, rejected: refused } = openApiItems(document);
    if (items.length === 0) return createEmptyListing(document);
    return { form: "openapi", items, rejected: refused, whole: refused.length === 0 };
  }
  const read = readItems(document);
  const items = read.items.length === 0 && isAgentCard(document) ? readAgentCard(document) : read.items;
  if (items.length === 0 && read.rejected.length === 0 && !read.hasList) return createEmptyListing(document);
  const over = items.slice(max).map((row) => rejectRow("too_many", row));
  const base = findBase(document);
  return {
    form: items === read.items ? "list" : "agent-card",
    items: items.slice(0, max),
    rejected: [...read.rejected, ...over],
    ...(base === undefined ? {} : { base }),
    whole: over.length === 0,
  };
}

/**
 * Is this value nested at most {@link MAX_NESTED} deep, with at most `most` values? It is checked without recursion.
 */
function isWithinBounds(value: unknown, most: number): boolean {
  let level: unknown[] = [value];
  let values = 0;
  for (let depth = 0; level.length > 0; depth++) {
    values += level.length;
    if (depth > MAX_NESTED || values > most) return false;
    const below: unknown[] = [];
    for (const one of level) {
      if (typeof one !== "object" || one === null) continue;
      for (const inner of Object.values(one)) below.push(inner);
      if (values + below.length > most) return false;
    }
    level = below;
  }
  return true;
}

/**
 * Reads an operator's own YAML as {@link readText} reads JSON; null when the text is no YAML. A stranger's YAML is
 * never read, since a kilobyte of it can keep the parser busy for minutes. The size of an operator's YAML is bounded
 * too, and callers must read it in a thread that can be stopped.
 */
export function readYaml(text: string): ParsedListing | null {
  if (text.length > MAX_YAML || !/^(?:---\s|[\w"'$-]+\s*:)/m.test(text.slice(0, 4096))) return null;
  let value: unknown;
  try {
    value = parseYaml(text, { maxAliasCount: 100, logLevel: "silent" });
  } catch {
    return null;
  }
  return isObject(value) && isWithinBounds(value, MAX_YAML_VALUES) ? parseListing(value, MAX_ROWS) : null;
}

/**
 * Reads the text of a file or an answer in the form that its content has: JSON, NDJSON, CSV with a header line, or one
 * address a line. The form is `none` when it is none of these. Never throws.
 * @param maxValues most values of one JSON text
 */
export function readText(input: string, maxValues?: number): ParsedListing {
  const text = input.replace(/^\ufeff/, "");
  const json = parseJson(text, maxValues);
  if (json !== undefined) {
    const listed = parseListing(json, MAX_ROWS);
    return typeof get(json, "pagination") === "object" ? { ...listed, paged: true } : listed;
  }
  if (/^\s*[[{]/.test(text)) return createTableListing("ndjson", parseNdjson(text));
  if (looksLikeLines(text)) return createTableListing("lines", parseLines(text));
  if (looksLikeCsv(text)) return createTableListing("csv", parseCsv(text));
  return createEmptyListing(text.slice(0, 4096));
}

/** Drops the items and rejected rows beyond the limit for one seller. Further rejected rows are only counted. */
function limitForSeller(listed: ParsedListing): ParsedListing {
  const items = listed.items.slice(0, MAX_ITEMS);
  const refused = [...listed.rejected, ...listed.items.slice(MAX_ITEMS).map((row) => rejectRow("too_many", row))];
  const more = refused.length - MAX_ITEMS;
  const limited = more > 0 ? [...refused.slice(0, MAX_ITEMS), rejectRow("too_many", { more })] : refused;
  return { ...listed, items, rejected: limited, whole: listed.whole && items.length === listed.items.length };
}

/**
 * Reads the bytes of a fetched document; null when they are no text.
 * @param seller true for a seller's own document; false for one that an operator named
 */
export function readBytes({ bytes, seller }: { bytes: Uint8Array; seller: boolean }): ParsedListing | null {
  const text = decodeUtf8(bytes);
  if (text === null) return null;
  return seller ? limitForSeller(readText(text)) : readText(text, MAX_VALUES_LONG_TEXT);
}

/** One row of a catalogue. */
export interface PageRow {
  /**
   * Identifies the resource that the row names (url, method, tool). For a row without an address: a hash of its
   * content.
   */
  key: string;
  /** When the row was last updated, unix ms; null when the row has no such time. */
  updatedAt: number | null;
  row: unknown;
}

export interface Page {
  rows: PageRow[];
  /** Total number of rows that the catalogue states; null if it states none. */
  total: number | null;
}

/** Reads a row's `lastUpdated` as unix ms: an ISO string or a Unix number in seconds or ms; null for neither. */
export function updatedAt(row: unknown): number | null {
  const stated = get(row, "lastUpdated") ?? get(row, "last_updated");
  if (typeof stated === "number" && Number.isFinite(stated)) return stated < 1e11 ? stated * 1000 : stated;
  const parsed = typeof stated === "string" ? Date.parse(stated) : Number.NaN;
  return Number.isNaN(parsed) ? null : parsed;
}

/** Returns the key of a row, which contains all methods if the row names several; null if the row names no address. */
function rowKey(row: JsonObject): string | null {
  const resource = resourceOf(row);
  if (resource === null) return null;
  return Array.isArray(row.methods) ? `${resource.id} ${show(row.methods)}` : resource.id;
}

/** Reads a page of a Bazaar catalogue; null when it holds no list. */
export function readPage(bytes: Uint8Array): Page | null {
  const parsed = parseJson(bytes, MAX_VALUES_LONG_TEXT);
  const items = get(parsed, "items") ?? get(parsed, "resources") ?? parsed;
  if (!Array.isArray(items)) return null;
  const total = get(parsed, "pagination", "total");
  return {
    rows: items.map((row) => ({
      key: (isObject(row) ? rowKey(row) : null) ?? `? ${hashOf(row)}`,
      updatedAt: updatedAt(row),
      row,
    })),
    total: typeof total === "number" ? total : null,
  };
}
