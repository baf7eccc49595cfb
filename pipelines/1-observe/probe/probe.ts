import { type Clock, systemClock } from "../../../infra/clock.ts";
import { decimalsOf, networksOf, type RailCapabilities } from "../../../infra/rails/rails.ts";
import type { BodyOf, Claims, Offer } from "../../record/bodies.ts";
import type { Answer402 } from "../../record/terms/entries.ts";
import { sameAsset, sameNetwork } from "../../record/terms/networks.ts";
import type { DefectCode } from "../../record/vocabulary.ts";
import { clean, hashOf, type Named } from "../json.ts";
import type { ToolExchange } from "../mcp/session.ts";
import { isWall } from "../reading/checks.ts";
import { mergeDeclared, NOTHING } from "../terms/declared.ts";
import { signedOffers } from "../terms/signed.ts";
import { defectsSeen, type ReadTerms, toPay, unreadable } from "../terms/terms.ts";
import {
  type Control,
  type ControlSeen,
  type ExchangeDeps,
  type Exchanged,
  endedByUs,
  exchange,
  STOOD_STILL,
} from "./exchange.ts";
import type { Request } from "./request.ts";

type Handshake = Named<BodyOf<"handshake">>;

/** A handshake that takes longer is not live (verification-method.md section 1). */
const LIVE_MS = 10_000;

/** What a probe saw: `body` and `mcp` are recorded, and `read` is kept for the payment that may follow. */
export interface Probe {
  body: Omit<Handshake, "slot" | "planned">;
  read: ReadTerms | null;
  /** Only for a tool: what an `mcp.probe` holds beside a handshake. */
  mcp?: ToolExchange["seen"];
}

export interface ProbeTools extends ExchangeDeps {
  rail: RailCapabilities;
  control: Control;
  signal?: AbortSignal | undefined;
  /** For a blind call: name of the stock client as which it leaves (stock.ts). */
  stock?: string | undefined;
}

async function ask(tools: ProbeTools, request: Request): Promise<Exchanged> {
  const send = () => exchange(tools, request, { profile: "handshake", signal: tools.signal, stock: tools.stock });
  const first = await send();
  tools.signal?.throwIfAborted();
  // A transport error is retried once, so that one lost packet is no outage. Every other outcome is an answer.
  return first.result.outcome === "transport" ? send() : first;
}

/** Signed offers expire in real time, also where the record's time is simulated. */
const unixNow = (): number => Math.floor(systemClock.now().getTime() / 1000);

interface Outcome {
  state: Handshake["state"];
  live: boolean;
  wall: boolean;
  read: ReadTerms | null;
  /** Is it not live only because it came too late? */
  late: boolean;
  says?: string;
}

/**
 * Reads the terms of a 402 in the reader's thread, which can be stopped. Terms that cannot be read are malformed; that
 * is the seller's fault and counts.
 */
