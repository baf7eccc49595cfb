import { closeSync, openSync, writeSync } from "node:fs";
import { rm } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import { RecordsLost } from "../../infra/chain/commit.ts";
import { type Log, type LogRecord, OffsetGone } from "../../infra/log/log.ts";
import { type Rejected, readRow } from "./row.ts";
import { lineOf } from "./segment.ts";

/**
 * Bounds of one batch, and so of one segment. 122,880 rows are one row group of the engine: a full one goes straight into
 * its file, a smaller one through the write-ahead log and then again.
 */
export const BATCH_ROWS = 122_880;
export const BATCH_BYTES = 96 * 1024 * 1024;
/** Characters of lines that are held before they are written. */
const HELD_CHARS = 1024 * 1024;

/** Records that the readers of today do not take, as the lines of a segment's rejected file. */
export interface RejectedLines {
  records: number;
  bytes: Uint8Array;
  /** Of the first of them; null where there is none. */
  reason: string | null;
}

/** Records [first, next) of one partition, read and validated. */
export interface Batch {
  topic: string;
  partition: number;
  first: number;
  next: number;
  lastEventId: string;
  rows: number;
  rejected: RejectedLines;
  /** File with the rows as lines (segment.ts), on this machine; whoever takes the batch removes it. */
  lines: string;
}

/** What is made of the records of one batch. */
export type Made = Pick<Batch, "rows" | "rejected" | "lines">;

/** Takes the records of one partition in their order: what passes becomes a line, the rest is kept as it came. */
export class BatchMaker {
  readonly #file: number;
  #held = "";
  #rows = 0;
  readonly #rejected: Rejected[] = [];

  /** @param path of the file with the lines, made here */
  constructor(private readonly path: string) {
    this.#file = openSync(path, "wx");
  }

