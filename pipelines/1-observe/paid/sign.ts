import type { Clock } from "../../../infra/clock.ts";
import {
  CannotSign,
  decimalsOf,
  type PayableEntry,
  type SignedPayment,
  type Wallet,
} from "../../../infra/rails/rails.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { ListedCap } from "../../record/memory.ts";
import { atomicToMicro, formatMoney } from "../../record/money.ts";
import { dayOf, rfc3339 } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import type { Call } from "../call.ts";
import type { ClassQuestion } from "../classes/asking.ts";
import { hashOf } from "../json.ts";
import { PAYMENT_KEY } from "../mcp/session.ts";
import { recipientOf } from "../plan/spend.ts";
import type { Probe } from "../probe/probe.ts";
import { type ChosenInput, declaredHeadersOf, type Request, readSellerOutput } from "../probe/request.ts";
import type { Tools } from "../tools.ts";

/**
 * Longest signed header that servers accept, characters. A 402 with very large extensions could need a longer one; then
 * nothing is paid.
 */
const MAX_HEADER_CHARS = 32_768;

/**
 * Longest validity of a signature, seconds of chain time. A seller may settle until the validity ends. A proof is
 * sent again for at most ten minutes, and a later settlement without an answer could not count against the seller, so
 * the validity must end well before that.
 */
const MAX_VALIDITY_S = 300;

/** The request of a paid call and the probe that sent it first. The payment is signed for that request. */
export interface Prepared {
  probe: Probe;
  input: ChosenInput;
  request: Request;
}

export type SignResult =
  | { ok: true; intent: BodyOf<"paid.intent">; signed: SignedPayment; deadlineMs: number; observedAt: Date }
  | { ok: false; reason: string };

/**
 * Returns the time limit of the paid request, ms: the time that the 402 names, but at least 30 s and at most 120 s
 * (egress.md).
 */
export const timeoutMsOf = (maxTimeoutSeconds: number): number => Math.min(120, Math.max(30, maxTimeoutSeconds)) * 1000;

/**
 * Largest number of seconds by which a signature may be valid for less time than the seller asked for. Signatures are
 * dated by our clock and checked by the chain's: if our clock is behind, a signature could expire while an honest
 * seller works.
 */
const MAX_CLOCK_LAG_S = 15;

/** Returns why the signed payment expires too early, through our own fault; null if it is valid long enough. */
function whyExpiresTooEarly(signed: SignedPayment, entry: PayableEntry, head: { time: number }): string | null {
  // An mpp challenge may expire sooner, since the seller chose that time.
  const minSeconds = entry.challenge ? 1 : Math.max(1, entry.maxTimeoutSeconds - MAX_CLOCK_LAG_S);
  const secondsLeft = signed.validBefore - head.time;
  return secondsLeft < minSeconds
    ? `our clock is behind the chain's: the payment would be valid for ${secondsLeft} s`
    : null;
}

/** Chooses the wallet and signs the payment. Throws if the wallet holds too little or the payment expires too early. */
async function signOnce(tools: Tools, endpoint: ListedCap, call: Call, prepared: Prepared, entry: PayableEntry) {
  const day = dayOf(call.plannedAt);
  const { network, asset } = entry;
  // A blind wallet pays on one day only, so one that cannot cover the fee too would be used up without a payment.
  const amountAtomic = entry.amountAtomic + (tools.rail.feeReserve?.(entry) ?? 0n);
  const tokenAmount = { network, asset, amountAtomic };
  const wallet: Wallet = call.blind
    ? await tools.wallets.blind(endpoint.cap, day, amountAtomic, tokenAmount)
    : await tools.wallets.known(tokenAmount);
  // The chain's newest block is read before signing, so that the search for the Transfer begins at a block before it.
  const { value: balance, head } = await tools.rail.balance(wallet.address, { network, asset });
  if (balance < amountAtomic) throw new Error(`the wallet ${wallet.address} holds ${balance} of ${amountAtomic}`);
  const boundedEntry = { ...entry, maxTimeoutSeconds: Math.min(entry.maxTimeoutSeconds, MAX_VALIDITY_S) };
  const signed = await tools.rail.sign(boundedEntry, wallet, prepared.probe.read!.context);
  const whyTooEarly = whyExpiresTooEarly(signed, boundedEntry, head);
  if (whyTooEarly !== null) throw new Error(whyTooEarly);
  return { head, signed };
}

