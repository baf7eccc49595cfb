import { rm, truncate } from "node:fs/promises";
import { join } from "node:path";
import type { AppendedRecord, Log, NewRecord } from "../../infra/log/log.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../infra/tree/note.ts";
import { mirrorOnce } from "../../pipelines/mirror/mirror.ts";
import { StoreSource } from "../../pipelines/published/open-source.ts";
import { readCheckpoint } from "../../pipelines/published/reader.ts";
import { addDays, dayOf } from "../../pipelines/record/time.ts";
import {
  correction,
  garbage,
  handshake,
  intent,
  later,
  listing,
  result,
  settlement,
} from "../pipelines/2-ingest/records.ts";
import { TRUST } from "../pipelines/4-publish/world.ts";
import { randomInts } from "./drawn.ts";
import { proveWhole } from "./oracle.ts";
import { jobOf, openProcess, type Process, ProcessClock, stubborn, type Testbed } from "./role-process.ts";
import { type Job, type Kind, oneOf, type Step, type Who } from "./schedule.ts";

const START = Date.parse("2026-11-10T00:30:00.000Z");
const MINUTE = 60_000;
const APPEND_TRIES = 40;
/** A mirror is told them: at its first use a record that has just begun may not name its own yet. */
const KEYS = { log: formatVkey(TRUST.log, ED25519), witness: formatVkey(TRUST.witness!, COSIGNATURE) };

/** Errors that a job may end with: what was done to it, and refusals that protect the record. */
const EXPECTED = new Set(["Dead", "Broken", "StoreDown", "LogDown", "LogBusy", "ClockRefused", "SourceDown"]);

export class ScheduleWorld {
  #now = START;
  #serial = 0;
  readonly #draw: () => number;
  readonly #acked: AppendedRecord[] = [];
  readonly #processes: [Process | null, Process | null] = [null, null];
  readonly #asleep = new Map<Who, { until: number; wake: () => void; ended: Promise<unknown> }>();
  /** How jobs ended, for whoever reads a failure. */
  readonly story: string[] = [];

  private constructor(
    private readonly bed: Testbed,
    seed: number,
  ) {
    this.#draw = randomInts(seed ^ 0x5eed);
  }

