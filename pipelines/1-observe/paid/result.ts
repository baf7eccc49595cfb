import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { BodyOf } from "../../record/bodies.ts";
import { clean } from "../json.ts";
import { isPassing } from "../plan/steps.ts";
import { type ControlResult, didOurStallEndIt, type ExchangeResult, LOOP_STALLED_TEXT } from "../probe/exchange.ts";
import type { Evaluation } from "../reading/checks.ts";
import { matchesQuote } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { type ChainView, isUnobserved, type Payment } from "./payment.ts";

/** The value of `ended` in a result, by the outcome of the exchange. */
const END_OF_OUTCOME = {
  answered: "closed",
  too_large: "closed",
  timeout: "deadline",
  cut: "cut",
  transport: "transport",
  refused: "transport",
} as const;

/**
 * Decides whose fault the end of an observed paid call is (verification-method.md section 1). Every signed payment is
 * a sample of correctness, unless it has one of the first two faults:
 * - `ours`, in any of six cases:
 *   - The call sent a control input, which is a trial of one of our mappings (asking.ts) and never a sample, whatever
 *     its result. The intent, which is recorded before the payment is sent, marks such a call.
 *   - A control call (a request to an address that we know to be up) failed too.
 *   - No answer was received and the chain could not be read. The seller's facilitator needs that chain.
 *   - Our payment could not have been settled (payment.ts, checkOwnFault).
 *   - No money moved and our own event loop was stalled at the deadline, so the answer may have arrived unread. (If
 *     money moved, the proof is sent again, which distinguishes an honest seller from a thief.)
 *   - No money moved, and a blind call of an MCP tool was answered with the demand again, before a known call showed in
 *     which form the tool takes a payment. A blind call tries one form only.
 * - `bad_input`: the input was synthetic, no money moved, and this input never passed before.
 * - `blocked`: a wall (a bot check, 403 or 429). The sample counts, since a seller that blocks a paying customer does
 *   not deliver.
 *
 * A missing answer for any other reason scores 0, even when we sent no byte (`sent: false`): the first request was
 * answered seconds ago from that address, the control call shows that our own connection works, and a seller that is
 * excused for closing its port on the second connection would never be measured.
 */
function faultOf(
  tools: Tools,
  payment: Payment,
  exchanged: ExchangeResult,
  evaluation: Evaluation,
  chain: ChainView,
  control: ControlResult | null,
): BodyOf<"paid.result">["fault"] {
  const hasNotPassed = !isPassing(evaluation);
  if (payment.intent.known_answer?.control) return "ours";
  if (control?.ok === false || (chain.chainError !== null && !evaluation.delivered)) return "ours";
  if (chain.whyUnsettleable !== undefined) return "ours";
  if (didOurStallEndIt(exchanged) && !chain.settlement) return "ours";
  const isFormUnknown = payment.call.blind && exchanged.mcp && !tools.paymentForms.has(payment.cap);
  if (isFormUnknown && evaluation.status === 402 && !chain.settlement) return "ours";
  if (evaluation.wall) return "blocked";
  const isSynthetic = payment.prepared.input.kind === "synthetic";
  const passedBefore = tools.passedInputs.has(`${payment.cap} ${payment.intent.request_sha256}`);
  return hasNotPassed && isSynthetic && !chain.settlement && chain.chainError === null && !passedBefore
    ? "bad_input"
    : null;
}

const CONTROL_INPUT_TEXT = "a control input: our mapping of this endpoint to its class was not seen to work before";

const RECEIPT_HEADERS = ["payment-response", "x-payment-response", "payment-receipt"];

/** Returns the seller's own receipt as it was received. No grade depends on it. */
function receiptOf(result: EgressResult): { receipt?: { header: string; value: string } } {
  const header = RECEIPT_HEADERS.find((name) => result.headers?.[name] !== undefined);
  return header === undefined ? {} : { receipt: { header, value: clean(result.headers![header]!, 4000) } };
}

/** Makes the body of a `paid.result`. */
export function createResultBody(
  tools: Tools,
  payment: Payment,
  exchanged: ExchangeResult,
  evaluation: Evaluation,
  chain: ChainView,
  control: ControlResult | null,
): BodyOf<"paid.result"> {
  const { result, loop } = exchanged;
  const { wall, ...answerMembers } = evaluation;
  const unpaidFindings = payment.intent.first_leg;
  const isRefused = evaluation.status === 402 && !chain.settlement;
  const isEndUnobserved = isUnobserved(tools, result);
  const says = [
    ...(result.outcome === "answered" ? [] : [`${result.outcome}: ${result.says}`]),
    ...(loop.stoodStill ? [LOOP_STALLED_TEXT] : []),
    ...(payment.intent.known_answer?.control ? [CONTROL_INPUT_TEXT] : []),
    ...(chain.whyUnsettleable === undefined ? [] : [chain.whyUnsettleable]),
    ...(chain.chainError === null ? [] : [`the chain could not be read: ${chain.chainError}`]),
  ].join("; ");
  return {
    intent: payment.eventId,
    watched: !isEndUnobserved,
    ended: isEndUnobserved ? "unknown" : END_OF_OUTCOME[result.outcome],
    fault: isEndUnobserved ? "ours" : faultOf(tools, payment, exchanged, evaluation, chain, control),
    live: payment.prepared.probe.body.live && !wall && !isRefused,
    honest:
      unpaidFindings.honest === null
        ? null
        : unpaidFindings.honest && (!chain.settlement || matchesQuote(payment.intent, chain.settlement)),
    wall,
    ...answerMembers,
    differs: unpaidFindings.differs,
    control,
    ...receiptOf(result),
    ...(says ? { says: clean(says, 2000) } : {}),
  };
}
