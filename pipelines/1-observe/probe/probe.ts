import { isIP } from "node:net";
import { type Clock, systemClock } from "../../../infra/clock.ts";
import { decimalsOf, networksOf, type RailCapabilities } from "../../../infra/rails/rails.ts";
import type { BodyOf, Claims, Offer } from "../../record/bodies.ts";
import type { Answer402 } from "../../record/terms/entries.ts";
import { sameAsset, sameNetwork } from "../../record/terms/networks.ts";
import type { DefectCode } from "../../record/vocabulary.ts";
import { clean, hashOf, type WithoutIndex } from "../json.ts";
import type { PaymentForm } from "../mcp/answers.ts";
import type { ToolExchange } from "../mcp/session.ts";
import { isWall } from "../reading/checks.ts";
import { mergeDeclared, NOTHING_DECLARED } from "../terms/declared.ts";
import { checkSignedOffers } from "../terms/signed.ts";
import { addPayable, createUnreadable, describeDefects, isCheaper, type ReadTerms } from "../terms/terms.ts";
import {
  type ControlCalls,
  type ControlResult,
  didOurStallEndIt,
  type ExchangeDeps,
  type ExchangeResult,
  exchange,
  LOOP_STALLED_TEXT,
} from "./exchange.ts";
import type { Request } from "./request.ts";

type Handshake = WithoutIndex<BodyOf<"handshake">>;

/**
 * Longest time of a handshake (an exchange without payment) that counts as live, ms (verification-method.md section
 * 1).
 */
const MAX_LIVE_MS = 10_000;

/** The result of a probe. `body` and `mcp` are recorded; `read` is used for a payment that may follow. */
export interface Probe {
  body: Omit<Handshake, "slot" | "planned">;
  /** The payment terms of the 402; null if the answer was no 402. */
  read: ReadTerms | null;
  /** Only for a tool: the members that an `mcp.probe` record has besides those of a handshake. */
  mcp?: ToolExchange["recordMembers"];
  /** Only for a tool that demands payment: the form in which its seller takes one, as far as the demand tells. */
  paymentForm?: PaymentForm;
}

export interface ProbeDeps extends ExchangeDeps {
  rail: RailCapabilities;
  control: ControlCalls;
  signal?: AbortSignal | undefined;
  /**
   * Set for a blind call (one that must look like any buyer's): the stock client whose connection and headers it uses
   * (stock.ts).
   */
  stock?: string | undefined;
}

async function sendRequest(tools: ProbeDeps, request: Request): Promise<ExchangeResult> {
  const send = () => exchange(tools, request, { profile: "handshake", signal: tools.signal, stock: tools.stock });
  const first = await send();
  tools.signal?.throwIfAborted();
  // A transport error is retried once, so that one lost packet does not count as an outage. Any other outcome is final.
  return first.result.outcome === "transport" ? send() : first;
}

/** Returns real unix seconds, since signed offers expire in real time, even if the observer's clock is simulated. */
const realUnixSeconds = (): number => Math.floor(systemClock.now().getTime() / 1000);

/** How a handshake ended. `says`: explanation of `state`; absent if `state` alone suffices. */
interface Outcome {
  state: Handshake["state"];
  /** Did a readable 402, or an answer with a 2xx status, arrive in time? */
  live: boolean;
  /** Was the answer a wall (a bot check, 403 or 429)? */
  wall: boolean;
  read: ReadTerms | null;
  /** Is the endpoint not live only because its answer arrived too late? */
  isLate: boolean;
  says?: string;
}

/**
 * Reads the terms of a 402 in the reader's thread, which can be stopped. Terms that cannot be read are malformed, which
 * counts against the seller.
 */
