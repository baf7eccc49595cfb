import { createHash } from "node:crypto";
import { createReadStream, promises as disk } from "node:fs";
import { dirname } from "node:path";
import { systemClock } from "../clock.ts";
import { nodeFs } from "../store/fs.ts";
import type { Logger } from "../telemetry.ts";
import { type Log, OffsetGone } from "./log.ts";

/** What a fold of a topic holds, so that it can be kept and begun from. */
export interface KeptFold {
  /**
   * Version of the values of {@link kept} and of the rules by which records change them. A file of another form is not read.
   * Change the form whenever you change the values or the rules; otherwise a fold goes on from what the old rules made.
   */
  readonly form: string;
  /** All of it, as JSON values, each of them small. No record is applied while they are taken. */
  kept(): Iterable<unknown>;
  /** One of those values, in their order, into an empty fold. */
  restore(value: unknown): void;
  /** Forget everything. */
  clear(): void;
}

/** How far a fold has read one partition. */
export interface ReadTo {
  partition: number;
  next: number;
  /** Event id of the record before `next`; null: it was not kept any more. */
  last: string | null;
}

/** Where a process keeps its folds, and of which log they are. */
export interface FoldFolder {
  dir: string;
  /** @throws LogDown while the log is not open */
  logId: () => string;
  logger: Pick<Logger, "warn">;
}

interface Head {
  form: string;
  log: string;
  topic: string;
  partitions: number;
  read: ReadTo[];
}

/** Records after which a new file is due at least: fewer are read again in no time. */
const DUE_AFTER = 1_000;
/** Characters of one write: between two of them others have their turn. */
const PIECE = 64 * 1024;
/** The last line: the SHA-256 of all before it, in hex. */
const SUM_BYTES = 65;
/** A draft that old was left by a process that was killed, ms. */
const DRAFT_IS_LEFT_MS = 3_600_000;

/**
 * A fold as it stood at named positions of a named log, on this process's own disk: a start reads it and what came since,
 * instead of the whole topic. It is never more than a shortcut. One that is damaged, of another log, of a log that was put
 * back to an earlier state, or of other rules is passed over, and the topic is folded from its start.
 */
export class FoldFile {
  #values = 0;

  constructor(
    readonly path: string,
    private readonly fold: KeptFold,
    private readonly folder: Omit<FoldFolder, "dir">,
  ) {}

