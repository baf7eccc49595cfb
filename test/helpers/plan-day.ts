import { drawPlan, type PlanInput } from "../../pipelines/1-observe/plan/plan.ts";
import type { DayPlan } from "../../pipelines/record/plan.ts";

/** The plan of a day, drawn in one go. */
export function planDay(input: PlanInput): DayPlan {
  const drawing = drawPlan(input);
  for (;;) {
    const { value, done } = drawing.next();
    if (done) return value;
  }
}
