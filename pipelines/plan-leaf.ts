import type { Store } from "../infra/store/store.ts";
import type { Publisher } from "./4-publish/publisher.ts";
import { DayPlan } from "./record/plan.ts";
import { dayStart } from "./record/time.ts";
import { openedSalt } from "./salts.ts";

/** Private object with a day's plan: drawn once, whoever draws it. */
export const planKey = (day: string): string => `plans/${day}.json`;

/** The plan of a day as it was drawn, or null when it was not yet. */
export async function knownPlan(privateStore: Store, day: string): Promise<DayPlan | null> {
  const known = await privateStore.get(planKey(day));
  return known && DayPlan.parse(JSON.parse(Buffer.from(known.bytes).toString("utf8")));
}

export interface PlanPublishing {
  privateStore: Store;
  publisher: Publisher;
  now: Date;
}

/** The commitment to a plan, and the opened salts of days that are over; what the log says already is left out. */
export async function publishPlan({ privateStore, publisher, now }: PlanPublishing, plan: DayPlan): Promise<void> {
  const { day, salt_hash, covered_root } = plan;
  const covered = plan.lines.filter((line) => line.covered).length;
  const leaf = { day, salt_hash, covered_root, covered };
  // A plan that is committed the evening before opens nothing, since its eve is not over: it is published again, with
  // the opening, on its day.
  const opens = now < dayStart(day) ? [] : await openings(privateStore, publisher, day);
  if (opens.length === 0) await publisher.publishSchedule(leaf);
  for (const opened of opens) await publisher.publishSchedule({ ...leaf, opens: opened });
}

/** Salts of days that are over and were not opened yet: also of a day after which nobody ran. */
async function openings(
  privateStore: Store,
  publisher: Publisher,
  day: string,
): Promise<{ day: string; salt: string }[]> {
  const closed = [...publisher.published.schedules].flatMap(([of, { salt }]) => (of < day && !salt ? [of] : []));
  const opened = await Promise.all(closed.sort().map((of) => openedSalt(privateStore, of)));
  return opened.filter((one) => one !== null);
}