  /** Is a new file worth its writing? Once what a start would read again is half of what the file holds. */
  isDue(applied: number): boolean {
    return applied >= Math.max(DUE_AFTER, this.#values / 2);
  }

  /**
   * Fill the empty fold. @returns how far it has read; nothing where it begins at the topic's start
   * @throws what the log's reads throw, with the fold empty
   */
  async load(log: Pick<Log, "read" | "bounds" | "partitions">, topic: string): Promise<ReadTo[]> {
    const read = await this.#head(log, topic);
    if (read === null) return [];
    try {
      this.#values = -1;
      for await (const line of linesOf(this.path, (await disk.stat(this.path)).size - SUM_BYTES)) {
        if (this.#values++ >= 0) this.fold.restore(JSON.parse(line));
      }
      return read;
    } catch (error) {
      this.#values = 0;
      this.fold.clear();
      this.#passOver("it could not be read", error);
      return [];
    }
  }

  /**
   * Write what the fold holds. Nothing is applied to it before `taken` was called.
   * @throws what the disk throws; the old file stands as it did
   */
  async save(topic: string, partitions: number, read: readonly ReadTo[], taken: () => void): Promise<void> {
    const { fold, folder, path } = this;
    await disk.mkdir(dirname(path), { recursive: true });
    await this.#clearDrafts();
    const draft = `${path}.${process.pid}.draft`;
    await disk.rm(draft, { force: true });
    const file = await nodeFs.openNew(draft);
    try {
      const sum = createHash("sha256");
      let values = 0;
      let text = `${JSON.stringify({ form: fold.form, log: folder.logId(), topic, partitions, read })}\n`;
      const put = async (): Promise<void> => {
        const bytes = Buffer.from(text);
        text = "";
        sum.update(bytes);
        await file.write(bytes);
      };
      for (const value of fold.kept()) {
        values++;
        text += `${JSON.stringify(value)}\n`;
        if (text.length >= PIECE) await put();
      }
      taken();
      await put();
      await file.write(Buffer.from(`${sum.digest("hex")}\n`));
      await file.sync();
      this.#values = values;
    } finally {
      await file.close();
    }
    await nodeFs.rename(draft, path);
    await nodeFs.sync(dirname(path));
  }

  /** It could not be written: that is logged, and no more. */
  notKept(error: unknown): void {
    this.folder.logger.warn(
      { err: error, path: this.path },
      "a fold could not be kept; a start reads more of its topic",
    );
  }

  /** How far the file has read, if it is whole and of this log; else null. */
  async #head(log: Pick<Log, "read" | "bounds" | "partitions">, topic: string): Promise<ReadTo[] | null> {
    const { form } = this.fold;
    let head: Head;
    try {
      if (!(await isWhole(this.path))) return this.#passOver("it is damaged");
      head = await headOf(this.path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      return this.#passOver("it could not be read", error);
    }
    if (head.form !== form) return this.#passOver(`it is of the form ${head.form}, not ${form}`);
    const ours = head.log === this.folder.logId() && head.topic === topic && head.partitions === log.partitions;
    if (!ours) return this.#passOver("it is of another log");
    for (const read of head.read) {
      if (!(await stands(log, topic, read))) return this.#passOver("the log does not hold what it has read");
    }
    return head.read;
  }

  #passOver(why: string, error?: unknown): null {
    const { path } = this;
    this.folder.logger.warn(
      { err: error, path },
      `a kept fold is passed over, and its topic read from the start: ${why}`,
    );
    return null;
  }

  async #clearDrafts(): Promise<void> {
    for (const name of await disk.readdir(dirname(this.path))) {
      if (!name.endsWith(".draft")) continue;
      const draft = `${dirname(this.path)}/${name}`;
      // Another process may be about to rename it.
      const stat = await disk.stat(draft).catch(() => null);
      if (stat && systemClock.now().getTime() - stat.mtimeMs > DRAFT_IS_LEFT_MS) await disk.rm(draft, { force: true });
    }
  }
}

/** Does the log hold the record before `next`, as far as it keeps any from then? */
async function stands(
  log: Pick<Log, "read" | "bounds">,
  topic: string,
  { partition, next, last }: ReadTo,
): Promise<boolean> {
  const { start, end } = await log.bounds(topic, partition);
  if (end < next) return false;
  if (last === null || next - 1 < start) return true;
  try {
    const [record] = await log.read(topic, partition, next - 1, { maxRecords: 1 });
    return record?.offset === next - 1 && record.eventId === last;
  } catch (error) {
    if (error instanceof OffsetGone) return true;
    throw error;
  }
}

async function isWhole(path: string): Promise<boolean> {
  const size = (await disk.stat(path)).size;
  if (size < SUM_BYTES) return false;
  const sum = createHash("sha256");
  if (size > SUM_BYTES)
    for await (const bytes of createReadStream(path, { end: size - SUM_BYTES - 1 })) sum.update(bytes);
  let said = "";
  for await (const bytes of createReadStream(path, { start: size - SUM_BYTES })) said += bytes;
  return said === `${sum.digest("hex")}\n`;
}

async function headOf(path: string): Promise<Head> {
  for await (const line of linesOf(path, (await disk.stat(path)).size)) return JSON.parse(line) as Head;
  throw new Error(`${path} is empty`);
}

/** Lines of the first `size` bytes. By bytes: line readers end lines at characters that stand unescaped in JSON. */
async function* linesOf(path: string, size: number): AsyncGenerator<string> {
  if (size <= 0) return;
  let held: Buffer = Buffer.alloc(0);
  for await (const bytes of createReadStream(path, { end: size - 1 })) {
    held = Buffer.concat([held, bytes as Buffer]);
    let from = 0;
    for (let end = held.indexOf(10); end >= 0; end = held.indexOf(10, from)) {
      yield held.toString("utf8", from, end);
      from = end + 1;
    }
    held = held.subarray(from);
  }
}
