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
import { payeeOf } from "../plan/spend.ts";
import type { Probe } from "../probe/probe.ts";
import { type ChosenInput, type Request, sellerOutput } from "../probe/request.ts";
import type { Tools } from "../tools.ts";

/** Longest signed header that servers accept, characters. A 402 with huge extensions could need a longer one. */
const MAX_HEADER = 32_768;

/**
 * Longest validity that we sign, chain seconds. A seller may settle until it ends. A proof is sent again for ten
 * minutes at most, and a later settlement without an answer could not count against the seller, so the validity must
 * end well before.
 */
const MAX_VALIDITY_S = 300;

/** The first request of a paid call with its probe: what the payment is signed for. */
export interface Prepared {
  probe: Probe;
  input: ChosenInput;
  request: Request;
}

export type SignResult =
  | { ok: true; intent: BodyOf<"paid.intent">; signed: SignedPayment; deadlineMs: number; observedAt: Date }
  | { ok: false; says: string };

/** Time for the paid request, ms: what the 402 names, but at least 30 s and at most 120 s (egress.md). */
export const deadlineOf = (maxTimeoutSeconds: number): number => Math.min(120, Math.max(30, maxTimeoutSeconds)) * 1000;

/**
 * Most seconds by which a signature may be valid for less time than the seller asked for. Signatures are dated by our
 * clock and checked by the chain's: if our clock is behind, a signature could expire while an honest seller works.
 */
const MAX_CLOCK_LAG_S = 15;

/** Why the signed payment expires too early, through our own fault; null where it is valid long enough. */
function whyTooLate(signed: SignedPayment, entry: PayableEntry, head: { time: number }): string | null {
  // A challenge of mpp may end sooner, since its seller chose that time.
  const wanted = entry.challenge ? 1 : Math.max(1, entry.maxTimeoutSeconds - MAX_CLOCK_LAG_S);
  const secondsLeft = signed.validBefore - head.time;
  return secondsLeft < wanted
    ? `our clock is behind the chain's: the payment would be valid for ${secondsLeft} s`
    : null;
}

async function signOnce(tools: Tools, one: ListedCap, call: Call, prepared: Prepared, entry: PayableEntry) {
  const day = dayOf(call.plannedAt);
  const { network, asset, amountAtomic } = entry;
  const need = { network, asset, amountAtomic };
  const wallet: Wallet = call.blind
    ? await tools.wallets.blind(one.cap, day, amountAtomic, need)
    : await tools.wallets.known(need);
  // The chain's newest block is read before signing, so that the search for the Transfer begins at a block before it.
  const { value: held, head } = await tools.rail.balance(wallet.address, { network, asset });
  if (held < amountAtomic) throw new Error(`the wallet ${wallet.address} holds ${held} of ${amountAtomic}`);
  const bounded = { ...entry, maxTimeoutSeconds: Math.min(entry.maxTimeoutSeconds, MAX_VALIDITY_S) };
  const signed = await tools.rail.sign(bounded, wallet, prepared.probe.read!.context);
  const late = whyTooLate(signed, bounded, head);
  if (late !== null) throw new Error(late);
  return { head, signed };
}

/** The call's question in the form of the record; empty where there is none. */
function toKnownAnswer({ known, mapping, control }: ClassQuestion): Pick<BodyOf<"paid.intent">, "known_answer"> {
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
  one: ListedCap,
  call: Call,
  prepared: Prepared & { asked: ClassQuestion },
  clock: Clock,
): Promise<SignResult> {
  const read = prepared.probe.read!;
  const entry = read.payable!;
  const amount = atomicToMicro(entry.amountAtomic, decimalsOf(tools.rail, entry));
  if (amount === null) return { ok: false, says: "the price is past what the record can hold" };
  const day = dayOf(call.plannedAt);
  // The payee is taken from this 402, even where a listing names another.
  const payment = { ...payeeOf(hostOf(one.url), entry.payTo), cap: one.cap, micro: amount, block: call.block };
  const taken = tools.ledger.take(day, payment);
  if (!taken.ok) return { ok: false, says: `not paid: ${taken.says}` };
  let made: Awaited<ReturnType<typeof signOnce>>;
  try {
    made = await signOnce(tools, one, call, prepared, entry);
  } catch (error) {
    tools.ledger.giveBack(day, payment);
    if (error instanceof CannotSign) return { ok: false, says: `not paid: ${error.message}` };
    // A planned blind call was not made, so there are fewer blind calls than published. The status page shows it.
    if (call.blind) tools.metrics.gauge("touchstone_observe_blind_missed_seconds", clock.now().getTime() / 1000);
    return { ok: false, says: `not paid, by our own fault: ${(error as Error).message ?? error}` };
  }
  const { head, signed } = made;
  if (signed.headerValue.length > MAX_HEADER) {
    tools.ledger.giveBack(day, payment);
    return { ok: false, says: "not paid: the 402 wants more echoed than a header holds" };
  }
  const { w, retest, blind } = call;
  const { honest, latency_ms, differs } = prepared.probe.body;
  const says = sellerOutput(one, read.declared);
  const deadlineMs = deadlineOf(entry.maxTimeoutSeconds);
  const observedAt = clock.now();
  const intent: BodyOf<"paid.intent"> = {
    slot: { block: call.block, minute: call.minute },
    attempt: 0,
    planned_at: rfc3339(call.plannedAt),
    ...{ w, retest, blind },
    wallet: signed.from,
    input: prepared.input.kind,
    ...toKnownAnswer(prepared.asked),
    url: prepared.request.url,
    method: prepared.request.method,
    request_sha256: prepared.request.sha256,
    schema_sha256: says.schema === undefined ? null : hashOf(says.schema),
    listing_record: one.sellerListing,
    quote: {
      price: formatMoney(amount),
      amount_atomic: entry.amountAtomic.toString(),
      asset: entry.asset,
      network: entry.network,
      pay_to: entry.payTo,
      max_timeout_s: entry.maxTimeoutSeconds,
      x402_version: entry.x402Version,
      protocol: entry.challenge ? "mpp" : "x402",
    },
    first_leg: { honest, latency_ms, terms: read.terms, differs },
    header_name: prepared.request.tool ? PAYMENT_KEY : signed.headerName,
    signed_bytes: signed.headerValue,
    nonce: signed.nonce,
    valid_before: signed.validBefore,
    since_block: head.number,
    deadline: rfc3339(new Date(observedAt.getTime() + deadlineMs)),
  };
  return { ok: true, intent, signed, deadlineMs, observedAt };
}
