import type { Egress } from "../../../infra/egress/egress.ts";
import { ownReader, type Reader } from "../reading/reader.ts";
import type { Listed, PageRow } from "./documents.ts";
import { MAX_ROWS } from "./tables.ts";

const PAGE = 100;
const MAX_PAGES = 400;
/** Bytes of all pages of one pass. */
const MAX_BYTES = 256 * 1024 * 1024;
/** Offset paging loses and repeats rows while the catalogue moves: read again until a whole pass brings nothing new. */
const MAX_PASSES = 3;

export interface CatalogueRead {
  /** One row a resource (and tool), in the order first seen; of several the one that was updated last. */
  rows: unknown[];
  /** Did a pass bring nothing new before the limits were reached? */
  stable: boolean;
  says?: string;
}

const pageUrl = (catalogue: string, offset: number): string => {
  const url = new URL(catalogue);
  if (!url.pathname.endsWith("/discovery/resources")) {
    url.pathname = `${url.pathname.replace(/\/$/, "")}/discovery/resources`;
  }
  url.searchParams.set("limit", String(PAGE));
  url.searchParams.set("offset", String(offset));
  return url.href;
};

/** Keeps the row of a resource that was updated last. */
function keep(seen: Map<string, PageRow>, row: PageRow): void {
  const known = seen.get(row.key);
  if (known === undefined || (row.updatedAt ?? 0) >= (known.updatedAt ?? 0)) seen.set(row.key, row);
}

/** One pass over all pages. Ends at an empty or short page, at the stated total, or when a page cannot be read. */
async function pass(
  egress: Egress,
  reader: Reader,
  catalogue: string,
  seen: Map<string, PageRow>,
): Promise<string | null> {
  let bytes = 0;
  for (let page = 0, offset = 0; page < MAX_PAGES; page++) {
    const result = await egress.fetch({
      url: pageUrl(catalogue, offset),
      method: "GET",
      headers: { accept: "application/json" },
      profile: "evidence",
    });
    if (result.outcome !== "answered") return `page at ${offset}: ${result.says}`;
    if (result.status !== 200) return `page at ${offset}: status ${result.status}`;
    bytes += result.body.length;
    if (bytes > MAX_BYTES) return `more than ${MAX_BYTES} bytes`;
    const read = await reader.ask("page", result.body);
    if (!read.ok) return `page at ${offset}: ${read.says}`;
    if (read.said === null) return `page at ${offset}: no list of items`;
    const { rows, total } = read.said;
    for (const row of rows) keep(seen, row);
    if (seen.size > MAX_ROWS) return `more than ${MAX_ROWS} rows`;
    offset += rows.length;
    // A catalogue may hand out fewer rows a page than asked, so only an empty page or its own total ends the pass.
    if (rows.length === 0 || (total !== null && offset >= total)) return null;
  }
  return `more than ${MAX_PAGES} pages`;
}

/**
 * All rows of a Bazaar catalogue (`GET {catalogue}/discovery/resources`), paged until a pass brings nothing new. Never
 * throws for what the catalogue does: what was read so far comes back with the reason.
 */
export async function readCatalogue(
  egress: Egress,
  catalogue: string,
  reader: Reader = ownReader,
): Promise<CatalogueRead> {
  const seen = new Map<string, PageRow>();
  const rows = () => [...seen.values()].map(({ row }) => row);
  for (let i = 0; i < MAX_PASSES; i++) {
    const before = seen.size;
    const says = await pass(egress, reader, catalogue, seen);
    if (says !== null) return { rows: rows(), stable: false, says };
    if (i > 0 && seen.size === before) return { rows: rows(), stable: true };
  }
  return { rows: rows(), stable: false, says: `still moving after ${MAX_PASSES} passes` };
}

/** Where sellers describe themselves, in the order they are tried; the first that names an endpoint is the listing. */
const SELLER_PATHS = ["/.well-known/x402", "/openapi.json", "/.well-known/agent-card.json"] as const;

/** Is this the address of a seller's own document? Anything else on an origin may be its users' upload. */
export const isSellerPath = (url: string): boolean =>
  /^\/(?:\.well-known\/(?:x402(?:\.json)?|agent(?:-card)?\.json)|openapi\.json)$/.test(new URL(url).pathname);

/** One document of a seller, read. */
interface SellerDocument {
  url: string;
  listed: Listed;
}

/**
 * A seller's own listing: `/.well-known/x402`, else its OpenAPI description, else its agent card. Lists that are empty
 * are given too, since they say that something is gone; the first that names an endpoint is the last. A host that does
 * not answer is not asked again. Never throws for what the seller does.
 */
export async function readSellerDocuments(
  egress: Egress,
  origin: string,
  reader: Reader = ownReader,
): Promise<{ documents: SellerDocument[]; says?: string }> {
  const documents: SellerDocument[] = [];
  let says: string | undefined;
  for (const path of SELLER_PATHS) {
    const url = `${origin}${path}`;
    const headers = { accept: "application/json" };
    const result = await egress.fetch({ url, method: "GET", headers, profile: "handshake" });
    if (result.outcome !== "answered") {
      says ??= result.says;
      break;
    }
    const read = result.status === 200 ? await reader.ask("document", { bytes: result.body, seller: true }) : null;
    if (read?.ok === false) says ??= read.says;
    const listed = read?.ok ? read.said : null;
    if (listed !== null && listed.form !== "none") documents.push({ url, listed });
    if (listed !== null && listed.items.length > 0) break;
    says ??= result.status === 200 ? "no listing in any form that is read" : `status ${result.status}`;
  }
  return documents.length > 0 || says === undefined ? { documents } : { documents, says };
}
