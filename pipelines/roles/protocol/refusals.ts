import { z } from "zod";
import { numberedKey } from "../../../infra/store/numbered.ts";
import type { Store } from "../../../infra/store/store.ts";

/**
 * The private object `refused/<20-digit n>`: the reason why the publisher did not publish run n. A run
 * (`runs/<20-digit n>`) is the result of one grading by an owner (a process that ingests and grades some partitions).
 * `log`: id of the event log; `run`: n; `reason`: in words; `at`: time of the refusal, RFC 3339.
 */
const Refusal = z.object({
  v: z.literal(1),
  log: z.string(),
  run: z.int().min(0),
  reason: z.string(),
  at: z.string(),
});
export type Refusal = z.infer<typeof Refusal>;

/** Largest number of refusals that one call reads. The next call reads further ones. */
const MAX_REFUSALS_READ = 100;

const refusalKey = (n: number): string => numberedKey("refused", n);

/** Writes a refusal. If the run has one already, as after a crash of the publisher, nothing is changed. */
export async function writeRefusal(store: Store, refusal: Refusal): Promise<void> {
  await store.create(refusalKey(refusal.run), Buffer.from(JSON.stringify(Refusal.parse(refusal))));
}

/**
 * Reads the refusals of runs after this number, ascending. For a refusal that cannot be parsed, the reason is the parse
 * error.
 */
export async function readRefusalsAfter(store: Store, after: number): Promise<Pick<Refusal, "run" | "reason">[]> {
  const startAfter = after < 0 ? undefined : refusalKey(after);
  const entries = await store.list("refused/", { limit: MAX_REFUSALS_READ, ...(startAfter ? { startAfter } : {}) });
  return Promise.all(
    entries.map(async ({ key }) => {
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

/**
 * Largest number of runs of this owner that are remembered because they may still be refused. An owner writes far fewer
 * in the hours that a publisher may need to read them.
 */
const MAX_RUNS = 1_000;
const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;

/**
 * Remembers an owner's runs and reads which of them were refused. The cards in a refused run are in no other run, so
 * everything is graded again: at once after the first refusal, and after a minute if there was another one within an
 * hour. Each further refusal in that hour doubles the wait, up to an hour, since the next run may be refused for the
 * same reason.
 */
export class Refusals {
  readonly #ownRuns = new Set<number>();
  /** Number of the run whose refusal was read last. */
  #newestReadRun = -1;
  /** Times at which refusals were read within the last hour, ms. */
  #recentRefusals: number[] = [];
  /** When everything is to be graded again, unix ms; null if no refusal waits for that. */
  #gradeAllAt: number | null = null;

  constructor(private readonly store: Store) {}

  /** Remembers a run that this owner wrote. */
  addRun(run: number): void {
    // Refusals of runs before our first run belong to other owners.
    if (this.#ownRuns.size === 0 && this.#newestReadRun < 0) this.#newestReadRun = run - 1;
    this.#ownRuns.add(run);
    for (const [oldestRun] of this.#ownRuns.entries()) {
      if (this.#ownRuns.size <= MAX_RUNS) break;
      this.#ownRuns.delete(oldestRun);
    }
  }

  /**
   * Reads the refusals of this owner's runs since the last call.
   * @throws errors of the store
   */
  async readNew(now: Date): Promise<Pick<Refusal, "run" | "reason">[]> {
    if (this.#ownRuns.size === 0) return [];
    const refusals = await readRefusalsAfter(this.store, this.#newestReadRun);
    this.#newestReadRun = refusals.at(-1)?.run ?? this.#newestReadRun;
    const ownRefusals = refusals.filter(({ run }) => this.#ownRuns.delete(run));
    if (ownRefusals.length === 0) return ownRefusals;
    const nowMs = now.getTime();
    this.#recentRefusals = [...this.#recentRefusals.filter((moment) => moment > nowMs - HOUR_MS), nowMs];
    const repeats = this.#recentRefusals.length - 1;
    this.#gradeAllAt = nowMs + (repeats === 0 ? 0 : Math.min(2 ** (repeats - 1) * MINUTE_MS, HOUR_MS));
    return ownRefusals;
  }

  /** Must everything be graded again now? Returns true once after new refusals. */
  mustGradeAll(now: Date): boolean {
    if (this.#gradeAllAt === null || now.getTime() < this.#gradeAllAt) return false;
    this.#gradeAllAt = null;
    return true;
  }
}
