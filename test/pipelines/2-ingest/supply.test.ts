import { randomBytes } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { Worker } from "node:worker_threads";
import { describe, expect, test } from "vitest";
import { RecordsLost } from "../../../infra/chain/errors.ts";
import { type Log, type LogRecord, OffsetGone } from "../../../infra/log/log.ts";
import { createLogger } from "../../../infra/telemetry.ts";
import { BATCH_BYTES, type Batch, readRejected, takeBatch } from "../../../pipelines/2-ingest/batch.ts";
import { beginWorker } from "../../../pipelines/2-ingest/judge-thread.ts";
import type { Range } from "../../../pipelines/2-ingest/judging.ts";
import { Supply, type Threads } from "../../../pipelines/2-ingest/supply.ts";
import { fc } from "../../helpers/histories.ts";
import { packedOf } from "./packed-log.ts";
import { at, garbage, handshake, later, listing } from "./records.ts";

/** Batches that threads make against those that are made here: the same bytes, whatever dies in between. */
const TOPIC = "observations.free";
const logger = createLogger("silent");
const FIRST = at("02:00:00");

/** Records of one partition in memory, also in packed batches of drawn sizes. */
class MemoryLog {
  readonly id = "memory";
  constructor(
    readonly records: readonly LogRecord[],
    private readonly sizes: readonly number[],
    private readonly compression = 4,
  ) {}

  async read(_topic: string, _partition: number, from: number, { maxRecords = 1_000, maxBytes = 1 } = {}) {
    const found: LogRecord[] = [];
    let bytes = 0;
    for (const record of this.records.slice(from, from + maxRecords)) {
      bytes += record.value.byteLength;
      if (found.length > 0 && bytes > maxBytes) break;
      found.push(record);
    }
    return found;
  }

  async *packed(_topic: string, _partition: number, from: number) {
    for (let at = 0, n = 0; at < this.records.length; n++) {
      const size = this.sizes[n % this.sizes.length]!;
      if (at + size > from) yield [await packedOf(this.records.slice(at, at + size), this.compression)];
      at += size;
    }
  }
}

const logOf = (records: readonly LogRecord[], sizes = [7], compression?: number): Log =>
  new MemoryLog(records, sizes, compression) as unknown as Log;

/** Handshakes and others, as a log hands them out; a few that no reader takes. */
function recordsOf(kinds: readonly number[], pad = 0): LogRecord[] {
  return kinds.map((kind, offset) => {
    const time = later(FIRST, offset * 60_000);
    const made =
      kind === 0
        ? garbage(`s${offset % 3}`, `{"n":${offset}`)
        : kind === 1
          ? listing(`s${offset % 3}`, time)
          : handshake(`s${offset % 3}`, time, { terms: null, says: "é".repeat(kind) + "x".repeat(pad) });
    return { ...made, topic: TOPIC, partition: 0, offset, appendedAt: new Date(Date.parse(time) + 5) };
  });
}

function rangesOf(end: number, rows: number): Range[] {
  const ranges: Range[] = [];
  for (let from = 0; from < end; from += rows)
    ranges.push({ topic: TOPIC, partition: 0, from, end: Math.min(end, from + rows) });
  return ranges;
}

/** What tells one batch from another. */
const shown = ({ segment, rejected, ...rest }: Batch) => ({
  ...rest,
  segment: Buffer.from(segment).toString("base64"),
  rejected: { ...rejected, bytes: Buffer.from(rejected.bytes).toString() },
});

async function madeHere(log: Log, ranges: readonly Range[]) {
  const batches = [];
  for (const range of ranges)
    for (let { from } = range; from < range.end; ) {
      const batch = await takeBatch(log, range, { from, end: range.end });
      if (!batch) break;
      from = batch.next;
      batches.push(shown(batch));
    }
  return batches;
}

async function supplied(supply: Supply, ranges: readonly Range[], isWanted = (_: Range) => true) {
  const batches = [];
  for await (const [, batch] of supply.batches(ranges, isWanted)) batches.push(shown(batch));
  return batches;
}

/** Threads that are begun once for a whole table of runs, each of which ends all of its ranges. */
class LastingWorkers {
  readonly #real: Worker[];
  readonly #ready: Promise<unknown>;
  #users: EventEmitter[] = [];

