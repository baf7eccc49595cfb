import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { BodyOf } from "../../record/bodies.ts";
import { clean } from "../json.ts";
import { isPassing } from "../plan/steps.ts";
import { type ControlSeen, didOurStallEndIt, type ExchangeResult, LOOP_STALLED_TEXT } from "../probe/exchange.ts";
import type { Evaluation } from "../reading/checks.ts";
import { matchesQuote } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { type ChainView, isCutOff, type Payment } from "./payment.ts";

const ENDED_BY_OUTCOME = {
  answered: "closed",
  too_large: "closed",
  timeout: "deadline",
  cut: "cut",
  transport: "transport",
  refused: "transport",
} as const;

/**
 * Whose fault is the end of a watched paid connection (verification-method.md section 1)? Every signed payment is a
 * sample of correctness, so a row is left out only for one of two reasons:
 * - `ours`: a control call failed too; or no answer came and the chain could not be read (the seller's facilitator needs
 *   the same chain); or our payment could not have been settled (payment.ts, checkOwnFault); or no money moved and our own
 *   event loop stood still when the deadline came, so the answer may have been waiting for us. (If money moved, the
 *   proof is presented again: an honest seller then delivers.) A control input of a mapping of ours (asking.ts) is
 *   never a sample, however it ends: that is recorded before the payment is sent. A missing answer for any other reason is
 *   a 0, even when no byte of ours left (`sent: false`): the first request was answered seconds ago from the same address,
 *   the control call vouches for our network, and a seller that were excused for closing its port on the second connection
 *   would never be measured.
 * - `bad_input`: we made the input up, no money moved, and this very input never passed before.
 * A wall is named (`blocked`) and counts, since a seller that blocks a paying customer does not deliver.
 */
function faultOf(
  tools: Tools,
  payment: Payment,
  exchanged: ExchangeResult,
  evaluation: Evaluation,
  chain: ChainView,
  control: ControlSeen | null,
): BodyOf<"paid.result">["fault"] {
  const failed = !isPassing(evaluation);
  if (payment.intent.known_answer?.control) return "ours";
  if (control?.ok === false || (chain.down !== null && !evaluation.delivered)) return "ours";
  if (chain.unable !== undefined) return "ours";
  if (didOurStallEndIt(exchanged) && !chain.seen) return "ours";
  if (evaluation.wall) return "blocked";
  const isSynthetic = payment.prepared.input.kind === "synthetic";
  const passedBefore = tools.passed.has(`${payment.cap} ${payment.intent.request_sha256}`);
  return failed && isSynthetic && !chain.seen && chain.down === null && !passedBefore ? "bad_input" : null;
}

const CONTROL_INPUT = "a control input: our mapping of this endpoint to its class was not seen to work before";

const RECEIPT_HEADERS = ["payment-response", "x-payment-response", "payment-receipt"];

/** The seller's own receipt, recorded as received. No grade depends on it. */
function receiptOf(result: EgressResult): { receipt?: { header: string; value: string } } {
  const header = RECEIPT_HEADERS.find((name) => result.headers?.[name] !== undefined);
  return header === undefined ? {} : { receipt: { header, value: clean(result.headers![header]!, 4000) } };
}

/** Makes the body of a `paid.result`. */
export function resultBody(
  tools: Tools,
  payment: Payment,
  exchanged: ExchangeResult,
  evaluation: Evaluation,
  chain: ChainView,
  control: ControlSeen | null,
): BodyOf<"paid.result"> {
  const { result, loop } = exchanged;
  const { wall, ...measured } = evaluation;
  const first = payment.intent.first_leg;
  const refused = evaluation.status === 402 && !chain.seen;
  const isCut = isCutOff(tools, result);
  const says = [
    ...(result.outcome === "answered" ? [] : [`${result.outcome}: ${result.says}`]),
    ...(loop.stoodStill ? [LOOP_STALLED_TEXT] : []),
    ...(payment.intent.known_answer?.control ? [CONTROL_INPUT] : []),
    ...(chain.unable === undefined ? [] : [chain.unable]),
    ...(chain.down === null ? [] : [`the chain could not be read: ${chain.down}`]),
  ].join("; ");
  return {
    intent: payment.eventId,
    watched: !isCut,
    ended: isCut ? "unknown" : ENDED_BY_OUTCOME[result.outcome],
    fault: isCut ? "ours" : faultOf(tools, payment, exchanged, evaluation, chain, control),
    live: payment.prepared.probe.body.live && !wall && !refused,
    honest: first.honest === null ? null : first.honest && (!chain.seen || matchesQuote(payment.intent, chain.seen)),
    wall,
    ...measured,
    differs: first.differs,
    control,
    ...receiptOf(result),
    ...(says ? { says: clean(says, 2000) } : {}),
  };
}