  /** Live through a schedule and prove at its end that nothing was lost and nothing doubled. @throws OracleBroken */
  static async run(bed: Testbed, seed: number, script: readonly Step[]): Promise<string[]> {
    const world = new ScheduleWorld(bed, seed);
    try {
      for (const [n, step] of script.entries()) await world.#step(step, n);
      await world.#prove();
      return world.story;
    } catch (error) {
      (error as Error).message = `seed ${seed}: ${(error as Error).message}\n${world.story.join("\n")}`;
      throw error;
    } finally {
      bed.clear();
      for (const { wake } of world.#asleep.values()) wake();
      await Promise.allSettled([...world.#asleep.values()].map(({ ended }) => ended));
      for (const process of world.#processes) await process?.close();
    }
  }

  async #step(step: Step, n: number): Promise<void> {
    for (const [who, { until }] of this.#asleep) if (until <= n) await this.#wake(who);
    this.story.push(JSON.stringify(step));
    // Time goes on between any two steps, so that no two records are of one moment.
    this.#now += MINUTE;
    switch (step.do) {
      case "append":
        return this.#append(step);
      case "meanwhile":
        return step.work(() => this.#append({ endpoints: 3, kinds: ["probe", "pay", "list"], copies: false, off: 0 }));
      case "kill":
        return this.#kill(step);
      case "storm": {
        const { lever } = await this.#process(step.who);
        return lever.storm(step.calls, () =>
          this.#draw() % step.oneIn ? null : oneOf(this.#draw, ["before", "after"]),
        );
      }
      case "sleep":
        return this.#sleep(step, n);
      case "race":
        await Promise.all(([0, 1] as const).map((who) => this.#job(who, step.job)));
        return;
      case "weather":
        return this.bed.weather(step.draw);
      case "jump": {
        (await this.#process(step.who)).clock.off = step.minutes * MINUTE;
        return;
      }
      case "mirror":
        return this.#mirror();
      case "pass":
        this.#now += step.minutes * MINUTE;
        return;
      default:
        await this.#job(step.who, step.do);
    }
  }

  async #process(who: Who): Promise<Process> {
    this.#processes[who] ??= await openProcess(this.bed, who, new ProcessClock(() => this.#now));
    return this.#processes[who];
  }

  /** A job that may be ended by what is done to it, and by nothing else. A process that sleeps does no other job. */
  async #job(who: Who, job: Job): Promise<void> {
    if (this.#asleep.has(who)) return;
    await this.#ends(jobOf(await this.#process(who), job), `${who} ${job}`);
  }

  async #ends(work: Promise<unknown>, what: string): Promise<void> {
    try {
      await work;
      this.story.push(`  ${what}: done`);
    } catch (error) {
      const { name, message } = error as Error;
      this.story.push(`  ${what}: ${name}: ${message.slice(0, 200)}`);
      if (!EXPECTED.has(name)) throw error;
    }
  }

  async #kill({ who, job, call, when, lake }: Step & { do: "kill" }): Promise<void> {
    if (this.#asleep.has(who)) return;
    const process = await this.#process(who);
    process.lever.dieAt(call, when);
    await this.#job(who, job);
    process.lever.kill();
    await process.close();
    this.#processes[who] = null;
    const path = join(this.bed.dir, `lake-${who}.duckdb`);
    if (lake === "damaged") await truncate(path, 5_000).catch(() => undefined);
    if (lake === "lost") for (const file of [path, `${path}.wal`]) await rm(file, { force: true });
  }

  async #sleep({ who, job, call, when, steps }: Step & { do: "sleep" }, n: number): Promise<void> {
    if (this.#asleep.has(who)) return;
    const process = await this.#process(who);
    const { asleep, wake } = process.lever.sleepAt(call, when);
    const ended = this.#ends(jobOf(process, job), `${who} ${job}, paused`);
    // A failure is told when it wakes; until then it is not an unhandled one.
    ended.catch(() => undefined);
    await Promise.race([asleep, ended]);
    this.#asleep.set(who, { until: n + 1 + steps, wake, ended });
  }

  async #wake(who: Who): Promise<void> {
    const { wake, ended } = this.#asleep.get(who)!;
    this.#asleep.delete(who);
    wake();
    await ended;
  }

  /** An observer of its own, with its own connection: it goes on until the log says that it has everything. */
  async #append({ endpoints, kinds, copies, off }: Omit<Step & { do: "append" }, "do">): Promise<void> {
    const log = await stubborn(() => this.bed.openLog());
    try {
      const records = kinds.flatMap((kind) => this.#seen(kind, `s${this.#draw() % endpoints}`, off));
      await this.#appended(log, records);
      if (copies) await this.#appended(log, records);
    } finally {
      await log.close();
    }
  }

  async #appended(log: Log, records: readonly NewRecord[]): Promise<void> {
    for (let n = 1; ; n++) {
      try {
        this.#acked.push(...(await log.append(records)));
        return;
      } catch (error) {
        this.story.push(`  append: ${(error as Error).name}`);
        if (!EXPECTED.has((error as Error).name) || n === APPEND_TRIES) throw error;
        if (n === APPEND_TRIES / 2) this.bed.clear();
      }
    }
  }

  #seen(kind: Kind, name: string, off: number): NewRecord[] {
    // Every record of its own second: an id is of its slot, and copies are made by appending again.
    const time = later(new Date(this.#now + off * MINUTE).toISOString(), (this.#serial++ % 50) * 1_000);
    const slot = `${this.#serial}`;
    const probe = handshake(name, time, { planned: "asked" }, slot);
    switch (kind) {
      case "probe":
        return [probe];
      case "list":
        return [listing(name, time, { seller_controlled: this.#draw() % 2 === 0 })];
      case "correct":
        return [correction(name, time, { id: `c${slot}`, issued_at: time })];
      case "garbage":
        return [garbage(name, `{"v":1, "slot": ${slot}`)];
      default: {
        const sent = intent(name, time, { input: "known_answer", attempt: this.#serial, nonce: `0x${slot}` });
        const outcome = this.#draw() % 3 ? 1 : 0;
        const came = result(name, sent.eventId, later(time, 300), { outcome });
        return [
          sent,
          came,
          settlement(name, sent.eventId, later(time, 600), { nonce: `0x${slot}`, tx: `0xtx${slot}` }),
        ];
      }
    }
  }

  /** A stranger's copy, which may be cut off and is brought up again by the next one. */
  async #mirror(): Promise<void> {
    const { publicStore, privateStore } = await stubborn(() => this.bed.openStores());
    const copy = await openDirectoryStore(join(this.bed.dir, "mirror"));
    const stateStore = await openDirectoryStore(join(this.bed.dir, "mirror-state"));
    try {
      if (!(await publicStore.head("checkpoint").catch(() => null))) return;
      const source = new StoreSource("the public store", publicStore);
      const clock = new ProcessClock(() => this.#now);
      await this.#ends(
        mirrorOnce({ source, publicStore: copy, stateStore, clock, keys: KEYS, maxAgeSeconds: 0 }),
        "mirror",
      );
    } finally {
      for (const store of [copy, stateStore, publicStore, privateStore]) await store.close();
    }
  }

  /** The weather clears, everybody wakes, and both processes bring everything home. */
  async #home(): Promise<readonly [Process, Process]> {
    this.bed.clear();
    for (const who of [...this.#asleep.keys()]) await this.#wake(who);
    const both = [await this.#process(0), await this.#process(1)] as const;
    // Past every jump of a clock.
    this.#now += 240 * MINUTE;
    for (const { lever, clock } of both) {
      lever.clear();
      clock.off = 0;
    }
    for (const { pipeline, clock } of both) await pipeline.grade(clock.now());
    return both;
  }

  /** Everything comes home, two days pass, their evidence is published. Then the oracle, and nothing is left to say. */
  async #prove(): Promise<void> {
    const both = await this.#home();
    // What the broker's clients meet is the weather of other schedules, too.
    const { publicStore, privateStore } = await stubborn(() => this.bed.openStores());
    const log = await stubborn(() => this.bed.openLog());
    try {
      const said = await readCheckpoint(publicStore, TRUST);
      for (const { pipeline, clock } of both) await pipeline.grade(clock.now());
      const again = await readCheckpoint(publicStore, TRUST);
      if (again?.size !== said?.size) throw new Error(`said again: ${said?.size} leaves became ${again?.size}`);
      // What a card stands on is public when its own day is closed.
      this.#now += 2 * 1_440 * MINUTE;
      const [one] = both;
      await one.pipeline.publishEvidence(one.clock.now());
      await one.pipeline.publishIndex();
      const closedBefore = addDays(dayOf(one.clock.now()), -1);
      const lakes = both.map(({ lake }) => ({ lake }));
      await proveWhole({ log, privateStore, publicStore, trust: TRUST, acked: this.#acked, lakes, closedBefore });
      await this.#mirror();
    } finally {
      for (const store of [publicStore, privateStore]) await store.close();
      await log.close();
    }
  }
}
