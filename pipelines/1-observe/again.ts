import type { Clock } from "../../infra/clock.ts";
import type { BodyOf } from "../record/bodies.ts";
import type { Tools } from "./call.ts";
import { type Judgement, judge } from "./checks.ts";
import { cutOff, type Payment, send } from "./payment.ts";
import { followupRow } from "./rows.ts";

/** What the retests look at. */
export type Shown = Pick<Judgement, "delivered" | "delivery" | "outcome">;

/** Waits before each showing, ms of the record's time. */
const WAITS_MS = [5_000, 60_000, 240_000];
/** A showing must begin within this long of the first end (grading-method.md section 1), ms of the record's time. */
export const SHOW_WITHIN_MS = 600_000;

/**
 * The money went and nothing came: the same signed bytes are shown again, a few times within ten minutes. It is the
 * same payment (same nonce), so it cannot settle twice; an honest seller whose answer was lost gives it now. Each
 * showing is a record of its own. Stops at the first that brings anything.
 */
export async function showAgain(tools: Tools, payment: Payment, clock: Clock): Promise<Shown> {
  const began = clock.now().getTime();
  let last: Shown = { delivered: false, delivery: null, outcome: payment.want.known ? 0 : null };
  for (let n = 0; n < WAITS_MS.length; n++) {
    await clock.sleep(WAITS_MS[n]!, tools.signal);
    if (clock.now().getTime() - began >= SHOW_WITHIN_MS) break;
    const { result } = await send(tools, payment);
    const { wall, ...came } = judge(result, payment.want, tools.schemas, true);
    // A showing that we could not make says nothing about the seller: it is written, and not as watched.
    const control = came.delivered ? null : await tools.control.call(clock);
    const body: BodyOf<"paid.followup"> = {
      of: payment.eventId,
      kind: "shown_again",
      shown_again: { ...came, watched: control?.ok !== false && !cutOff(tools, result) },
      ...(control ? { control } : {}),
      ...(wall ? { wall } : {}),
    };
    await tools.recorder.append([followupRow(payment.cap, body, clock.now(), n)]);
    tools.metrics.count("observe_shown_again_total", { delivered: String(came.delivered) });
    last = came;
    if (came.delivered) break;
  }
  return last;
}
