import type { Clock } from "../../../infra/clock.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { networksOf } from "../../../infra/rails/rails.ts";
import type { BodyOf, Claims } from "../../record/bodies.ts";
import { capId } from "../../record/ids.ts";
import { type ListedClaim, type Source, settleClaim } from "../listings/claims.ts";
import { expand } from "../listings/intake.ts";
import { readSellerDocuments } from "../listings/sources.ts";
import type { Answer402 } from "../terms/x402.ts";
import { originOf } from "../urls.ts";
import { type Probe, type ProbeTools, probe } from "./probe.ts";
import { requestOf } from "./request.ts";
import { asListed, blank, listedTargets } from "./unplanned.ts";

/** A look at one endpoint of which nothing is kept. */
export interface Looked {
  probe: Probe;
  method: NonNullable<Claims["method"]>;
  /** The 402 as it came; null when it was none. */
  answer402: Answer402 | null;
  /** The seller's own document that names this endpoint, as it stands now, and what it gets wrong; null: there is none. */
  listing: { url: string; defects: BodyOf<"listing">["defects"] } | null;
}

/** Each of the seller's documents, ms: a look waits for somebody. */
const DOCUMENT_MS = 5_000;
/** Rows of a document that are looked through, and of those read together. */
const MAX_ROWS = 2_000;
const ROWS_AT_ONCE = 100;

type Asked = Pick<BodyOf<"ask">, "cap" | "normalised_url" | "method">;

/** The same way out, with another fetch. */
const through = (egress: Egress, fetch: Egress["fetch"]): Egress => ({
  fetch,
  validate: (url) => egress.validate(url),
  close: () => egress.close(),
});

/** What the seller's own document says of this url now, as an ask would hold it against the 402. */
async function ownListing(tools: ProbeTools, asked: Asked): Promise<{ document: string; claim: ListedClaim } | null> {
  const origin = originOf(asked.normalised_url);
  const hurried = through(tools.egress, (request) => tools.egress.fetch({ ...request, deadlineMs: DOCUMENT_MS }));
  const { documents } = await readSellerDocuments(hurried, origin, tools.reader);
  for (const { url, listed } of documents) {
    const source: Source = { name: url, ownOrigin: origin, ...(listed.base ? { base: listed.base } : {}) };
    const items = listed.items.flatMap(expand).slice(0, MAX_ROWS);
    for (let i = 0; i < items.length; i += ROWS_AT_ONCE) {
      const rows = items.slice(i, i + ROWS_AT_ONCE);
      const read = await tools.reader.ask("rows", { rows, source, ownNetwork: networksOf(tools.rail) });
      if (!read.ok) continue;
      for (const [n, one] of read.said.entries()) {
        const from = { ...source, validate: (address: string) => tools.egress.validate(address) };
        const taken = settleClaim(one, rows[n], from, tools.rail);
        if ("claim" in taken && listedTargets(asked, [taken.claim]).length > 0)
          return { document: url, claim: taken.claim };
      }
    }
  }
  return null;
}

/**
 * One free handshake now, made and read as those of the record are, and held against what the seller's own document says at
 * this moment. Nothing is appended anywhere. Never throws for what the stranger does.
 * @param method null: the listed one, else GET
 */
export async function lookOnce(
  tools: ProbeTools,
  url: string,
  method: Claims["method"],
  clock: Clock,
): Promise<Looked> {
  const asked: Asked = { cap: capId(method ?? "GET", url), normalised_url: url, method };
  const own = await ownListing(tools, asked);
  const one = own
    ? listedTargets(asked, [own.claim])[0]!
    : asListed(asked.cap, url, method ?? "GET", blank(url, method ?? "GET"), false);
  let answer402: Answer402 | null = null;
  const hearing = through(tools.egress, async (request) => {
    const result = await tools.egress.fetch(request);
    const isTerms = request.profile === "handshake" && result.outcome === "answered" && result.status === 402;
    if (isTerms) answer402 = { headers: result.headers, body: result.body };
    return result;
  });
  const { request } = requestOf(one, null, null);
  const seen = await probe({ ...tools, egress: hearing }, request, one.sellerClaims, clock);
  return {
    probe: seen,
    method: one.method as Looked["method"],
    answer402,
    listing: own ? { url: own.document, defects: own.claim.body.defects } : null,
  };
}
