import { z } from "zod";
import { numberedKey } from "../../../infra/store/numbered.ts";
import type { Store } from "../../../infra/store/store.ts";

/**
 * The private object that tells an owner why its run was not taken (`refused/<20-digit n>`, beside `runs/<20-digit
 * n>`).
 */
const Refusal = z.object({
  v: z.literal(1),
  log: z.string(),
  run: z.int().min(0),
  reason: z.string(),
  at: z.string(),
});
export type Refusal = z.infer<typeof Refusal>;

/** Most refusals that one call reads; the next call reads on. */
const MAX_REFUSALS_READ = 100;

const refusalKey = (n: number): string => numberedKey("refused", n);

/** Writes a refusal. Writing it again, as after a crash of the publisher, changes nothing. */
export async function writeRefusal(store: Store, refusal: Refusal): Promise<void> {
  await store.create(refusalKey(refusal.run), Buffer.from(JSON.stringify(Refusal.parse(refusal))));
}

/** Reads the refusals of runs after this number, ascending. An unreadable refusal is returned with that as its reason. */
export async function readRefusalsAfter(store: Store, after: number): Promise<Pick<Refusal, "run" | "reason">[]> {
  const startAfter = after < 0 ? undefined : refusalKey(after);
  const found = await store.list("refused/", { limit: MAX_REFUSALS_READ, ...(startAfter ? { startAfter } : {}) });
  return Promise.all(
    found.map(async ({ key }) => {
      const run = Number(key.slice("refused/".length));
      const object = await store.get(key);
      try {
        return Refusal.parse(JSON.parse(Buffer.from(object!.bytes).toString("utf8")));
      } catch (error) {
        return { run, reason: `its refusal does not read: ${(error as Error).message.slice(0, 200)}` };
      }
    }),
  );
}

/** Runs of ours that are remembered because they may still be refused; a publisher takes far fewer than these in hours. */
const MAX_RUNS = 1_000;
const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;

/**
 * Which runs of an owner were refused. The content of a refused run is in no other, so everything is graded again: at once
 * after the first refusal. Each further one within an hour doubles the wait, up to an hour, since the next run may be
 * refused for the same reason.
 */
export class Refusals {
  readonly #runs = new Set<number>();
  /** Number of the newest refusal that was read. */
  #read = -1;
  /** Moments of refusals within the last hour, ms. */
  #recent: number[] = [];
  #gradeAllAt: number | null = null;

  constructor(private readonly store: Store) {}

  /** Remembers a run that this owner wrote. */
  addRun(run: number): void {
    // Refusals of runs before our first run belong to other owners.
    if (this.#runs.size === 0 && this.#read < 0) this.#read = run - 1;
    this.#runs.add(run);
    for (const [first] of this.#runs.entries()) {
      if (this.#runs.size <= MAX_RUNS) break;
      this.#runs.delete(first);
    }
  }

  /** Reads the refusals of our runs since the last call. @throws what the store throws */
  async readNew(now: Date): Promise<Pick<Refusal, "run" | "reason">[]> {
    if (this.#runs.size === 0) return [];
    const found = await readRefusalsAfter(this.store, this.#read);
    this.#read = found.at(-1)?.run ?? this.#read;
    const ours = found.filter(({ run }) => this.#runs.delete(run));
    if (ours.length === 0) return ours;
    const ms = now.getTime();
    this.#recent = [...this.#recent.filter((moment) => moment > ms - HOUR_MS), ms];
    const again = this.#recent.length - 1;
    this.#gradeAllAt = ms + (again === 0 ? 0 : Math.min(2 ** (again - 1) * MINUTE_MS, HOUR_MS));
    return ours;
  }

  /** Must everything be graded again now? Returns true once for each refusal. */
  mustGradeAll(now: Date): boolean {
    if (this.#gradeAllAt === null || now.getTime() < this.#gradeAllAt) return false;
    this.#gradeAllAt = null;
    return true;
  }
}