  constructor(count: number) {
    this.#real = Array.from({ length: count }, beginWorker);
    this.#ready = Promise.all(this.#real.map((worker) => once(worker, "message")));
  }

  /** What is ready from the start, and stays when it is stopped. */
  async threads(): Promise<Threads> {
    await this.#ready;
    this.#users = this.#real.map((worker, i) => {
      worker.removeAllListeners("message");
      worker.on("message", (answer) => this.#users[i]!.emit("message", answer));
      const postMessage = (ask: unknown, moved: ArrayBuffer[]) => worker.postMessage(ask, moved);
      return Object.assign(new EventEmitter(), { postMessage, terminate: async () => 0 });
    });
    let n = 0;
    const begin = () => {
      const user = this.#users[n++]!;
      queueMicrotask(() => user.emit("message", { what: "ready" }));
      return user as Worker;
    };
    return { count: this.#real.length, begin };
  }

  async end(): Promise<void> {
    for (const worker of this.#real) await worker.terminate();
  }
}

describe("batches made on threads", () => {
  test("are those that are made here, byte for byte, for any records, packed in any way, in any ranges", async () => {
    const workers = new LastingWorkers(2);
    let onThreads = 0;
    try {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 30, maxLength: 80 }),
          fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 4 }),
          fc.integer({ min: 1, max: 12 }),
          fc.constantFrom(0, 1, 4),
          async (kinds, sizes, rows, compression) => {
            const log = logOf(recordsOf(kinds), sizes, compression);
            const ranges = rangesOf(kinds.length, rows);
            const supply = new Supply(log, await workers.threads(), logger);
            expect(await supplied(supply, ranges)).toEqual(await madeHere(log, ranges));
            onThreads += supply.made;
          },
        ),
        { numRuns: 60 },
      );
    } finally {
      await workers.end();
    }
    // All but the first range, for which no thread was ready yet.
    expect(onThreads).toBeGreaterThanOrEqual(2 * 60);
  });

  test("end at the bytes of a batch as those that are made here", async () => {
    const large = "x".repeat(1_000_000);
    const records = recordsOf(Array.from({ length: 2.2 * 96 }, () => 1)).map((record) => ({
      ...record,
      value: Buffer.from(`{"large":"${large}"}`),
    }));
    const log = logOf(records, [3]);
    const workers = new LastingWorkers(1);
    try {
      const supply = new Supply(log, await workers.threads(), logger);
      const ranges = [...rangesOf(1, 1), { topic: TOPIC, partition: 0, from: 1, end: records.length }];
      const sizes = [];
      for await (const [, { first, next, rejected }] of supply.batches(ranges, () => true)) {
        const lines = readRejected(rejected.bytes);
        expect(lines.map(({ offset }) => offset)).toEqual(Array.from({ length: next - first }, (_, i) => first + i));
        sizes.push(lines.reduce((sum, { raw }) => sum + Buffer.from(raw, "base64").length, 0));
      }
      expect(sizes.length).toBe(4);
      for (const size of sizes.slice(1, 3)) expect(size - BATCH_BYTES).toBeLessThan(large.length + 20);
      for (const size of sizes.slice(1, 3)) expect(size).toBeGreaterThanOrEqual(BATCH_BYTES);
      expect(supply.made).toBeGreaterThanOrEqual(3);
    } finally {
      await workers.end();
    }
  });
});

/** Ends a thread with its nth message, as `what` says: one that it is told, or one that it tells. */
function killing(
  what: "is told" | "tells",
  n: number,
  kill: (worker: Worker) => void,
): Threads & { workers: Worker[] } {
  const workers: Worker[] = [];
  const begin = () => {
    const worker = beginWorker();
    const isFirst = workers.push(worker) === 1;
    let messages = 0;
    if (!isFirst) return worker;
    if (what === "tells") worker.on("message", () => messages++ === n && kill(worker));
    const post = worker.postMessage.bind(worker);
    worker.postMessage = (message: unknown, moved?: unknown) => {
      post(message, moved as ArrayBuffer[]);
      if (what === "is told" && messages++ === n) kill(worker);
    };
    return worker;
  };
  return { count: 1, begin, workers };
}

