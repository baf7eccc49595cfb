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
 * The salt of a UTC day (verification-method.md section 5): 32 random bytes, drawn once and kept in the private store. Two
 * planners may draw one at the same time; the first that is stored is used by all, so a plan can be made again.
 */
export async function saltOf(privateStore: Store, day: string): Promise<Buffer> {
  const known = await privateStore.get(saltKey(day), { maxBytes: 32 });
  if (known) return Buffer.from(known.bytes);
  const salt = randomBytes(32);
  const { result } = await privateStore.create(saltKey(day), salt);
  if (result === "created") return salt;
  const other = await privateStore.get(saltKey(day), { maxBytes: 32 });
  if (!other) throw new Error(`the salt of ${day} is there and cannot be read`);
  return Buffer.from(other.bytes);
}

/** The commitment to a day's salt that is published before the day: its sha256, hex. */
export const saltHash = (salt: Uint8Array): string => sha256hex(salt);

/** The salt of a day that is over, for the schedule leaf that reveals it; null when that day was never planned. */
async function saltToOpen(privateStore: Store, day: string): Promise<{ day: string; salt: string } | null> {
  const known = await privateStore.get(saltKey(day), { maxBytes: 32 });
  return known && { day, salt: Buffer.from(known.bytes).toString("hex") };
}

/** Key of the private object that holds a day's plan. It is created once. */
export const planKey = (day: string): string => `plans/${day}.json`;

const Lines = DayPlan.extend({ lines: z.array(z.unknown()) });

/** Lines that are checked (in a few milliseconds) before other work of the process gets its turn. */
const LINES_PER_TURN = 64;

/** Reads the stored plan of a day; null before it was drawn. @throws ZodError when the object is not a plan */
export async function readPlan(privateStore: Pick<Store, "get">, day: string): Promise<DayPlan | null> {
  const known = await privateStore.get(planKey(day));
  if (!known) return null;
  const plan = Lines.parse(JSON.parse(Buffer.from(known.bytes).toString("utf8")));
  const lines: PlanLine[] = [];
  await forEachYielding(plan.lines, LINES_PER_TURN, (line) => lines.push(PlanLine.parse(line)));
  return { ...plan, lines };
}

export interface PlanPublishing {
  privateStore: Store;
  publisher: Publisher;
  now: Date;
}

/** Publishes the commitment to a plan, and reveals the salts of days that are over, unless the log has them already. */
export async function publishPlan({ privateStore, publisher, now }: PlanPublishing, plan: DayPlan): Promise<void> {
  const { day, salt_hash, covered_root } = plan;
  const covered = plan.lines.filter((line) => line.covered).length;
  const leaf = { day, salt_hash, covered_root, covered };
  // A plan that is committed the evening before reveals no salt, since the day before it is not over. It is published again
  // on its own day, with the salt.
  const opens = now < dayStart(day) ? [] : await saltsToOpen(privateStore, publisher, day);
  if (opens.length === 0) await publisher.publishSchedule(leaf);
  for (const opened of opens) await publisher.publishSchedule({ ...leaf, opens: opened });
}

/** The salts of past days that were not revealed yet, which includes days after which no publisher ran. */
async function saltsToOpen(
  privateStore: Store,
  publisher: Publisher,
  day: string,
): Promise<{ day: string; salt: string }[]> {
  const closed = [...publisher.fold.schedules].flatMap(([of, { salt }]) => (of < day && !salt ? [of] : []));
  const opened = await Promise.all(closed.sort().map((of) => saltToOpen(privateStore, of)));
  return opened.filter((one) => one !== null);
}
