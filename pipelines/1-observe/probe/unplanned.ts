import type { Clock } from "../../../infra/clock.ts";
import { forEachConcurrent } from "../../../infra/concurrency.ts";
import { withRequestFields } from "../../../infra/egress/egress.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import type { BodyOf, Claims } from "../../record/bodies.ts";
import type { ListedCap } from "../../record/memory.ts";
import { blockOf, blockStart } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import type { METHODS } from "../../record/vocabulary.ts";
import type { ListedClaim } from "../listings/claims.ts";
import { ASKS, HostQueue } from "../queue.ts";
import { probeRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { originOf, sameResource } from "../urls.ts";
import { type ProbedByMethod, probeByMethod } from "./methods.ts";
import type { Probe, ProbeTools } from "./probe.ts";

export interface AskReport {
  /** Capabilities that were probed, and the state of each handshake. */
  probed: { cap: string; state: Probe["body"]["state"] }[];
  /** Listings that were new and recorded. */
  listings: number;
}

/** Claims of an endpoint of which only the address is known. */
export const blank = (url: string, method: Claims["method"]): Claims => ({
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

/** The current listing of an endpoint (sql/queries/listings, current). `own`: it is the seller's own. */
export type CurrentListing = Pick<ListedCap, "cap" | "url" | "method" | "tool" | "claims"> & { own: boolean };

/** The current listings of some endpoints, by capability; those that are not listed are left out. */
export async function currentListings(
  lake: Pick<Lake, "all">,
  caps: readonly string[],
): Promise<Map<string, CurrentListing>> {
  if (caps.length === 0) return new Map();
  const rows = await lake.all<CurrentRow>(sql("queries/listings:current"), { caps: JSON.stringify(caps) });
  return new Map(rows.map((row) => [row.cap, listingFrom(row)]));
}

/** A row of that query. Its claims are JSON text that was validated before it was committed. */
export type CurrentRow = Omit<CurrentListing, "claims"> & { claims: string };
export const listingFrom = (row: CurrentRow): CurrentListing => ({ ...row, claims: JSON.parse(row.claims) as Claims });

/** A current listing in the form of a planned endpoint, without the history of its calls. */
export const listedAs = ({ cap, url, method, tool, claims, own }: CurrentListing): ListedCap => ({
  ...asListed(cap, url, method, claims, own),
  tool,
});

/** An endpoint outside every plan, in the form of a planned one. */
export function asListed(cap: string, url: string, method: string, claims: Claims, own: boolean): ListedCap {
  return {
    cap,
    url,
    method,
    tool: null,
    claims,
    sellerListing: null,
    standing: [],
    sellerClaims: own ? claims : null,
    firstSeen: null,
    paidBlocks: 0,
    retest: { failing: false, passes: 0 },
    lastPrice: null,
    lastPayTo: null,
    lastTried: null,
  };
}

/** The endpoints that the seller's own listing has for the asked url, with any verb where none was asked for. */
export function listedTargets(
  ask: Pick<BodyOf<"ask">, "normalised_url" | "method">,
  claims: readonly ListedClaim[],
): ListedCap[] {
  const fits = ({ body }: ListedClaim): boolean =>
    body.seller_controlled &&
    body.claims.tool === null &&
    sameResource(body.normalised_url, ask.normalised_url) &&
    (ask.method === null || body.claims.method === null || body.claims.method === ask.method);
  return claims.filter(fits).map(({ cap, body }) => {
    const method = body.claims.method ?? ask.method ?? "GET";
    // A template has its own id, and is probed at the concrete url that was asked for.
    return asListed(cap, ask.normalised_url, method, body.claims, true);
  });
}

/** What a probe outside every plan needs. */
export type ProbeOnce = ProbeTools & Pick<Tools, "recorder" | "intake">;

/** A recorded probe; `eventId` is the handshake's. */
type Recorded = Probe & { one: ListedCap; eventId: string };

/** Probes once outside every plan, and by another method where the listing names none; records what was seen. */
async function probeAsked(tools: ProbeOnce, one: ListedCap, clock: Clock): Promise<Recorded[]> {
  const { seen, found } = await probeByMethod(tools, one, clock);
  const first = await recordHandshake(tools, one, seen, clock);
  // What the seller lists itself needs no listing made from the 402; under a template's id the concrete url would be wrong.
  if (seen.read?.readable && !one.sellerClaims && one.tool === null) {
    await tools.intake.note402(one.cap, one.url, one.method as Claims["method"], seen.read, clock);
  }
  return found === null ? [first] : [first, await recordAsked(tools, found, clock)];
}

/** Records a probe by a method that was found, lists the endpoint by its 402, and has the intake remember the method. */
export async function recordAsked(
  tools: Pick<Tools, "recorder" | "intake">,
  { one, seen }: NonNullable<ProbedByMethod["found"]>,
  clock: Clock,
): Promise<Recorded> {
  const recorded = await recordHandshake(tools, one, seen, clock);
  tools.intake.foundMethod(one.url, one.method);
  if (seen.read) await tools.intake.note402(one.cap, one.url, one.method, seen.read, clock);
  return recorded;
}

/** Records a handshake outside every plan, under the moment's slot. */
async function recordHandshake(
  tools: Pick<Tools, "recorder">,
  one: ListedCap,
  seen: Probe,
  clock: Clock,
): Promise<Recorded> {
  const at = clock.now();
  const block = blockOf(at);
  const minute = Math.floor((at.getTime() - blockStart(block).getTime()) / 60_000);
  // The record holds the address itself: an endpoint that was only asked for has no listing in its partition. A tool is
  // always listed.
  const where = one.tool === null ? { url: one.url, method: one.method as (typeof METHODS)[number] } : {};
  const body = { ...where, ...seen.body };
  const [eventId] = await tools.recorder.append([probeRow(one.cap, { block, minute }, "asked", { ...seen, body }, at)]);
  return { ...seen, one, eventId: eventId! };
}

const asProbed = ({ one, body }: Recorded) => ({ cap: one.cap, state: body.state });

/** Most listed endpoints that one ask probes: the verbs of one url. */
const MAX_TARGETS = 5;

/**
 * Looks at a url somebody asked for: reads the seller's own listing of that origin, then probes once with the listed
 * method and example; without a listing by the asked method. Where neither names one, the method is found.
 */
export async function lookAtAsked(all: Tools, ask: BodyOf<"ask">, clock: Clock): Promise<AskReport> {
  const tools = { ...all, egress: withRequestFields(all.egress, { pool: ASKS }) };
  const report: AskReport = { probed: [], listings: 0 };
  const { normalised_url: url } = ask;
  if (!tools.egress.validate(url).ok) return report;
  const seller = await tools.intake.readSeller(originOf(url), clock, tools.egress);
  report.listings = seller.appended;
  const targets = listedTargets(ask, seller.claims).slice(0, MAX_TARGETS);
  if (targets.length === 0) {
    const method = ask.method ?? "GET";
    targets.push(asListed(ask.cap, url, method, blank(url, ask.method), false));
  }
  for (const one of targets) report.probed.push(...(await probeAsked(tools, one, clock)).map(asProbed));
  return report;
}

/** Looks once at an endpoint that is listed, with the verb, example and tool of its listing. */
export async function lookAtListed(all: Tools, listing: CurrentListing, clock: Clock): Promise<AskReport> {
  const tools = { ...all, egress: withRequestFields(all.egress, { pool: ASKS }) };
  const one = tools.intake.current(listedAs(listing));
  if (!tools.egress.validate(one.url).ok) return { probed: [], listings: 0 };
  return { probed: (await probeAsked(tools, one, clock)).map(asProbed), listings: 0 };
}

/** What one free handshake saw, or why there was none. */
export interface ProbeSeen {
  capability_id: string;
  method: string;
  url: string;
  /** State of the handshake; `skipped` for an MCP tool, which an HTTP probe would tell nothing about. */
  state: string;
  status: number | null;
  latency_ms: number | null;
  protocols: string[];
  /** The price that our rail would pay, or null. */
  price: string | null;
  pay_to: string | null;
  defects: string[];
  /** Event id of the handshake in the log. */
  record_id: string | null;
  says?: string;
}

const skipped = (cap: string, url: string, method: string): ProbeSeen => ({
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
 * Probes that are queued at once: enough that a host with many endpoints does not keep other hosts out of the queue.
 */
const MAX_WAITING = 5_000;

/**
 * Probes every endpoint of these claims once, without a plan and without paying: hosts in parallel, one call at a time
 * for each host. Every handshake is durable before it is reported.
 * @param tell called as each probe ends, in that order
 * @throws NotRecorded when the log does not take a record; nothing more is probed then
 */
export async function probeListed(
  tools: ProbeOnce,
  claims: readonly ListedClaim[],
  clock: Clock,
  hostsAtOnce: number,
  tell: (seen: ProbeSeen) => void,
): Promise<void> {
  const byCap = new Map(claims.map((claim) => [claim.cap, claim]));
  const queue = new HostQueue(hostsAtOnce, MAX_WAITING);
  await forEachConcurrent([...byCap.values()], MAX_WAITING, async ({ cap, body }) => {
    const { claims: said, normalised_url: url } = body;
    const method = said.method ?? (said.input_in === "body" ? "POST" : "GET");
    if (said.tool !== null) return tell(skipped(cap, url, method));
    const one = asListed(cap, url, method, said, body.seller_controlled);
    const recorded = await queue.run(hostOf(url), () => probeAsked(tools, one, clock));
    const { one: probed, body: seen, eventId } = recorded.at(-1)!;
    tell({
      capability_id: probed.cap,
      method: probed.method,
      url,
      state: seen.state,
      status: seen.status,
      latency_ms: seen.latency_ms,
      protocols: seen.terms?.protocols ?? [],
      price: seen.price,
      pay_to: seen.pay_to,
      defects: (seen.terms?.defects ?? []).map(({ defect }) => defect),
      record_id: eventId,
      ...(seen.says === undefined ? {} : { says: seen.says }),
    });
  });
}
