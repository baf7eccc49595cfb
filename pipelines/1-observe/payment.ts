import type { EgressResult } from "../../infra/egress/egress.ts";
import type { SignedPayment } from "../../infra/rails/rails.ts";
import type { BodyOf } from "../record/bodies.ts";
import type { Call, Tools } from "./call.ts";
import type { Expectation } from "./checks.ts";
import { type Exchanged, exchange } from "./exchange.ts";
import type { Prepared } from "./sign.ts";

/** One payment that left: everything needed to show the same proof again, and to judge what then comes. */
export interface Payment {
  eventId: string;
  cap: string;
  call: Call;
  intent: BodyOf<"paid.intent">;
  signed: SignedPayment;
  prepared: Prepared;
  want: Expectation;
  deadlineMs: number;
}

/** Did we hang up ourselves, or never send (refused without a reason is our own side)? Then nobody watched the end. */
export const cutOff = (tools: Pick<Tools, "signal">, result: EgressResult): boolean =>
  result.outcome === "refused" ? result.reason === undefined : result.outcome !== "answered" && !!tools.signal?.aborted;

/** Sends the signed payment: the first time, and each time the same proof is shown again. */
export function send(tools: Pick<Tools, "egress">, payment: Payment): Promise<Exchanged> {
  const { headerName: header, headerValue: value } = payment.signed;
  // No signal of a shutdown here: once the money may move, the end is watched, or it is our fault.
  const how = { profile: "paid" as const, deadlineMs: payment.deadlineMs, payment: { header, value } };
  return exchange(tools.egress, payment.prepared.request, how);
}