const KINDS = Array.from({ length: 60 }, (_, i) => i % 7);
/** Slow to take, so that threads come to be ready while there is something left. */
async function slowly(supply: Supply, ranges: readonly Range[], begun: () => boolean) {
  const batches = [];
  for await (const [, batch] of supply.batches(ranges, () => true)) {
    batches.push(shown(batch));
    while (batches.length === 1 && !begun()) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return batches;
}

describe("a thread that goes away", () => {
  const log = logOf(recordsOf(KINDS), [5]);
  const ranges = rangesOf(KINDS.length, 20);
  const terminate = (worker: Worker) => void worker.terminate();

  test.each([
    ...[0, 1, 3, 5, 6, 9].map((n) => ["is told", n] as const),
    ...[0, 1, 5, 6].map((n) => ["tells", n] as const),
  ])("with what it %s, message %i: its records are judged here, each once", async (what, n) => {
    let killed = false;
    const threads = killing(what, n, (worker) => {
      killed = true;
      terminate(worker);
    });
    const supply = new Supply(log, threads, logger);
    expect(await slowly(supply, ranges, () => killed)).toEqual(await madeHere(log, ranges));
    expect(killed).toBe(true);
  });

  test("by an error of its own, before it can begin", async () => {
    const begin = () => new Worker("throw new Error('no such thread')", { eval: true });
    const supply = new Supply(log, { count: 2, begin }, logger);
    expect(await supplied(supply, ranges)).toEqual(await madeHere(log, ranges));
    expect(supply.made).toBe(0);
  });

  test("is not there any more once all is taken, or whoever took it gave up", async () => {
    for (const all of [true, false]) {
      const threads = killing("is told", -1, terminate);
      const supply = new Supply(log, { ...threads, count: 2 }, logger);
      for await (const _ of supply.batches(ranges, () => true)) if (!all) break;
      expect(threads.workers.map(({ threadId }) => threadId)).toEqual([-1, -1]);
    }
  });
});

describe("what a thread cannot judge", () => {
  const records = recordsOf(KINDS);
  const ranges = rangesOf(KINDS.length, 20);

  test("bytes that are not what was written: read again, and judged here", async () => {
    const log = logOf(records, [5]);
    const packed = log.packed!.bind(log);
    let damaged = 0;
    log.packed = async function* (...place) {
      for await (const batches of packed(...place)) {
        const [one] = batches;
        // Of the last range, when a thread is ready: in its middle, behind the head that a reader splits by.
        if (one!.first >= 45) {
          damaged++;
          one!.bytes[one!.bytes.length - 1]! ^= 1 + (randomBytes(1)[0]! & 0x7e);
        }
        yield batches;
      }
    };
    const workers = new LastingWorkers(1);
    try {
      const supply = new Supply(log, await workers.threads(), logger);
      expect(await supplied(supply, ranges)).toEqual(await madeHere(log, ranges));
      expect(damaged).toBeGreaterThan(0);
    } finally {
      await workers.end();
    }
  });

  test.each([
    ["records that are gone", () => new OffsetGone(TOPIC, 0, 20, 33), RecordsLost],
    ["a log that is down", () => new Error("nobody answers"), Error],
  ])("%s: said as the log says it", async (_what, made, kind) => {
    const log = logOf(records, [5]);
    // biome-ignore lint/correctness/useYield: it throws before it has any
    log.packed = async function* () {
      throw made();
    };
    const workers = new LastingWorkers(1);
    try {
      const supply = new Supply(log, await workers.threads(), logger);
      await expect(supplied(supply, ranges)).rejects.toThrow(kind);
    } finally {
      await workers.end();
    }
  });

  test("what nobody wants any more is left out, and what is wanted again is not", async () => {
    const log = logOf(records, [5]);
    for (const again of [false, true]) {
      const workers = new LastingWorkers(1);
      try {
        const supply = new Supply(log, await workers.threads(), logger);
        let asked = 0;
        const isWanted = ({ from }: Range) => from !== 20 || (again && asked++ > 0);
        const wanted = await madeHere(log, again ? ranges : [ranges[0]!, ranges[2]!]);
        expect((await supplied(supply, ranges, isWanted)).map(({ first }) => first)).toEqual(
          wanted.map(({ first }) => first),
        );
      } finally {
        await workers.end();
      }
    }
  });
});
