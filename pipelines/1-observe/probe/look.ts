import type { Clock } from "../../../infra/clock.ts";
import { withRequestFields } from "../../../infra/egress/egress.ts";
import { parseUrl } from "../../../infra/url.ts";
import type { BodyOf, Claims } from "../../record/bodies.ts";
import { capId } from "../../record/ids.ts";
import { clean } from "../../record/json.ts";
import type { Answer402 } from "../../record/terms/entries.ts";
import { completeClaim, type Source, withFoundMethod } from "../listings/claims.ts";
import { readRows, splitMethods } from "../listings/intake.ts";
import { readSellerDocuments } from "../listings/sources.ts";
import type { Reader } from "../reading/reader.ts";
import type { AskedTerms, OfferList } from "../terms/terms.ts";
import { originOf } from "../urls.ts";
import { probeByMethod } from "./methods.ts";
import type { Probe, ProbeDeps } from "./probe.ts";
import { createBlankClaims, createListedCap, findListedTargets } from "./unplanned.ts";

/** The result of probing one endpoint without recording anything. */
export interface LiveProbeResult {
  probe: Probe;
  method: NonNullable<Claims["method"]>;
  /** The 402 as it was received; null when there was none. */
  answer402: Answer402 | null;
  /** Target of a redirect, as a whole url where it is one; null when the endpoint answered no redirect. */
  redirectsTo: string | null;
  /** The offers of the 402 in their order, as a rail would sign them; null for an offer that is not valid. */
  payables: OfferList["payables"];
  /** Url of the seller's document that lists this endpoint now, and the listing's defects; null when there is none. */
  listing: { url: string; defects: BodyOf<"listing">["defects"] } | null;
}

/** Deadline for each of the seller's documents, ms. It is short, since a client waits for the result. */
const DOCUMENT_TIMEOUT_MS = 5_000;
/** Largest number of rows of a document that are read. */
const MAX_ROWS = 2_000;
/** Longest time for reading the rows of a document, ms. */
const ROWS_TIMEOUT_MS = 40_000;

type AskedEndpoint = Pick<BodyOf<"ask">, "cap" | "normalised_url" | "method">;

/** Finds the current listing of this url in the seller's own documents; null if there is none. */
async function findOwnListing(tools: ProbeDeps, endpoint: AskedEndpoint, clock: Clock) {
  const origin = originOf(endpoint.normalised_url);
  const hurriedEgress = withRequestFields(tools.egress, { deadlineMs: DOCUMENT_TIMEOUT_MS });
  const { documents } = await readSellerDocuments(hurriedEgress, origin, tools.reader);
  for (const { url, listing } of documents) {
    const base = listing.base ? { base: listing.base } : {};
    const source: Source = { name: url, ownOrigin: origin, ...base, validate: hurriedEgress.validate };
    const deadline = clock.monotonic() + ROWS_TIMEOUT_MS;
    for await (const { row, read } of readRows(tools, listing.items.flatMap(splitMethods).slice(0, MAX_ROWS), source)) {
      const completed = completeClaim(read, row, source, tools.rail);
      if ("claim" in completed) {
        // Nothing of this is recorded, so a row without a method may be compared under the method of the request.
        const claim = endpoint.method === null ? completed.claim : withFoundMethod(completed.claim, endpoint.method);
        if (findListedTargets(endpoint, [claim]).length > 0) return { document: url, claim };
      }
      if (clock.monotonic() > deadline) break;
    }
  }
  return null;
}

/** Longest target of a redirect that is returned, characters. */
const MAX_TARGET = 300;

function redirectTargetOf(
  url: string,
  { status, headers: { location } }: { status: number; headers: Record<string, string> },
): string | null {
  if (status < 300 || status >= 400 || !location) return null;
  return clean(parseUrl(location, url)?.href ?? location, MAX_TARGET);
}

/**
 * Makes one handshake (an exchange without payment) now, in the way that recorded handshakes are made, and compares
 * it with the seller's own current listing. Nothing is appended to the log. Never throws for anything that the seller
 * does.
 * @param method null to use the listed method, or if none is listed to find one by probing
 */
export async function probeLive(
  tools: ProbeDeps,
  url: string,
  method: Claims["method"],
  clock: Clock,
): Promise<LiveProbeResult> {
  const askedEndpoint: AskedEndpoint = { cap: capId(method ?? "GET", url), normalised_url: url, method };
  const sellerListing = await findOwnListing(tools, askedEndpoint, clock);
  const endpoint = sellerListing
    ? findListedTargets(askedEndpoint, [sellerListing.claim])[0]!
    : createListedCap(askedEndpoint.cap, url, method ?? "GET", createBlankClaims(url, method), false);
  let answer402: Answer402 | null = null;
  /** Target of the last redirect, by the method of the request; null where the last answer was none. */
  const redirectsTo = new Map<string, string | null>();
  const capturingEgress = withRequestFields(tools.egress, {});
  capturingEgress.fetch = async (request) => {
    const result = await tools.egress.fetch(request);
    const isTerms = request.profile === "handshake" && result.outcome === "answered" && result.status === 402;
    if (isTerms) answer402 = { headers: result.headers, body: result.body };
    if (request.profile === "handshake" && result.outcome === "answered")
      redirectsTo.set(request.method, redirectTargetOf(request.url, result));
    return result;
  };
  let payables: OfferList["payables"] = [];
  const capturingReader: Reader = {
    async ask(name, argument) {
      const result = await tools.reader.ask(name, argument);
      if (name === "terms") payables = result.ok ? (result.value as AskedTerms).payables : [];
      return result;
    },
  };
  const { probe: firstProbe, second: methodProbe } = await probeByMethod(
    { ...tools, egress: capturingEgress, reader: capturingReader },
    endpoint,
    clock,
  );
  const chosenMethod = methodProbe?.endpoint.method ?? (endpoint.method as LiveProbeResult["method"]);
  return {
    probe: methodProbe?.probe ?? firstProbe,
    method: chosenMethod,
    answer402,
    redirectsTo: redirectsTo.get(chosenMethod ?? "GET") ?? null,
    payables,
    listing: sellerListing ? { url: sellerListing.document, defects: sellerListing.claim.body.defects } : null,
  };
}