  add(records: readonly LogRecord[]): void {
    for (const record of records) {
      const read = readRow(record);
      if (read.ok) {
        this.#held += lineOf(read.row);
        this.#rows++;
      } else this.#rejected.push(read.rejected);
      if (this.#held.length > HELD_CHARS) this.#write();
    }
  }

  /** Nothing may be added any more. */
  close(): Made {
    this.#write();
    closeSync(this.#file);
    const reason = this.#rejected[0]?.reason ?? null;
    const rejected = { records: this.#rejected.length, bytes: rejectedBytes(this.#rejected), reason };
    return { rows: this.#rows, rejected, lines: this.path };
  }

  /** What was added is nobody's. */
  drop(): void {
    closeSync(this.#file);
  }

  #write(): void {
    const bytes = Buffer.from(this.#held, "utf8");
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#file, bytes, at);
    this.#held = "";
  }
}

/** Lines of a segment's rejected file. */
export const rejectedBytes = (rejected: readonly Rejected[]): Uint8Array =>
  Buffer.from(rejected.map((line) => `${JSON.stringify(line)}\n`).join(""), "utf8");

export const readRejected = (bytes: Uint8Array): Rejected[] =>
  Buffer.from(bytes)
    .toString("utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Rejected);

/** Records on their way to the thread: values in one piece, since each piece costs a message as much as a thousand bytes. */
export interface Packed {
  topic: string;
  partition: number;
  eventIds: string[];
  keys: string[];
  /** Three numbers a record: offset, Unix ms of the append, where its value ends. */
  numbers: Float64Array;
  values: Uint8Array;
}

/** What the thread is told: a batch begins, records of it, it ends. One batch after the other. */
export type Ask = { what: "begin"; path: string } | { what: "records"; packed: Packed } | { what: "end" };
/** What it answers: records were parsed; a batch was made, or failed and nothing more comes of it. */
export type Answer =
  | { what: "parsed"; bytes: number }
  | { what: "made"; made: Made }
  | { what: "failed"; reason: string };

function recordsOf({ topic, partition, eventIds, keys, numbers, values }: Packed): LogRecord[] {
  let from = 0;
  return eventIds.map((eventId, i) => {
    const [offset, appendedMs, end] = [numbers[3 * i]!, numbers[3 * i + 1]!, numbers[3 * i + 2]!];
    const value = values.subarray(from, end);
    from = end;
    return { topic, partition, offset, eventId, key: keys[i]!, appendedAt: new Date(appendedMs), value };
  });
}

/** The inside of the thread. What fails is told once, at the end of its batch. */
export class ParsingBeside {
  #maker: BatchMaker | null = null;
  #failed: string | null = null;

  constructor(private readonly tell: (answer: Answer) => void) {}

  #end(maker: BatchMaker): void {
    this.#maker = null;
    this.tell({ what: "made", made: maker.close() });
  }

  hear(ask: Ask): void {
    try {
      if (ask.what === "begin") {
        this.#failed = null;
        this.#maker = new BatchMaker(ask.path);
      } else if (ask.what === "records") this.#maker?.add(recordsOf(ask.packed));
      else if (this.#maker) this.#end(this.#maker);
    } catch (error) {
      this.#maker?.drop();
      this.#maker = null;
      this.#failed ??= (error as Error).message;
    }
    if (ask.what === "records") this.tell({ what: "parsed", bytes: ask.packed.values.byteLength });
    if (ask.what === "end" && this.#failed !== null) this.tell({ what: "failed", reason: this.#failed });
  }
}

const READ_RECORDS = 1_000;
const READ_BYTES = 8 * 1024 * 1024;
/**
 * After so many records the loop has its turn: what is committed and loaded beside waits for it at each statement, while
 * the engine stands still. Records that lie ready never wait for anything, and would keep it to the end of the batch.
 */
const TURN_RECORDS = 100;

/** Parses and validates the records of one batch: here, or on a thread (parse-thread.ts). */
interface Parsing {
  /** Resolves when more may be added. */
  add(records: readonly LogRecord[]): Promise<void>;
  /** All were added. */
  close(): Promise<Made>;
}

/** Begins a batch whose lines go to the file of this path. */
export type Parser = (path: string) => Parsing;

/** On the thread of the caller. */
export const parseHere: Parser = (path) => {
  const maker = new BatchMaker(path);
  return {
    async add(records) {
      for (let at = 0; at < records.length; at += TURN_RECORDS) {
        maker.add(records.slice(at, at + TURN_RECORDS));
        await setImmediate();
      }
    },
    close: async () => maker.close(),
  };
};

/** A batch whose records were all read. */
export interface Taken {
  /** Offset behind its last record. */
  next: number;
  /** Resolves once they are validated. Its lines are removed where it fails. */
  batch: Promise<Batch>;
  /** Remove what was made of it: nobody wants it. */
  drop(): Promise<void>;
}

/**
 * The next batch of a partition, from `from` on and below `end`; null when nothing is there.
 * @param path of a file for its lines, which nobody has yet
 * @throws RecordsLost when the log no longer keeps `from`.
 */
export async function takeBatch(
  log: Log,
  { topic, partition }: { topic: string; partition: number },
  { from, end }: { from: number; end: number },
  { parse, path }: { parse: Parser; path: string },
): Promise<Taken | null> {
  const remove = () => rm(path, { force: true });
  let [next, rows, bytes, lastEventId] = [from, 0, 0, ""];
  let parsing: Parsing | null = null;
  try {
    while (rows < BATCH_ROWS && bytes < BATCH_BYTES && next < end) {
      const found = await log
        .read(topic, partition, next, {
          maxRecords: Math.min(READ_RECORDS, BATCH_ROWS - rows, end - next),
          maxBytes: Math.min(READ_BYTES, BATCH_BYTES - bytes),
        })
        .catch((error: unknown) => refuseGone(error, { topic, partition }, next));
      const records = found.filter(({ offset }) => offset < end);
      if (records.length === 0) break;
      parsing ??= parse(path);
      await parsing.add(records);
      const last = records.at(-1)!;
      [next, rows, lastEventId] = [last.offset + 1, rows + records.length, last.eventId];
      for (const { value } of records) bytes += value.byteLength;
    }
  } catch (error) {
    await parsing?.close().catch(() => undefined);
    await remove();
    throw error;
  }
  if (!parsing) return null;
  const made = parsing.close();
  const batch = made.then((all): Batch => ({ topic, partition, first: from, next, lastEventId, ...all }));
  // Whoever takes it hears of a failure too.
  batch.catch(remove);
  return { next, batch, drop: () => batch.then(remove, remove) };
}

/** @throws RecordsLost in the place of the log's own error, since what is gone was never committed; else what came */
function refuseGone(error: unknown, { topic, partition }: { topic: string; partition: number }, from: number): never {
  if (error instanceof OffsetGone) throw new RecordsLost(`${topic}/${partition}`, from, error.start);
  throw error;
}

/** A piece that was made: finished in its turn, or dropped where one before it failed. */
export interface Piece {
  finish(): Promise<void>;
  drop(): Promise<void>;
}

const handled = <T>(work: Promise<T>): Promise<T> => {
  // It is awaited later; until then a failure must not count as unhandled.
  work.catch(() => {});
  return work;
};

/**
 * Pieces on their way through two steps, each step in order of arrival: while one is finished the next one is made, and
 * the caller works on one more. A failure stops what comes after it, and whoever adds next or ends the line hears of it.
 */
export class Line {
  #older: Promise<void> = Promise.resolve();
  #making: Promise<unknown> = Promise.resolve();
  #finishing: Promise<void> = Promise.resolve();

  /**
   * Begin to make a piece as soon as the one before it is made, and the one before that finished.
   * @param make gets what resolves when all earlier pieces are finished; null when there is nothing to finish
   */
  async add(make: (before: Promise<void>) => Promise<Piece | null>): Promise<void> {
    await this.#making;
    await this.#older;
    const before = this.#finishing;
    const making = handled(make(before));
    this.#older = before;
    this.#making = making;
    this.#finishing = handled(finish(making, before));
  }

  /** Resolves when nothing is under way any more, also after a failure, which it then throws. */
  async end(): Promise<void> {
    for (const one of await Promise.allSettled([this.#older, this.#making, this.#finishing])) {
      if (one.status === "rejected") throw one.reason;
    }
  }
}

async function finish(making: Promise<Piece | null>, before: Promise<void>): Promise<void> {
  const made = await making;
  try {
    await before;
  } catch (error) {
    await made?.drop();
    throw error;
  }
  await made?.finish();
}
