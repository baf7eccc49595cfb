import type { SpanReport } from "../../../pipelines/1-observe/observer.ts";
import type { DayPlan } from "../../../pipelines/record/plan.ts";
import { dayStart } from "../../../pipelines/record/time.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { answer, CAPS, DAY, type FakeWorld, type Handler, item, SELLER, wellKnown } from "./world.ts";

export const START = dayStart(DAY);
export const END = new Date(START.getTime() + 86_400_000);
export const salt = Buffer.alloc(32, 5);

/** Takes the seller in and makes the day's plan for what is then listed. */
export async function listAndPlan(world: FakeWorld, handler: Handler, origin = SELLER): Promise<DayPlan> {
  world.egress.sellers.set(origin, handler);
  await world.observer.intakeSeller(origin);
  return planDay({ day: DAY, salt, listed: await world.memory.listed(), caps: CAPS, now: START });
}

/** A plan with nothing but the first paid call of the day for each endpoint. */
export const firstPaidOnly = (plan: DayPlan): DayPlan => ({
  ...plan,
  lines: plan.lines.map((line) => {
    const first = line.calls.find((call) => call.kind === "paid");
    return { ...line, calls: first ? [first] : [] };
  }),
});

export const firstProbeOnly = (plan: DayPlan): DayPlan => ({
  ...plan,
  lines: plan.lines.map((line) => ({ ...line, calls: line.calls.slice(0, 1) })),
});

/** One seller, one paid call. */
export async function payOnce(world: FakeWorld, handler: Handler): Promise<SpanReport> {
  const plan = await listAndPlan(world, handler);
  return world.observer.observeSpan(firstPaidOnly(plan), START, END);
}

/** A handler that also lists itself, whatever it does otherwise. */
export const listing =
  (handler: Handler, change: Record<string, unknown> = {}): Handler =>
  (asked, n) =>
    new URL(asked.url).pathname === "/.well-known/x402" ? answer(200, wellKnown(item(change))) : handler(asked, n);