/** Converts the call's question to the form of the record; empty if there is none. */
function toKnownAnswer({
  known,
  mapping,
  isControl: control,
}: ClassQuestion): Pick<BodyOf<"paid.intent">, "known_answer"> {
  if (known === null) return {};
  const { class: kind, variant, answer, truth } = known;
  return { known_answer: { class: kind, variant, answer, truth, mapping: mapping?.id ?? null, control } };
}

/**
 * Signs a payment for a 402 that can be paid, within the spending caps. Nothing is sent yet. If it fails (a cap, no
 * money, the chain is down), it returns the reason, and the caller records the first request as a handshake.
 */
export async function sign(
  tools: Tools,
  endpoint: ListedCap,
  call: Call,
  prepared: Prepared & { question: ClassQuestion },
  clock: Clock,
): Promise<SignResult> {
  const terms = prepared.probe.read!;
  const entry = terms.payable!;
  const priceMicro = atomicToMicro(entry.amountAtomic, decimalsOf(tools.rail, entry));
  if (priceMicro === null) return { ok: false, reason: "the price is past what the record can hold" };
  const day = dayOf(call.plannedAt);
  // The payee is taken from this 402, even if a listing names another payee.
  const payment = {
    ...recipientOf(hostOf(endpoint.url), entry.payTo),
    cap: endpoint.cap,
    micro: priceMicro,
    block: call.block,
  };
  const reservation = tools.ledger.spend(day, payment);
  if (!reservation.ok) return { ok: false, reason: `not paid: ${reservation.says}` };
  let signedOnce: Awaited<ReturnType<typeof signOnce>>;
  try {
    signedOnce = await signOnce(tools, endpoint, call, prepared, entry);
  } catch (error) {
    tools.ledger.cancel(day, payment);
    if (error instanceof CannotSign) return { ok: false, reason: `not paid: ${error.message}` };
    // A planned blind call (paid from a wallet that the seller does not know) was not made, so fewer blind calls are
    // made than published. The status page shows that.
    if (call.blind) tools.metrics.gauge("touchstone_observe_blind_missed_seconds", clock.now().getTime() / 1000);
    return { ok: false, reason: `not paid, by our own fault: ${(error as Error).message ?? error}` };
  }
  const { head, signed } = signedOnce;
  if (signed.headerValue.length > MAX_HEADER_CHARS) {
    tools.ledger.cancel(day, payment);
    return { ok: false, reason: "not paid: the 402 wants more echoed than a header holds" };
  }
  const { w, retest, blind } = call;
  const { honest, latency_ms, differs } = prepared.probe.body;
  const output = readSellerOutput(endpoint, terms.declared);
  const deadlineMs = timeoutMsOf(entry.maxTimeoutSeconds);
  const observedAt = clock.now();
  const declaredHeaders = prepared.request.tool ? {} : declaredHeadersOf(prepared.request);
  const intent: BodyOf<"paid.intent"> = {
    slot: { block: call.block, minute: call.minute },
    attempt: 0,
    planned_at: rfc3339(call.plannedAt),
    ...{ w, retest, blind },
    wallet: signed.from,
    input: prepared.input.kind,
    ...toKnownAnswer(prepared.question),
    url: prepared.request.url,
    method: prepared.request.method,
    request_sha256: prepared.request.sha256,
    ...(Object.keys(declaredHeaders).length > 0 ? { request_headers: declaredHeaders } : {}),
    schema_sha256: output.schema === undefined ? null : hashOf(output.schema),
    listing_record: endpoint.sellerListing,
    quote: {
      price: formatMoney(priceMicro),
      amount_atomic: entry.amountAtomic.toString(),
      asset: entry.asset,
      network: entry.network,
      pay_to: entry.payTo,
      max_timeout_s: entry.maxTimeoutSeconds,
      x402_version: entry.x402Version,
      protocol: entry.challenge ? "mpp" : "x402",
    },
    first_leg: { honest, latency_ms, terms: terms.terms, differs },
    header_name: prepared.request.tool ? PAYMENT_KEY : signed.headerName,
    signed_bytes: signed.headerValue,
    nonce: signed.nonce,
    valid_before: signed.validBefore,
    since_block: head.number,
    deadline: rfc3339(new Date(observedAt.getTime() + deadlineMs)),
  };
  return { ok: true, intent, signed, deadlineMs, observedAt };
}
