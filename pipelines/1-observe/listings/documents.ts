import { parse as parseYaml } from "yaml";
import { get, hashOf, isObject, type JsonObject, MAX_NESTED, MAX_VALUES_LONG_TEXT, parseJson, show } from "../json.ts";
import { type Rejected, refusesPaidCalls, rejectRow, resourceOf } from "./claims.ts";
import { isOpenApi, openApiItems } from "./openapi.ts";
import { looksLikeCsv, looksLikeLines, MAX_ROWS, parseCsv, parseLines, parseNdjson, type Rows } from "./tables.ts";
import { findBase, isAgentCard, MAX_ITEMS, readAgentCard, readItems } from "./wellknown.ts";

const FORMS = ["openapi", "agent-card", "list", "ndjson", "csv", "lines", "none"] as const;
/** The form in which the content of a document was recognised; `none` if in no form that is read. */
export type Form = (typeof FORMS)[number];

/** The content of a document of listings in any of the supported forms. */
export interface ParsedListing {
  form: Form;
  /** One object for each row that may name an endpoint. */
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
const MAX_YAML_CHARS = 4 * 1024 * 1024;
/** Largest number of values of one YAML text. The target of an alias is counted each time. */
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
function createTableListing(form: Form, { rows, rejected: alreadyRejected }: Rows): ParsedListing {
  const rejectedRows = [...alreadyRejected];
  const items = rows.flatMap((row): JsonObject[] => {
    if (isObject(row)) return [row];
    if (typeof row === "string") return [{ url: row }];
    rejectedRows.push(rejectRow("not_an_item", row));
    return [];
  });
  return { form, items, rejected: rejectedRows, whole: rejectedRows.length === 0 };
}

/**
 * Reads a parsed document: an OpenAPI 3 description, an agent card, a page of a Bazaar catalogue, any form of a
 * seller's `/.well-known/x402`, or a plain list. Never throws.
 * @param maxItems most items that are read; the others are rejected as too many
 */
export function parseListing(document: unknown, maxItems = MAX_ITEMS): ParsedListing {
  const listing = readDocumentItems(document, maxItems);
  if (!refusesPaidCalls(document)) return listing;
  return { ...listing, items: listing.items.map((item) => ({ ...item, paid_test_calls: false })) };
}

function readDocumentItems(document: unknown, maxItems: number): ParsedListing {
  if (isOpenApi(document)) {
    const { items, rejected: rejectedRows } = openApiItems(document);
    if (items.length === 0) return createEmptyListing(document);
    return { form: "openapi", items, rejected: rejectedRows, whole: rejectedRows.length === 0 };
  }
  const itemList = readItems(document);
  const items = itemList.items.length === 0 && isAgentCard(document) ? readAgentCard(document) : itemList.items;
  if (items.length === 0 && itemList.rejected.length === 0 && !itemList.hasList) return createEmptyListing(document);
  const excessRows = items.slice(maxItems).map((row) => rejectRow("too_many", row));
  const base = findBase(document);
  return {
    form: items === itemList.items ? "list" : "agent-card",
    items: items.slice(0, maxItems),
    rejected: [...itemList.rejected, ...excessRows],
    ...(base === undefined ? {} : { base }),
    whole: excessRows.length === 0,
  };
}

/**
 * Is this value nested at most {@link MAX_NESTED} deep, with at most `maxValues` values? The check does not recurse,
 * since a stranger could nest a value very deep.
 */
function isWithinBounds(value: unknown, maxValues: number): boolean {
  let level: unknown[] = [value];
  let valueCount = 0;
  for (let depth = 0; level.length > 0; depth++) {
    valueCount += level.length;
    if (depth > MAX_NESTED || valueCount > maxValues) return false;
    const nextLevel: unknown[] = [];
    for (const item of level) {
      if (typeof item !== "object" || item === null) continue;
      for (const inner of Object.values(item)) nextLevel.push(inner);
      if (valueCount + nextLevel.length > maxValues) return false;
    }
    level = nextLevel;
  }
  return true;
}

/**
 * Reads an operator's own YAML as {@link readText} reads JSON; null when the text is no YAML. A stranger's YAML is
 * never read, since a kilobyte of it can keep the parser busy for minutes. The size of an operator's YAML is bounded
 * too, and callers must read it in a thread that can be stopped.
 */
export function readYaml(text: string): ParsedListing | null {
  if (text.length > MAX_YAML_CHARS || !/^(?:---\s|[\w"'$-]+\s*:)/m.test(text.slice(0, 4096))) return null;
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
    const listing = parseListing(json, MAX_ROWS);
    return typeof get(json, "pagination") === "object" ? { ...listing, paged: true } : listing;
  }
  if (/^\s*[[{]/.test(text)) return createTableListing("ndjson", parseNdjson(text));
  if (looksLikeLines(text)) return createTableListing("lines", parseLines(text));
  if (looksLikeCsv(text)) return createTableListing("csv", parseCsv(text));
  return createEmptyListing(text.slice(0, 4096));
}

/** Drops the items and rejected rows beyond the limit for one seller. Further rejected rows are only counted. */
function limitForSeller(listing: ParsedListing): ParsedListing {
  const items = listing.items.slice(0, MAX_ITEMS);
  const rejectedRows = [
    ...listing.rejected,
    ...listing.items.slice(MAX_ITEMS).map((row) => rejectRow("too_many", row)),
  ];
  const excess = rejectedRows.length - MAX_ITEMS;
  const limitedRejectedRows =
    excess > 0 ? [...rejectedRows.slice(0, MAX_ITEMS), rejectRow("too_many", { more: excess })] : rejectedRows;
  return {
    ...listing,
    items,
    rejected: limitedRejectedRows,
    whole: listing.whole && items.length === listing.items.length,
  };
}

/**
 * Reads the bytes of a fetched document; null when they are not UTF-8.
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
export function readUpdatedAt(row: unknown): number | null {
  const statedTime = get(row, "lastUpdated") ?? get(row, "last_updated");
  if (typeof statedTime === "number" && Number.isFinite(statedTime))
    return statedTime < 1e11 ? statedTime * 1000 : statedTime;
  const parsedMs = typeof statedTime === "string" ? Date.parse(statedTime) : Number.NaN;
  return Number.isNaN(parsedMs) ? null : parsedMs;
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
      updatedAt: readUpdatedAt(row),
      row,
    })),
    total: typeof total === "number" ? total : null,
  };
}