async function readTerms(
  tools: ProbeDeps,
  { headers, body }: Answer402,
  { url, tool }: Request,
  mcp: ToolExchange | undefined,
): Promise<{ read: ReadTerms; says?: string }> {
  const headerEntries = ["payment-required", "www-authenticate"].flatMap((name) => {
    const value = headers[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  const answer = { headers: Object.fromEntries(headerEntries), body };
  const { rail } = tools;
  // The terms of a tool name their resource as `mcp://tool/..`, so they are not compared with the url.
  const readResult = await tools.reader.ask("terms", {
    answer,
    ownNetwork: networksOf(rail),
    url: tool ? undefined : url,
  });
  if (!readResult.ok)
    return {
      read: addPayable(createUnreadable(answer), rail),
      says: `the terms could not be read: ${readResult.says}`,
    };
  if (!mcp) return { read: addPayable(readResult.value, rail) };
  // A tool's mpp challenges are recorded and not paid.
  const read = addPayable(readResult.value, {
    canPay: (entry) => mcp.isPayable && !entry.challenge && rail.canPay(entry),
    decimalsOf: (entry) => decimalsOf(rail, entry),
  });
  const { inputSchema, outputSchema } = mcp.listedTool ?? {};
  const listedSchemas = { ...NOTHING_DECLARED, inputSchema, inputIn: "body" as const, outputSchema };
  return { read: { ...read, declared: mergeDeclared(read.declared, listedSchemas) } };
}

/**
 * Is the host of this url a name, and not an IP address? A name that resolves to an address that is not public counts
 * as silent, since its owner could let it resolve to a public address at any moment.
 */
const isHostName = (url: string): boolean => isIP(new URL(url).hostname.replace(/^\[(.*)\]$/, "$1")) === 0;

async function evaluate(tools: ProbeDeps, { result, mcp }: ExchangeResult, request: Request): Promise<Outcome> {
  const failedOutcome = { live: false, isLate: false, wall: false, read: null };
  const isUnfetchable = result.outcome === "refused" && !(result.reason === "address" && isHostName(request.url));
  if (isUnfetchable) return { ...failedOutcome, state: "unfetchable", says: result.says };
  if (result.outcome !== "answered")
    return { ...failedOutcome, state: "silent", says: `${result.outcome}: ${result.says}` };
  const isInTime = result.totalMs + (mcp?.recordMembers.initialize_ms ?? 0) <= MAX_LIVE_MS;
  if (result.status === 402) {
    const { read, says } = await readTerms(tools, result, request, mcp);
    const timing = { live: read.readable && isInTime, isLate: read.readable && !isInTime };
    return { state: read.readable ? "asked" : "malformed", ...timing, wall: false, read, ...(says ? { says } : {}) };
  }
  if (isWall(result.status, result.headers, result.body)) return { ...failedOutcome, state: "wall", wall: true };
  if (result.status >= 200 && result.status < 300)
    return { ...failedOutcome, state: "free", live: isInTime, isLate: !isInTime };
  return { ...failedOutcome, state: "status", says: mcp?.says ?? `status ${result.status}` };
}

/**
 * Decides whose fault a failure is. `ours`: egress refused the address or could not try it, the control call failed
 * too, or the seller was only too slow while our own event loop was stalled. `blocked`: a wall (bot check, 403, 429).
 * null: it is the seller's fault.
 */
function faultOf(outcome: Outcome, exchanged: ExchangeResult, control: ControlResult | null): Handshake["fault"] {
  if (outcome.state === "unfetchable" || control?.ok === false) return "ours";
  if (didOurStallEndIt(exchanged) || (outcome.isLate && exchanged.loop.stoodStill)) return "ours";
  return outcome.wall ? "blocked" : null;
}

/**
 * Makes one free handshake: sends the request with the declared method and example, reads the terms, and compares them
 * with the seller's own listing. Never throws for anything that the seller does; rejects when `signal` aborts.
 * @param rereadListing reads the seller's listing again; called only when the 402 differs from the listing that we know
 */
export async function probe(
  tools: ProbeDeps,
  request: Request,
  sellerClaims: Claims | null,
  clock: Clock,
  rereadListing?: () => Promise<Claims | null>,
): Promise<Probe> {
  const exchanged = await sendRequest(tools, request);
  tools.signal?.throwIfAborted();
  const { result, mcp, loop } = exchanged;
  const outcome = await evaluate(tools, exchanged, request);
  const { read } = outcome;
  const isTimed = result.outcome === "answered" && !loop.stoodStill;
  const says = [...(outcome.says === undefined ? [] : [outcome.says]), ...(loop.stoodStill ? [LOOP_STALLED_TEXT] : [])];
  const control = outcome.live || outcome.state === "unfetchable" ? null : await tools.control.call(clock);
  const isPriceListed = outcome.state === "free" && (sellerClaims?.offers.length ?? 0) > 0;
  let differs = isPriceListed ? describeDefects(["no_402"]) : [];
  if (read?.readable) differs = compareWithListing(sellerClaims, read);
  if (read?.readable && differs.length > 0 && rereadListing) differs = compareWithListing(await rereadListing(), read);
  const signedOffers =
    read && (await checkSignedOffers({ ...read, extensions: read.context.extensions }, request.url, realUnixSeconds()));
  return {
    read,
    ...(mcp ? { mcp: mcp.recordMembers } : {}),
    ...(mcp?.paymentForm ? { paymentForm: mcp.paymentForm } : {}),
    body: {
      state: outcome.state,
      live: outcome.live,
      honest: read?.readable ? differs.length === 0 : null,
      wall: outcome.wall,
      fault: faultOf(outcome, exchanged, control),
      status: result.status ?? null,
      latency_ms: isTimed ? Math.round(result.totalMs) : null,
      price: read?.price ?? null,
      pay_to: read?.payTo ?? read?.terms.offers.find((offer) => offer.pay_to !== null)?.pay_to ?? null,
      terms: read?.terms ?? null,
      differs,
      ...(control ? { control } : {}),
      ...(signedOffers ? { signed_offers: signedOffers } : {}),
      ...(says.length === 0 ? {} : { says: clean(says.join("; "), 2000) }),
    },
  };
}

/**
 * Returns an address in the form in which it is compared: hex in lower case, since its case is only a checksum; others
 * unchanged.
 */
const toComparableAddress = (address: string): string => (address.startsWith("0x") ? address.toLowerCase() : address);
const isSameAddress = (a: string | null, b: string | null): boolean =>
  a !== null && b !== null && toComparableAddress(a) === toComparableAddress(b);

/**
 * Does an offer state an amount? On the XRP Ledger it may be a decimal number, which is in no atomic units, so that the
 * record holds none.
 */
const hasAmount = ({ amount_atomic, network }: Offer): boolean => amount_atomic !== null || network.startsWith("xrpl:");

/**
 * Returns the offer that a buyer would choose: the one that our wallets would pay (x402 before mpp, then the cheapest),
 * else the cheapest offer with an amount on a listed network.
 */
function chooseComparedOffer(offers: readonly Offer[], listedOffers: readonly Offer[]): Offer | undefined {
  const usableOffers = offers.filter(
    (offer) => hasAmount(offer) && listedOffers.some((one) => sameNetwork(one.network, offer.network)),
  );
  const best = (from: readonly Offer[]): Offer | undefined =>
    from.reduce<Offer | undefined>(
      (cheapest, offer) => (!cheapest || isCheaper(offer, cheapest) ? offer : cheapest),
      undefined,
    );
  const payable = usableOffers.filter((offer) => offer.payable);
  return best(payable.filter((offer) => offer.scheme === "exact")) ?? best(payable) ?? best(usableOffers);
}

/**
 * Compares a 402 with the seller's own listing (verification-method.md section 1, honesty): network, asset, payout
 * address, the amount if the listed price is fixed (a lower amount is no difference), and the schema. Three things are
 * no difference: a member that the listing does not name, another spelling of an equal value, and what cannot be
 * decided (records.md). Listings of third parties are never compared.
 */
export function compareWithListing(listedClaims: Claims | null, terms: ReadTerms): { defect: string; says: string }[] {
  if (!listedClaims) return [];
  const codes: DefectCode[] = [];
  const schemaHash = terms.terms.schema_sha256;
  if (listedClaims.output_schema !== undefined && schemaHash !== null) {
    const listedSchemaHash = hashOf(listedClaims.output_schema);
    if (listedSchemaHash !== null && listedSchemaHash !== schemaHash) codes.push("schema_differs");
  }
  const offersWithNetwork = listedClaims.offers.filter((offer) => offer.network !== "");
  if (offersWithNetwork.length === 0) return describeDefects(codes);
  const offer = chooseComparedOffer(terms.terms.offers, offersWithNetwork);
  if (!offer) {
    const offersWithAmount = terms.terms.offers.filter(hasAmount);
    const isUndecided = offersWithAmount.some((one) =>
      offersWithNetwork.some((other) => sameNetwork(one.network, other.network) === null),
    );
    return describeDefects(isUndecided ? codes : [...codes, "network_differs"]);
  }
  const offersOnNetwork = offersWithNetwork.filter((one) => sameNetwork(one.network, offer.network));
  const hasSameAsset = (one: Offer): boolean | null =>
    one.asset === null || offer.asset === null ? null : sameAsset(offer.network, one.asset, offer.asset);
  if (offersOnNetwork.length > 0 && offersOnNetwork.every((one) => hasSameAsset(one) === false))
    codes.push("asset_differs");
  const offersWithPayee = offersOnNetwork.filter((one) => one.pay_to !== null);
  if (offersWithPayee.length > 0 && !offersWithPayee.some((one) => isSameAddress(one.pay_to, offer.pay_to)))
    codes.push("pay_to_differs");
  const offersWithPrice = offersOnNetwork.filter(
    (one) => one.amount_atomic !== null && (one.asset === null || hasSameAsset(one) === true),
  );
  const highestPrice = offersWithPrice.reduce(
    (highest, one) => (BigInt(one.amount_atomic!) > highest ? BigInt(one.amount_atomic!) : highest),
    0n,
  );
  const isCompared = listedClaims.fixed_price && offersWithPrice.length > 0 && offer.amount_atomic !== null;
  if (isCompared && BigInt(offer.amount_atomic!) > highestPrice) codes.push("price_differs");
  return describeDefects(codes);
}
