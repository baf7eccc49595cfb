import { randomBytes } from "node:crypto";
import { z } from "zod";
import { sha256hex } from "../../infra/canonical.ts";
import { forEachYielding } from "../../infra/concurrency.ts";
import type { Store } from "../../infra/store/store.ts";
import { DayPlan, PlanLine } from "../record/plan.ts";
import { dayStart } from "../record/time.ts";
import type { Publisher } from "./publisher.ts";

const saltKey = (day: string): string => `salts/${day}`;

/**
 * Reads the salt of a UTC day, or creates it: 32 random bytes, from which block, minute and wallet of the day's calls
 * are derived (verification-method.md section 5). Two planners may each create one at the same time; both then use
 * the one that was stored first, so that a repeated planning gives an equal plan.
 */
export async function readOrCreateSalt(privateStore: Store, day: string): Promise<Buffer> {
  const storedSalt = await privateStore.get(saltKey(day), { maxBytes: 32 });
  if (storedSalt) return Buffer.from(storedSalt.bytes);
  const salt = randomBytes(32);
  const { result } = await privateStore.create(saltKey(day), salt);
  if (result === "created") return salt;
  const otherSalt = await privateStore.get(saltKey(day), { maxBytes: 32 });
  if (!otherSalt) throw new Error(`the salt of ${day} is there and cannot be read`);
  return Buffer.from(otherSalt.bytes);
}

/** The sha256 (hex) of a day's salt, which is published before the day and so fixes the salt. */
export const saltHash = (salt: Uint8Array): string => sha256hex(salt);

/**
 * Reads the salt of a past day, for the schedule leaf (log entry) that reveals it; null when that day was never
 * planned.
 */
async function readSaltToReveal(privateStore: Store, day: string): Promise<{ day: string; salt: string } | null> {
  const storedSalt = await privateStore.get(saltKey(day), { maxBytes: 32 });
  return storedSalt && { day, salt: Buffer.from(storedSalt.bytes).toString("hex") };
}

/** Key of the private object that holds a day's plan. It is created once. */
export const planKey = (day: string): string => `plans/${day}.json`;

const PlanWithUncheckedLines = DayPlan.extend({ lines: z.array(z.unknown()) });

/** Number of a plan's lines that are checked before other work of the process gets its turn: a few milliseconds. */
const LINES_PER_TURN = 64;

/** Reads the stored plan of a day; null before it was made. @throws ZodError when the object is not a plan */
export async function readPlan(privateStore: Pick<Store, "get">, day: string): Promise<DayPlan | null> {
  const storedPlan = await privateStore.get(planKey(day));
  if (!storedPlan) return null;
  const plan = PlanWithUncheckedLines.parse(JSON.parse(Buffer.from(storedPlan.bytes).toString("utf8")));
  const lines: PlanLine[] = [];
  await forEachYielding(plan.lines, LINES_PER_TURN, (line) => lines.push(PlanLine.parse(line)));
  return { ...plan, lines };
}

export interface PlanPublishing {
  privateStore: Store;
  publisher: Publisher;
  now: Date;
}

/** Publishes the hashes of a plan, and reveals the salts of past days, unless the log has them already. */
export async function publishPlan({ privateStore, publisher, now }: PlanPublishing, plan: DayPlan): Promise<void> {
  const { day, salt_hash, covered_root } = plan;
  const coveredLines = plan.lines.filter((line) => line.covered).length;
  const leaf = { day, salt_hash, covered_root, covered: coveredLines };
  // A plan may be published on the evening before its day. No salt is revealed then, since that evening's day is not
  // over. On its own day the plan is published again, with the salt.
  const saltsOfPastDays = now < dayStart(day) ? [] : await readSaltsToReveal(privateStore, publisher, day);
  if (saltsOfPastDays.length === 0) await publisher.publishSchedule(leaf);
  for (const pastSalt of saltsOfPastDays) await publisher.publishSchedule({ ...leaf, opens: pastSalt });
}

/** Reads the salts of past days that the log does not reveal yet, including days after which no publisher ran. */
async function readSaltsToReveal(
  privateStore: Store,
  publisher: Publisher,
  day: string,
): Promise<{ day: string; salt: string }[]> {
  const pastDays = [...publisher.fold.schedules].flatMap(([pastDay, { salt }]) =>
    pastDay < day && !salt ? [pastDay] : [],
  );
  const salts = await Promise.all(pastDays.sort().map((pastDay) => readSaltToReveal(privateStore, pastDay)));
  return salts.filter((one) => one !== null);
}
