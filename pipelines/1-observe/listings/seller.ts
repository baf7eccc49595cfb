import type { Egress } from "../../../infra/egress/egress.ts";
import { MAX_ITEMS } from "../wellknown.ts";
import { type Listed, readText } from "./documents.ts";
import { rejected } from "./reasons.ts";

/** Where sellers describe themselves, in the order they are tried; the first that names an endpoint is the listing. */
export const SELLER_PATHS = ["/.well-known/x402", "/openapi.json", "/.well-known/agent-card.json"] as const;

/** Is this the address of a seller's own document? Anything else on an origin may be its users' upload. */
export const isSellerPath = (url: string): boolean =>
  /^\/(?:\.well-known\/(?:x402(?:\.json)?|agent(?:-card)?\.json)|openapi\.(?:json|ya?ml))$/.test(new URL(url).pathname);

/** Bytes as text; null when they are no UTF-8. */
export function textOf(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** At most so many items as one seller may list; the rest are named as too many. */
function bounded(listed: Listed): Listed {
  if (listed.items.length <= MAX_ITEMS) return listed;
  const over = listed.items.slice(MAX_ITEMS).map((row) => rejected("too_many", row));
  return { ...listed, items: listed.items.slice(0, MAX_ITEMS), rejected: [...listed.rejected, ...over], whole: false };
}

/** One document of a seller, read. */
export interface SellerDocument {
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
    const text = result.status === 200 ? textOf(result.body) : null;
    const listed = text === null ? null : bounded(readText(text));
    if (listed !== null && listed.form !== "none") documents.push({ url, listed });
    if (listed !== null && listed.items.length > 0) break;
    says ??= result.status === 200 ? "no listing in any form that is read" : `status ${result.status}`;
  }
  return documents.length > 0 || says === undefined ? { documents } : { documents, says };
}
