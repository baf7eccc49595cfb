import type { Clock } from "../../../infra/clock.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import type { Claims } from "../../record/bodies.ts";
import { capId } from "../../record/ids.ts";
import type { ListedCap } from "../../record/memory.ts";
import type { Method } from "../../record/vocabulary.ts";
import { type Probe, type ProbeTools, probe } from "./probe.ts";
import { requestOf } from "./request.ts";

/** Methods that are tried where nobody named one, in this order. DELETE is sent only where a listing names it. */
const TRIED: readonly Method[] = ["POST", "PUT", "PATCH"];

/**
 * Is GET only our assumption? So it is for an endpoint whose listing names no method, until a 402 has been seen there. An
 * endpoint without a listing has claims that name none either.
 */
export const isMethodAssumed = (one: ListedCap): boolean =>
  one.tool === null && one.method === "GET" && one.claims.method === null && one.lastAsked == null;

/** The same endpoint by another method, which is another capability. */
export function byMethod(one: ListedCap, method: Method): ListedCap {
  const named = <C extends Claims | null>(claims: C): C => (claims === null ? claims : { ...claims, method });
  return {
    ...one,
    cap: capId(method, one.url),
    method,
    claims: named(one.claims),
    sellerClaims: named(one.sellerClaims),
  };
}

/** What `Allow` (RFC 9110 section 10.2.1) names of the methods that are tried; POST where it names none or is missing. */
async function candidate(egress: Egress, url: string): Promise<Method> {
  const result = await egress.fetch({
    url,
    method: "OPTIONS",
    headers: { accept: "application/json" },
    profile: "handshake",
  });
  const allow = result.outcome === "answered" ? (result.headers.allow ?? "").slice(0, 1000) : "";
  const allowed = allow.split(",").map((name) => name.trim().toUpperCase());
  return TRIED.find((method) => allowed.includes(method)) ?? "POST";
}

/** A probe, and the probe by the method that the endpoint turned out to take, if that is another. */
export interface ProbedByMethod {
  one: ListedCap;
  seen: Probe;
  found: { one: ListedCap & { method: Method }; seen: Probe } | null;
}

/**
 * Probes an endpoint as `probe` does. Where its method is assumed and GET meets no 402, asks by OPTIONS which methods it
 * allows and probes once more, by POST as a rule, with the listed input or an empty JSON object. If that meets a 402, the
 * method is found, and the first probe was our mistake; a 405 without a method found is too, because nobody said which one
 * to use. Any other status stays as it was seen.
 * @throws what `signal` aborts with
 */
export async function probeByMethod(
  tools: ProbeTools,
  one: ListedCap,
  clock: Clock,
  relist?: () => Promise<Claims | null>,
): Promise<ProbedByMethod> {
  const seen = await probe(tools, requestOf(one, null, null).request, one.sellerClaims, clock, relist);
  const { state, status } = seen.body;
  // At most once for each endpoint, unless the server says that it is the method that is wrong.
  const isSought = isMethodAssumed(one) && (status === 405 || one.firstSeen === null);
  if (!isSought || (state !== "status" && state !== "free")) return { one, seen, found: null };
  const method = await candidate(tools.egress, one.url);
  tools.signal?.throwIfAborted();
  const other = { ...byMethod(one, method), method };
  const second = await probe(tools, requestOf(other, null, null).request, other.sellerClaims, clock, relist);
  if (second.read?.readable) {
    const says = `no listing names a method: GET was a guess, and the endpoint takes ${method}`;
    return { one, seen: excused(seen, says), found: { one: other, seen: second } };
  }
  if (status !== 405) return { one, seen, found: null };
  return { one, seen: excused(seen, "no listing names a method, and neither GET nor POST is the one"), found: null };
}

/** The probe as our own mistake, of which nothing is held against the seller. */
export function excused(seen: Probe, says: string): Probe {
  return { ...seen, body: { ...seen.body, live: false, honest: null, fault: "ours", differs: [], says } };
}