async function termsOf(
  tools: ProbeTools,
  { headers, body }: Answer402,
  { url, tool }: Request,
  mcp: ToolExchange | undefined,
): Promise<{ read: ReadTerms; says?: string }> {
  const kept = ["payment-required", "www-authenticate"].flatMap((name) => {
    const value = headers[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  const answer = { headers: Object.fromEntries(kept), body };
  const { rail } = tools;
  // The terms of a tool name it as `mcp://tool/..`, so they are not compared with the url.
  const asked = await tools.reader.ask("terms", { answer, ownNetwork: networksOf(rail), url: tool ? undefined : url });
  if (!asked.ok) return { read: toPay(unreadable(answer), rail), says: `the terms could not be read: ${asked.says}` };
  if (!mcp) return { read: toPay(asked.value, rail) };
  // A tool's mpp challenges are recorded and not paid.
  const read = toPay(asked.value, {
    canPay: (entry) => mcp.payable && !entry.challenge && rail.canPay(entry),
    decimalsOf: (entry) => decimalsOf(rail, entry),
  });
  const { inputSchema, outputSchema } = mcp.listed ?? {};
  const listed = { ...NOTHING, inputSchema, inputIn: "body" as const, outputSchema };
  return { read: { ...read, declared: mergeDeclared(read.declared, listed) } };
}

async function evaluate(tools: ProbeTools, { result, mcp }: Exchanged, request: Request): Promise<Outcome> {
  const nothing = { live: false, late: false, wall: false, read: null };
  if (result.outcome === "refused") return { ...nothing, state: "unfetchable", says: result.says };
  if (result.outcome !== "answered") return { ...nothing, state: "silent", says: `${result.outcome}: ${result.says}` };
  const inTime = result.totalMs + (mcp?.seen.initialize_ms ?? 0) <= LIVE_MS;
  if (result.status === 402) {
    const { read, says } = await termsOf(tools, result, request, mcp);
    const timed = { live: read.readable && inTime, late: read.readable && !inTime };
    return { state: read.readable ? "asked" : "malformed", ...timed, wall: false, read, ...(says ? { says } : {}) };
  }
  if (isWall(result.status, result.headers, result.body)) return { ...nothing, state: "wall", wall: true };
  if (result.status >= 200 && result.status < 300) return { ...nothing, state: "free", live: inTime, late: !inTime };
  return { ...nothing, state: "status", says: mcp?.says ?? `status ${result.status}` };
}

/**
 * `ours` when no request was sent, when the control call failed too, or when the seller failed by time alone and our
 * own event loop stood still meanwhile; `blocked` for a wall; else null, which leaves it with the seller.
 */
function faultOf(outcome: Outcome, exchanged: Exchanged, control: ControlSeen | null): Handshake["fault"] {
  if (outcome.state === "unfetchable" || control?.ok === false) return "ours";
  if (endedByUs(exchanged) || (outcome.late && exchanged.loop.stoodStill)) return "ours";
  return outcome.wall ? "blocked" : null;
}

/**
 * Makes one free handshake: sends the request with the declared verb and example, reads the terms and compares them
 * with the seller's own listing. Never throws for what the stranger does; rejects when `signal` aborts.
 * @param relist reads the seller's listing again; called only when the 402 differs from the listing that we know
 */
export async function probe(
  tools: ProbeTools,
  request: Request,
  sellerClaims: Claims | null,
  clock: Clock,
  relist?: () => Promise<Claims | null>,
): Promise<Probe> {
  const exchanged = await ask(tools, request);
  tools.signal?.throwIfAborted();
  const { result, mcp, loop } = exchanged;
  const outcome = await evaluate(tools, exchanged, request);
  const { read } = outcome;
  const timed = result.outcome === "answered" && !loop.stoodStill;
  const says = [...(outcome.says === undefined ? [] : [outcome.says]), ...(loop.stoodStill ? [STOOD_STILL] : [])];
  const control = outcome.live || outcome.state === "unfetchable" ? null : await tools.control.call(clock);
  const promisedPrice = outcome.state === "free" && (sellerClaims?.offers.length ?? 0) > 0;
  let differs = promisedPrice ? defectsSeen(["no_402"]) : [];
  if (read?.readable) differs = differences(sellerClaims, read);
  if (read?.readable && differs.length > 0 && relist) differs = differences(await relist(), read);
  const signed = read && (await signedOffers({ ...read, extensions: read.context.extensions }, request.url, unixNow()));
  return {
    read,
    ...(mcp ? { mcp: mcp.seen } : {}),
    body: {
      state: outcome.state,
      live: outcome.live,
      honest: read?.readable ? differs.length === 0 : null,
      wall: outcome.wall,
      fault: faultOf(outcome, exchanged, control),
      status: result.status ?? null,
      latency_ms: timed ? Math.round(result.totalMs) : null,
      price: read?.price ?? null,
      pay_to: read?.payTo ?? read?.terms.offers.find((offer) => offer.pay_to !== null)?.pay_to ?? null,
      terms: read?.terms ?? null,
      differs,
      ...(control ? { control } : {}),
      ...(signed ? { signed_offers: signed } : {}),
      ...(says.length === 0 ? {} : { says: clean(says.join("; "), 2000) }),
    },
  };
}

/** Hex addresses are compared without their checksum's case; other chains' addresses are case-sensitive. */
const form = (address: string): string => (address.startsWith("0x") ? address.toLowerCase() : address);
const same = (a: string | null, b: string | null): boolean => a !== null && b !== null && form(a) === form(b);

/**
 * The offer that a buyer would take: the one that our rail would pay (x402 before mpp, then the cheapest), else the
 * cheapest complete one on a listed network.
 */
function offerTaken(offers: readonly Offer[], listed: readonly Offer[]): Offer | undefined {
  const usable = offers.filter(
    (offer) => offer.amount_atomic !== null && listed.some((one) => sameNetwork(one.network, offer.network)),
  );
  const best = (from: readonly Offer[]): Offer | undefined =>
    from.reduce<Offer | undefined>(
      (least, offer) => (!least || BigInt(offer.amount_atomic!) < BigInt(least.amount_atomic!) ? offer : least),
      undefined,
    );
  const payable = usable.filter((offer) => offer.payable);
  return best(payable.filter((offer) => offer.scheme === "exact")) ?? best(payable) ?? best(usable);
}

/**
 * Compares a 402 with the seller's own listing (verification-method.md section 1, honesty): network, asset, payout
 * address, an amount not above the listed one where the price is fixed, and the schema. What the listing does not name,
 * what is written in another way, and what cannot be decided is no difference (records.md). Listings of third parties
 * are never compared.
 */
export function differences(listed: Claims | null, read: ReadTerms): { defect: string; says: string }[] {
  if (!listed) return [];
  const codes: DefectCode[] = [];
  const schema = read.terms.schema_sha256;
  if (listed.output_schema !== undefined && schema !== null) {
    const own = hashOf(listed.output_schema);
    if (own !== null && own !== schema) codes.push("schema_differs");
  }
  const named = listed.offers.filter((offer) => offer.network !== "");
  if (named.length === 0) return defectsSeen(codes);
  const offer = offerTaken(read.terms.offers, named);
  if (!offer) {
    const asked = read.terms.offers.filter(({ amount_atomic }) => amount_atomic !== null);
    const unknown = asked.some((one) => named.some((other) => sameNetwork(one.network, other.network) === null));
    return defectsSeen(unknown ? codes : [...codes, "network_differs"]);
  }
  const here = named.filter((one) => sameNetwork(one.network, offer.network));
  const isAsset = (one: Offer): boolean | null =>
    one.asset === null || offer.asset === null ? null : sameAsset(offer.network, one.asset, offer.asset);
  if (here.length > 0 && here.every((one) => isAsset(one) === false)) codes.push("asset_differs");
  const payees = here.filter((one) => one.pay_to !== null);
  if (payees.length > 0 && !payees.some((one) => same(one.pay_to, offer.pay_to))) codes.push("pay_to_differs");
  const prices = here.filter((one) => one.amount_atomic !== null && (one.asset === null || isAsset(one) === true));
  const dearest = prices.reduce(
    (most, one) => (BigInt(one.amount_atomic!) > most ? BigInt(one.amount_atomic!) : most),
    0n,
  );
  if (listed.fixed_price && prices.length > 0 && BigInt(offer.amount_atomic!) > dearest) codes.push("price_differs");
  return defectsSeen(codes);
}
