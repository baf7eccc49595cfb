import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { BodyOf } from "../../record/bodies.ts";
import { clean } from "../json.ts";
import { passes } from "../plan/steps.ts";
import { type ControlSeen, type Exchanged, endedByUs, STOOD_STILL } from "../probe/exchange.ts";
import type { Evaluation } from "../reading/checks.ts";
import { asQuoted } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { type ChainView, cutOff, type Payment } from "./payment.ts";

const ENDED = {
  answered: "closed",
  too_large: "closed",
  timeout: "deadline",
  cut: "cut",
  transport: "transport",
  refused: "transport",
} as const;

/**
 * Whose fault is the end of a watched paid connection (verification-method.md section 1)? Every signed payment is a sample
 * of correctness, so a row leaves only for one of two reasons:
 * - `ours`: a control call failed too, or the chain could not be read while nothing came back (the seller's facilitator
 *   needs the same chain), or what we signed could not have been settled (payment.ts, withMeans). No answer for any
 *   other reason stays a 0, even when no byte of ours left (`sent: false`):
 *   the first leg was answered seconds ago from the same address, our own network is vouched for by the control call,
 *   and a seller who could be excused by closing its port on the second connection would never be measured.
 *   The same where no money moved and our own loop stood still when the deadline came: the answer may have waited for us.
 *   Where it moved, the proof is shown again, and that tells an honest seller from the other.
 *   A control input of a mapping of ours (asking.ts) is no sample, however it ends: the record says so before it leaves.
 * - `bad_input`: an input that we made up, no money moved, and the very same input never passed before.
 * A wall is named (`blocked`) and counts: who blocks paying customers does not deliver.
 */
function faultOf(
  tools: Tools,
  payment: Payment,
  exchanged: Exchanged,
  evaluation: Evaluation,
  chain: ChainView,
  control: ControlSeen | null,
): BodyOf<"paid.result">["fault"] {
  const failed = !passes(evaluation);
  if (payment.intent.known_answer?.control) return "ours";
  if (control?.ok === false || (chain.down !== null && !evaluation.delivered)) return "ours";
  if (chain.unable !== undefined) return "ours";
  if (endedByUs(exchanged) && !chain.seen) return "ours";
  if (evaluation.wall) return "blocked";
  const made = payment.prepared.input.kind === "synthetic";
  const passedBefore = tools.passed.has(`${payment.cap} ${payment.intent.request_sha256}`);
  return failed && made && !chain.seen && chain.down === null && !passedBefore ? "bad_input" : null;
}

const CONTROL_INPUT = "a control input: our mapping of this endpoint to its class was not seen to work before";

const RECEIPTS = ["payment-response", "x-payment-response", "payment-receipt"];

/** The seller's own word on the settlement, kept as it came. Nothing is ever concluded from it. */
function receiptOf(result: EgressResult): { receipt?: { header: string; value: string } } {
  const header = RECEIPTS.find((name) => result.headers?.[name] !== undefined);
  return header === undefined ? {} : { receipt: { header, value: clean(result.headers![header]!, 4000) } };
}

/** The body of a `paid.result` from everything that was seen. */
export function resultBody(
  tools: Tools,
  payment: Payment,
  exchanged: Exchanged,
  evaluation: Evaluation,
  chain: ChainView,
  control: ControlSeen | null,
): BodyOf<"paid.result"> {
  const { result, loop } = exchanged;
  const { wall, ...came } = evaluation;
  const first = payment.intent.first_leg;
  const refused = evaluation.status === 402 && !chain.seen;
  const off = cutOff(tools, result);
  const says = [
    ...(result.outcome === "answered" ? [] : [`${result.outcome}: ${result.says}`]),
    ...(loop.stoodStill ? [STOOD_STILL] : []),
    ...(payment.intent.known_answer?.control ? [CONTROL_INPUT] : []),
    ...(chain.unable === undefined ? [] : [chain.unable]),
    ...(chain.down === null ? [] : [`the chain could not be read: ${chain.down}`]),
  ].join("; ");
  return {
    intent: payment.eventId,
    watched: !off,
    ended: off ? "unknown" : ENDED[result.outcome],
    fault: off ? "ours" : faultOf(tools, payment, exchanged, evaluation, chain, control),
    live: payment.prepared.probe.body.live && !wall && !refused,
    honest: first.honest === null ? null : first.honest && (!chain.seen || asQuoted(payment.intent, chain.seen)),
    wall,
    ...came,
    differs: first.differs,
    control,
    ...receiptOf(result),
    ...(says ? { says: clean(says, 2000) } : {}),
  };
}
