import type { Clock } from "../../../infra/clock.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import type { Claims } from "../../record/bodies.ts";
import { capId } from "../../record/ids.ts";
import type { ListedCap } from "../../record/memory.ts";
import type { Method } from "../../record/vocabulary.ts";
import { type Probe, type ProbeTools, probe } from "./probe.ts";
import { requestOf } from "./request.ts";

/**
 * HTTP methods that are tried, in this order, where no listing names one. DELETE is sent only where a listing names it.
 */
const TRIED_METHODS: readonly Method[] = ["POST", "PUT", "PATCH"];

/** Is GET only our assumption? It is for an endpoint without a listed method, until GET has got a 402 there. */
export const isMethodAssumed = (one: ListedCap): boolean =>
  one.tool === null && one.method === "GET" && one.claims.method === null && one.lastAsked == null;

/** The endpoint with another method, which makes it another capability. */
export function withMethod(one: ListedCap, method: Method): ListedCap {
  const named = <C extends Claims | null>(claims: C): C => (claims === null ? claims : { ...claims, method });
  return {
    ...one,
    cap: capId(method, one.url),
    method,
    claims: named(one.claims),
    sellerClaims: named(one.sellerClaims),
  };
}

/**
 * Asks by OPTIONS for a method to try: the first of {@link TRIED_METHODS} in header `Allow` (RFC 9110 section 10.2.1);
 * POST where it names none.
 */
async function askAllowedMethod(egress: Egress, url: string): Promise<Method> {
  const result = await egress.fetch({
    url,
    method: "OPTIONS",
    headers: { accept: "application/json" },
    profile: "handshake",
  });
  const allow = result.outcome === "answered" ? (result.headers.allow ?? "").slice(0, 1000) : "";
  const allowed = allow.split(",").map((name) => name.trim().toUpperCase());
  return TRIED_METHODS.find((method) => allowed.includes(method)) ?? "POST";
}

/** A probe and, where another method turned out to be right, the second probe with that method. */
export interface ProbedByMethod {
  one: ListedCap;
  seen: Probe;
  found: { one: ListedCap & { method: Method }; seen: Probe } | null;
}

/**
 * Probes an endpoint as `probe` does. If its method is only assumed and GET gets no 402, it asks by OPTIONS which
 * methods are allowed and probes once more, usually by POST, with the listed input or an empty JSON object. If the
 * second probe gets a 402, the method is found, and the first probe counts as our own mistake. A 405 also counts as our
 * mistake where no method is found, since no listing named one. Any other status stays as it was.
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
  // The search is made once for each endpoint, and again only if the server answers that the method is wrong (405).
  const isSought = isMethodAssumed(one) && (status === 405 || one.firstSeen === null);
  if (!isSought || (state !== "status" && state !== "free")) return { one, seen, found: null };
  const method = await askAllowedMethod(tools.egress, one.url);
  tools.signal?.throwIfAborted();
  const other = { ...withMethod(one, method), method };
  const second = await probe(tools, requestOf(other, null, null).request, other.sellerClaims, clock, relist);
  if (second.read?.readable) {
    const says = `no listing names a method: GET was a guess, and the endpoint takes ${method}`;
    return { one, seen: excuseProbe(seen, says), found: { one: other, seen: second } };
  }
  if (status !== 405) return { one, seen, found: null };
  return {
    one,
    seen: excuseProbe(seen, "no listing names a method, and neither GET nor POST is the one"),
    found: null,
  };
}

/** Marks a probe as our own mistake, so that nothing in it counts against the seller. */
export function excuseProbe(seen: Probe, says: string): Probe {
  return { ...seen, body: { ...seen.body, live: false, honest: null, fault: "ours", differs: [], says } };
}
