import type { Clock } from "../../../infra/clock.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import type { Claims } from "../../record/bodies.ts";
import { capId } from "../../record/ids.ts";
import type { ListedCap } from "../../record/memory.ts";
import type { Method } from "../../record/vocabulary.ts";
import { type Probe, type ProbeDeps, probe } from "./probe.ts";
import { buildRequest } from "./request.ts";

/** HTTP methods that are tried, in this order, if no listing names one. DELETE is sent only if a listing names it. */
const METHODS_TO_TRY: readonly Method[] = ["POST", "PUT", "PATCH"];

/** Is GET only our assumption? It is if no listing names a method and GET has not got a 402 from the endpoint yet. */
export const isMethodAssumed = (endpoint: ListedCap): boolean =>
  endpoint.tool === null && endpoint.method === "GET" && endpoint.claims.method === null && endpoint.lastAsked == null;

/** Returns the endpoint with another method, which makes it another capability. */
export function withMethod(endpoint: ListedCap, method: Method): ListedCap {
  const withListedMethod = <C extends Claims | null>(claims: C): C =>
    claims === null ? claims : { ...claims, method };
  return {
    ...endpoint,
    cap: capId(method, endpoint.url),
    method,
    claims: withListedMethod(endpoint.claims),
    sellerClaims: withListedMethod(endpoint.sellerClaims),
  };
}

/**
 * Sends OPTIONS to find a method to try: the first of {@link METHODS_TO_TRY} in header `Allow` (RFC 9110 section
 * 10.2.1); POST if it names none of them.
 */
async function findAllowedMethod(egress: Egress, url: string): Promise<Method> {
  const result = await egress.fetch({
    url,
    method: "OPTIONS",
    headers: { accept: "application/json" },
    profile: "handshake",
  });
  const allow = result.outcome === "answered" ? (result.headers.allow ?? "").slice(0, 1000) : "";
  const allowed = allow.split(",").map((name) => name.trim().toUpperCase());
  return METHODS_TO_TRY.find((method) => allowed.includes(method)) ?? "POST";
}

/** A probe and, if another method turned out to be right, the second probe with that method. */
export interface ProbedByMethod {
  endpoint: ListedCap;
  probe: Probe;
  second: { endpoint: ListedCap & { method: Method }; probe: Probe } | null;
}

/**
 * Probes an endpoint as `probe` does. If its method is only assumed and GET gets no 402, it asks by OPTIONS which
 * methods are allowed and probes once more, usually by POST, with the listed input or an empty JSON object. If the
 * second probe gets a 402, the method is found, and the first probe counts as our own mistake. A 405 also counts as our
 * mistake if no method is found, since no listing named one. The result of a probe with any other status is not
 * changed.
 * @throws the reason of `signal` when it aborts
 */
export async function probeByMethod(
  tools: ProbeDeps,
  endpoint: ListedCap,
  clock: Clock,
  rereadListing?: () => Promise<Claims | null>,
): Promise<ProbedByMethod> {
  const firstProbe = await probe(
    tools,
    buildRequest(endpoint, null, null).request,
    endpoint.sellerClaims,
    clock,
    rereadListing,
  );
  const { state, status } = firstProbe.body;
  // The search is made once for each endpoint, and again only if the server answers that the method is wrong (405).
  const mustSearch = isMethodAssumed(endpoint) && (status === 405 || endpoint.firstSeen === null);
  if (!mustSearch || (state !== "status" && state !== "free")) return { endpoint, probe: firstProbe, second: null };
  const method = await findAllowedMethod(tools.egress, endpoint.url);
  tools.signal?.throwIfAborted();
  const otherEndpoint = { ...withMethod(endpoint, method), method };
  const secondProbe = await probe(
    tools,
    buildRequest(otherEndpoint, null, null).request,
    otherEndpoint.sellerClaims,
    clock,
    rereadListing,
  );
  if (secondProbe.read?.readable) {
    const says = `no listing names a method: GET was a guess, and the endpoint takes ${method}`;
    return { endpoint, probe: excuseProbe(firstProbe, says), second: { endpoint: otherEndpoint, probe: secondProbe } };
  }
  if (status !== 405) return { endpoint, probe: firstProbe, second: null };
  return {
    endpoint,
    probe: excuseProbe(firstProbe, `no listing names a method, and neither GET nor ${method} is the one`),
    second: null,
  };
}

/** Marks a probe as our own mistake, so that nothing in it counts against the seller. */
export function excuseProbe(original: Probe, says: string): Probe {
  return { ...original, body: { ...original.body, live: false, honest: null, fault: "ours", differs: [], says } };
}
