import type { Egress } from "../../../infra/egress/egress.ts";
import { processReader, type Reader } from "../reading/reader.ts";
import { originOf } from "../urls.ts";
import type { Source } from "./claims.ts";
import type { ParsedListing } from "./documents.ts";

/** Paths of a seller's own documents, in the order in which they are tried. */
const SELLER_PATHS = ["/.well-known/x402", "/openapi.json", "/.well-known/agent-card.json"] as const;

/** Is this the path of a seller's own document? Other paths of an origin may be uploads of its users. */
const isSellerPath = (url: string): boolean =>
  /^\/(?:\.well-known\/(?:x402(?:\.json)?|agent(?:-card)?\.json)|openapi\.json)$/.test(new URL(url).pathname);

/** One document of a seller that was read. */
interface SellerDocument {
  url: string;
  listing: ParsedListing;
}

/**
 * Reads a seller's own listing: `/.well-known/x402`, else its OpenAPI description, else its agent card. It stops at the
 * first document that names an endpoint. Empty lists are returned too, since the endpoints that they named before are
 * delisted. If the host does not answer, its other paths are not tried. Never throws for anything that the seller does.
 * @returns `says`: why no document was read; absent if one was
 */
export async function readSellerDocuments(
  egress: Egress,
  origin: string,
  reader: Reader = processReader,
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
    const listing = read?.ok ? read.value : null;
    if (listing !== null && listing.form !== "none") documents.push({ url, listing });
    if (listing !== null && listing.items.length > 0) break;
    says ??= result.status === 200 ? "no listing in any form that is read" : `status ${result.status}`;
  }
  return documents.length > 0 || says === undefined ? { documents } : { documents, says };
}

/**
 * A document that was read, with the source to which its claims are attributed; or why the document could not be read.
 */
export type DocumentRead =
  | { listing: ParsedListing; source: Pick<Source, "ownOrigin" | "base"> }
  | { fault: "unreachable" | "unreadable"; says: string };

/**
 * Reads the document at an address. In a seller's own document, rows with urls of its origin count as the seller's
 * claims; in any other document all rows are claims of a third party. Never throws for anything that the host does.
 */
export async function readDocument(
  egress: Egress,
  url: string,
  reader: Reader = processReader,
  headers: Readonly<Record<string, string>> = {},
): Promise<DocumentRead> {
  const result = await egress.fetch({
    url,
    method: "GET",
    headers: { accept: "application/json, */*;q=0.5", ...headers },
    profile: "evidence",
  });
  if (result.outcome !== "answered") return { fault: "unreachable", says: `${url}: ${result.says}` };
  if (result.status !== 200) return { fault: "unreachable", says: `${url}: status ${result.status}` };
  const read = await reader.ask("document", { bytes: result.body, seller: false });
  if (!read.ok) return { fault: "unreadable", says: `${url}: ${read.says}` };
  const listing = read.value;
  if (listing === null) return { fault: "unreadable", says: `${url} is not text in UTF-8` };
  // A document behind a redirect to another origin does not count as the seller's own.
  const isOwnDocument = isSellerPath(url) && (result.url === "" || originOf(result.url) === originOf(url));
  return { listing, source: isOwnDocument ? { ownOrigin: originOf(url) } : { base: listing.base ?? originOf(url) } };
}
