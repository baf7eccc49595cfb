import type { Clock } from "../../../infra/clock.ts";
import { forEachConcurrent } from "../../../infra/concurrency.ts";
import { withRequestFields } from "../../../infra/egress/egress.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import type { BodyOf, Claims } from "../../record/bodies.ts";
import type { ListedCap } from "../../record/memory.ts";
import { blockOf, blockStart } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import type { METHODS, Method } from "../../record/vocabulary.ts";
import type { ListedClaim } from "../listings/claims.ts";
import { ASKS, HostQueue } from "../queue.ts";
import { createProbeRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { originOf, reachesListed } from "../urls.ts";
import { type ProbedByMethod, probeByMethod } from "./methods.ts";
import type { Probe, ProbeDeps } from "./probe.ts";

/** What was done for an ask (a client's request to probe a url). */
export interface AskReport {
  /** The capabilities (endpoints) that were probed, with the state of each handshake (exchange without payment). */
  probed: { cap: string; state: Probe["body"]["state"] }[];
  /** Number of new listings that were recorded. */
  listings: number;
}

/** Makes the claims of an endpoint about which only the address is known. */
export const createBlankClaims = (url: string, method: Claims["method"]): Claims => ({
  url,
  method,
  tool: null,
  description: null,
  class: "any",
  offers: [],
  fixed_price: false,
  example: null,
  output_mime: null,
});

/** The current listing of an endpoint (sql/queries/listings, current). `own`: is it the seller's own listing? */
export type CurrentListing = Pick<ListedCap, "cap" | "url" | "method" | "tool" | "claims"> & { own: boolean };

/** Reads the current listings of some endpoints, by capability. Endpoints that are not listed are left out. */
export async function readCurrentListings(
  lake: Pick<Lake, "all">,
  caps: readonly string[],
): Promise<Map<string, CurrentListing>> {
  if (caps.length === 0) return new Map();
  const rows = await lake.all<CurrentRow>(sql("queries/listings:current"), { caps: JSON.stringify(caps) });
  return new Map(rows.map((row) => [row.cap, parseCurrentListing(row)]));
}

/** A row of sql/queries/listings, current. Its claims are JSON text that was validated before it was stored. */
export type CurrentRow = Omit<CurrentListing, "claims"> & { claims: string };
export const parseCurrentListing = (row: CurrentRow): CurrentListing => ({
  ...row,
  claims: JSON.parse(row.claims) as Claims,
});

/** Converts a current listing to the form of a planned endpoint, without the history of its calls. */
export const toListedCap = ({ cap, url, method, tool, claims, own }: CurrentListing): ListedCap => ({
  ...createListedCap(cap, url, method, claims, own),
  tool,
});

/** Makes the description of an endpoint that is in no plan, in the form that endpoints of a plan have. */
export function createListedCap(cap: string, url: string, method: string, claims: Claims, isOwn: boolean): ListedCap {
  return {
    cap,
    url,
    method,
    tool: null,
    claims,
    sellerListing: null,
    standing: [],
    sellerClaims: isOwn ? claims : null,
    firstSeen: null,
    paidBlocks: 0,
    retest: { failing: false, passes: 0 },
    lastPrice: null,
    lastPayTo: null,
    lastTried: null,
  };
}

/** Returns the method of a listed endpoint's id: the method that its listing names, else the method that is assumed. */
const methodOfListing = ({ method, input_in }: Claims): Method => method ?? (input_in === "body" ? "POST" : "GET");

/**
 * Returns the endpoints that the seller's own listing names for the url and the method of an ask; of any HTTP method if
 * the ask names none. Only an endpoint that the asked request reaches is returned, since anybody may ask, and the
 * result of the probe is recorded under the endpoint's id.
 */
export function findListedTargets(
  ask: Pick<BodyOf<"ask">, "normalised_url" | "method">,
  claims: readonly ListedClaim[],
): ListedCap[] {
  const matches = ({ body }: ListedClaim): boolean =>
    body.seller_controlled &&
    body.claims.tool === null &&
    reachesListed(body.normalised_url, ask.normalised_url) &&
    (ask.method === null || methodOfListing(body.claims) === ask.method);
  return claims.filter(matches).map(({ cap, body }) =>
    // A url template keeps its own id, but is probed at the concrete url of the ask.
    createListedCap(cap, ask.normalised_url, methodOfListing(body.claims), body.claims, true),
  );
}

/** The dependencies of an unplanned probe. */
export type UnplannedDeps = ProbeDeps & Pick<Tools, "recorder" | "intake">;

/** A recorded probe. `eventId` is the id of the handshake's record. */
type RecordedProbe = Probe & { endpoint: ListedCap; eventId: string };

/** Makes and records one unplanned probe, and a second probe with another method if the listing names no method. */
async function probeAndRecord(tools: UnplannedDeps, endpoint: ListedCap, clock: Clock): Promise<RecordedProbe[]> {
  const { probe: firstProbe, second: methodProbe } = await probeByMethod(tools, endpoint, clock);
  const firstRecorded = await recordHandshake(tools, endpoint, firstProbe, clock);
  // No listing is made from the 402 if the seller lists the endpoint itself. The seller's listing may be a url
  // template, and the concrete url would be wrong under the template's id.
  if (firstProbe.read?.readable && !endpoint.sellerClaims && endpoint.tool === null) {
    await tools.intake.recordFrom402(
      endpoint.cap,
      endpoint.url,
      endpoint.method as Claims["method"],
      firstProbe.read,
      clock,
    );
  }
  return methodProbe === null ? [firstRecorded] : [firstRecorded, await recordFoundMethod(tools, methodProbe, clock)];
}

/**
 * Records a probe with a method that was found, makes a listing from its 402, and tells the intake to remember the
 * method.
 */
export async function recordFoundMethod(
  tools: Pick<Tools, "recorder" | "intake">,
  { endpoint, probe: methodProbe }: NonNullable<ProbedByMethod["second"]>,
  clock: Clock,
): Promise<RecordedProbe> {
  const recorded = await recordHandshake(tools, endpoint, methodProbe, clock);
  tools.intake.rememberMethod(endpoint.url, endpoint.method);
  if (methodProbe.read)
    await tools.intake.recordFrom402(endpoint.cap, endpoint.url, endpoint.method, methodProbe.read, clock);
  return recorded;
}

/** Records an unplanned handshake under the slot (block and minute) of the current time. */
async function recordHandshake(
  tools: Pick<Tools, "recorder">,
  endpoint: ListedCap,
  probed: Probe,
  clock: Clock,
): Promise<RecordedProbe> {
  const at = clock.now();
  const block = blockOf(at);
  const minute = Math.floor((at.getTime() - blockStart(block).getTime()) / 60_000);
  // The record includes the address, since an endpoint that was only asked for has no listing in its partition. A tool
  // is always listed.
  const address =
    endpoint.tool === null ? { url: endpoint.url, method: endpoint.method as (typeof METHODS)[number] } : {};
  const body = { ...address, ...probed.body };
  const [eventId] = await tools.recorder.append([
    createProbeRow(endpoint.cap, { block, minute }, "asked", { ...probed, body }, at),
  ]);
  return { ...probed, endpoint, eventId: eventId! };
}

const toProbed = ({ endpoint, body }: RecordedProbe) => ({ cap: endpoint.cap, state: body.state });

/** Largest number of listed endpoints that one ask probes: the HTTP methods of one url. */
const MAX_TARGETS = 5;

/**
 * Probes the url of an ask: reads the seller's own listing of that origin, then probes once with the listed method and
 * example, or without a listing with the method of the ask. If neither names a method, one is found by probing.
 */
export async function probeAsk(allTools: Tools, ask: BodyOf<"ask">, clock: Clock): Promise<AskReport> {
  const tools = { ...allTools, egress: withRequestFields(allTools.egress, { pool: ASKS }) };
  const report: AskReport = { probed: [], listings: 0 };
  const { normalised_url: url } = ask;
  if (!tools.egress.validate(url).ok) return report;
  const sellerReport = await tools.intake.readSeller(originOf(url), clock, tools.egress);
  report.listings = sellerReport.appended;
  const targets = findListedTargets(ask, sellerReport.claims).slice(0, MAX_TARGETS);
  if (targets.length === 0) {
    const method = ask.method ?? "GET";
    targets.push(createListedCap(ask.cap, url, method, createBlankClaims(url, ask.method), false));
  }
  for (const endpoint of targets) report.probed.push(...(await probeAndRecord(tools, endpoint, clock)).map(toProbed));
  return report;
}

/** Probes a listed endpoint once, with the method, example and tool of its listing. */
export async function probeCurrentListing(allTools: Tools, listing: CurrentListing, clock: Clock): Promise<AskReport> {
  const tools = { ...allTools, egress: withRequestFields(allTools.egress, { pool: ASKS }) };
  const endpoint = tools.intake.withSellerListing(toListedCap(listing));
  if (!tools.egress.validate(endpoint.url).ok) return { probed: [], listings: 0 };
  return { probed: (await probeAndRecord(tools, endpoint, clock)).map(toProbed), listings: 0 };
}

/** The result of one free handshake, or the reason why there was none. */
export interface ProbeReport {
  /** Id of the endpoint. */
  capability_id: string;
  method: string;
  url: string;
  /** State of the handshake; `skipped` for an MCP tool, which cannot be probed by a plain HTTP request. */
  state: string;
  /** HTTP status; null if no answer was received. */
  status: number | null;
  /** Time until the whole answer was received, ms; null if it was not measured. */
  latency_ms: number | null;
  /** Payment protocols of the 402. */
  protocols: string[];
  /** The price that our wallets would pay, or null. */
  price: string | null;
  /** Address to which the 402 asks to pay, or null. */
  pay_to: string | null;
  /** Codes of the defects of the 402. */
  defects: string[];
  /** Event id of the handshake in the log. */
  record_id: string | null;
  /**
   * Explanation of `state` as in the handshake's record: the status or fault of the exchange, why terms could not be
   * read, that our own event loop stalled, or that the method was our guess; for `skipped`, why. Absent if there is
   * none.
   */
  says?: string;
}

const reportSkippedTool = (cap: string, url: string, method: string): ProbeReport => ({
  capability_id: cap,
  method,
  url,
  state: "skipped",
  status: null,
  latency_ms: null,
  protocols: [],
  price: null,
  pay_to: null,
  defects: [],
  record_id: null,
  says: "a tool of an MCP server is probed by plan, in a session",
});

/**
 * Largest number of probes that are queued at once. It is large, so that one host with many endpoints does not fill the
 * queue.
 */
const MAX_QUEUED_PROBES = 5_000;

/**
 * Probes every endpoint of these claims once, without a plan and without paying: hosts in parallel, one call at a time
 * for each host. Each handshake is durable before `onProbe` is called.
 * @param onProbe called when each probe has ended
 * @throws NotConfirmed when the log does not confirm a record; then no further endpoint is probed
 */
export async function probeClaims(
  tools: UnplannedDeps,
  claims: readonly ListedClaim[],
  clock: Clock,
  hostsAtOnce: number,
  onProbe: (report: ProbeReport) => void,
): Promise<void> {
  const byCap = new Map(claims.map((claim) => [claim.cap, claim]));
  const queue = new HostQueue(hostsAtOnce, MAX_QUEUED_PROBES);
  await forEachConcurrent([...byCap.values()], MAX_QUEUED_PROBES, async ({ cap, body }) => {
    const { claims: listedClaims, normalised_url: url } = body;
    const method = methodOfListing(listedClaims);
    if (listedClaims.tool !== null) return onProbe(reportSkippedTool(cap, url, method));
    const endpoint = createListedCap(cap, url, method, listedClaims, body.seller_controlled);
    const recorded = await queue.run(hostOf(url), () => probeAndRecord(tools, endpoint, clock));
    const { endpoint: probed, body: handshake, eventId } = recorded.at(-1)!;
    onProbe({
      capability_id: probed.cap,
      method: probed.method,
      url,
      state: handshake.state,
      status: handshake.status,
      latency_ms: handshake.latency_ms,
      protocols: handshake.terms?.protocols ?? [],
      price: handshake.price,
      pay_to: handshake.pay_to,
      defects: (handshake.terms?.defects ?? []).map(({ defect }) => defect),
      record_id: eventId,
      ...(handshake.says === undefined ? {} : { says: handshake.says }),
    });
  });
}
