import type { Clock } from "../../../infra/clock.ts";
import { withRequestFields } from "../../../infra/egress/egress.ts";
import type { BodyOf, Claims } from "../../record/bodies.ts";
import { capId } from "../../record/ids.ts";
import type { Answer402 } from "../../record/terms/entries.ts";
import { type Source, settleClaim } from "../listings/claims.ts";
import { expand, readRows } from "../listings/intake.ts";
import { readSellerDocuments } from "../listings/sources.ts";
import { originOf } from "../urls.ts";
import { probeByMethod } from "./methods.ts";
import type { Probe, ProbeTools } from "./probe.ts";
import { asListed, blank, listedTargets } from "./unplanned.ts";

/** A look at one endpoint, of which nothing is recorded. */
export interface Looked {
  probe: Probe;
  method: NonNullable<Claims["method"]>;
  /** The 402 as it was received; null when there was none. */
  answer402: Answer402 | null;
  /** Url of the seller's document that lists this endpoint now, and the listing's defects; null when there is none. */
  listing: { url: string; defects: BodyOf<"listing">["defects"] } | null;
}

/** Deadline for each of the seller's documents, ms: a client waits for the look. */
const DOCUMENT_MS = 5_000;
/** Most rows of a document that are read, and the longest time for them, ms. */
const MAX_ROWS = 2_000;
const ROWS_MS = 40_000;

type Asked = Pick<BodyOf<"ask">, "cap" | "normalised_url" | "method">;

/** What the seller's own document lists for this url now. */
async function ownListing(tools: ProbeTools, asked: Asked, clock: Clock) {
  const origin = originOf(asked.normalised_url);
  const hurried = withRequestFields(tools.egress, { deadlineMs: DOCUMENT_MS });
  const { documents } = await readSellerDocuments(hurried, origin, tools.reader);
  for (const { url, listed } of documents) {
    const base = listed.base ? { base: listed.base } : {};
    const from: Source = { name: url, ownOrigin: origin, ...base, validate: hurried.validate };
    const until = clock.monotonic() + ROWS_MS;
    for await (const { row, read } of readRows(tools, listed.items.flatMap(expand).slice(0, MAX_ROWS), from)) {
      const taken = settleClaim(read, row, from, tools.rail);
      if ("claim" in taken && listedTargets(asked, [taken.claim]).length > 0)
        return { document: url, claim: taken.claim };
      if (clock.monotonic() > until) break;
    }
  }
  return null;
}

/**
 * Makes one free handshake now, as the recorded ones are made, and compares it with what the seller's own document lists now.
 * Nothing is appended to the log. Never throws for what the stranger does.
 * @param method null: the listed one; where none is listed, the one that is found
 */
export async function lookOnce(
  tools: ProbeTools,
  url: string,
  method: Claims["method"],
  clock: Clock,
): Promise<Looked> {
  const asked: Asked = { cap: capId(method ?? "GET", url), normalised_url: url, method };
  const own = await ownListing(tools, asked, clock);
  const one = own
    ? listedTargets(asked, [own.claim])[0]!
    : asListed(asked.cap, url, method ?? "GET", blank(url, method), false);
  let answer402: Answer402 | null = null;
  const hearing = withRequestFields(tools.egress, {});
  hearing.fetch = async (request) => {
    const result = await tools.egress.fetch(request);
    const isTerms = request.profile === "handshake" && result.outcome === "answered" && result.status === 402;
    if (isTerms) answer402 = { headers: result.headers, body: result.body };
    return result;
  };
  const { seen, found } = await probeByMethod({ ...tools, egress: hearing }, one, clock);
  return {
    probe: found?.seen ?? seen,
    method: found?.one.method ?? (one.method as Looked["method"]),
    answer402,
    listing: own ? { url: own.document, defects: own.claim.body.defects } : null,
  };
}
