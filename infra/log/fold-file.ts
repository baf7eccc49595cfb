import { createHash, randomBytes } from "node:crypto";
import { createReadStream, promises as disk } from "node:fs";
import { dirname } from "node:path";
import { systemClock } from "../clock.ts";
import { nodeFs } from "../store/fs.ts";
import type { Logger } from "../telemetry.ts";
import { type Log, OffsetGone } from "./log.ts";

/** The state of a fold over a topic (what reading all records in order yields), which a file can store and restore. */
export interface StoredFold {
  /**
   * Version of the values and of the rules by which records change them. A file of another version is ignored. Change
   * it whenever you change the values or the rules; otherwise a fold continues from a state that the old rules made.
   */
  readonly form: string;
  /** Yields the whole state as small JSON values. No record is applied while the values are taken. */
  kept(): Iterable<unknown>;
  /** Adds one value that `kept` yielded. Called for all of them in their order, beginning with an empty fold. */
  restore(value: unknown): void;
  /** Empties the fold. */
  clear(): void;
}

/** Position up to which a fold has read one partition of its topic. */
export interface ReadPosition {
  partition: number;
  /** Offset of the first record that the fold has not read. */
  next: number;
  /** Event id of the record before `next`; null when the log no longer held that record. */
  last: string | null;
}

/** Folder in which a process stores its folds, and the id of the log whose records they have read. */
export interface FoldFolder {
  dir: string;
  /** Returns the id of the open log. @throws LogDown while the log is not open */
  logId: () => string;
  logger: Pick<Logger, "warn">;
}

/** First line of the file. `log` is the log's id, `read` the position up to which each partition was read. */
interface Head {
  form: string;
  log: string;
  topic: string;
  partitions: number;
  read: ReadPosition[];
}

/** Smallest number of applied records after which a new file is written. A start reads fewer records again quickly. */
const MIN_RECORDS_TO_SAVE = 1_000;
/** Characters written at once. The event loop runs between two writes. */
const WRITE_CHARS = 64 * 1024;
/** Length of the last line, which holds the SHA-256 of all bytes before it in hex. */
const CHECKSUM_LINE_BYTES = 65;
/** Age after which a draft counts as left behind by a killed process, ms. */
const STALE_DRAFT_MS = 3_600_000;

/**
 * A file with a fold's state and the log positions that it has read up to. At start, a process loads this file and then
 * reads only newer records, not the whole topic. The file is only a shortcut: one that is damaged, or belongs to
 * another log, to a log that was restored to an earlier state, or to other rules, is ignored, and the topic is read
 * from its start.
 */
export class FoldFile {
  /** Number of values in the file that was loaded or written last; 0 when there is none. */
  #valueCount = 0;

  constructor(
    readonly path: string,
    private readonly fold: StoredFold,
    private readonly folder: Omit<FoldFolder, "dir">,
  ) {}

  /**
   * Reports whether to write a new file: when a process that starts would have to read at least half as many records
   * after the file as the file has values.
   * @param applied number of records that were applied since the last file was written or loaded
   */
  isDue(applied: number): boolean {
    return applied >= Math.max(MIN_RECORDS_TO_SAVE, this.#valueCount / 2);
  }

  /**
   * Fills the empty fold from the file.
   * @returns the positions up to which the loaded fold has read; empty when no file was loaded and reading begins at
   * the topic's start
   * @throws the errors of the log's reads; the fold is then empty
   */
  async load(log: Pick<Log, "read" | "bounds" | "partitions">, topic: string): Promise<ReadPosition[]> {
    const positions = await this.#readHead(log, topic);
    if (positions === null) return [];
    try {
      this.#valueCount = -1;
      for await (const line of readLines(this.path, (await disk.stat(this.path)).size - CHECKSUM_LINE_BYTES)) {
        if (this.#valueCount++ >= 0) this.fold.restore(JSON.parse(line));
      }
      return positions;
    } catch (error) {
      this.#valueCount = 0;
      this.fold.clear();
      this.#ignoreFile("it could not be read", error);
      return [];
    }
  }

  /**
   * Writes the state of the fold. No record may be applied to the fold until `onTaken` is called, after the last
   * value was taken.
   * @throws errors of the disk; the old file then stays as it was
   */
  async save(topic: string, partitions: number, read: readonly ReadPosition[], onTaken: () => void): Promise<void> {
    const { path } = this;
    await disk.mkdir(dirname(path), { recursive: true });
    await this.#clearDrafts();
    // A random name, since two containers may share the folder, and the first process of each has the same pid.
    const draft = `${path}.${randomBytes(6).toString("hex")}.draft`;
    try {
      await this.#write(draft, topic, partitions, read, onTaken);
      await nodeFs.rename(draft, path);
    } catch (error) {
      // On a full disk, drafts that stay would take the space that others need.
      await disk.rm(draft, { force: true }).catch(() => undefined);
      throw error;
    }
    await nodeFs.sync(dirname(path));
  }

  async #write(
    draft: string,
    topic: string,
    partitions: number,
    read: readonly ReadPosition[],
    onTaken: () => void,
  ): Promise<void> {
    const { fold, folder } = this;
    const file = await nodeFs.openNew(draft);
    try {
      const hash = createHash("sha256");
      let values = 0;
      let text = `${JSON.stringify({ form: fold.form, log: folder.logId(), topic, partitions, read })}\n`;
      const flush = async (): Promise<void> => {
        const bytes = Buffer.from(text);
        text = "";
        hash.update(bytes);
        await file.write(bytes);
      };
      for (const value of fold.kept()) {
        values++;
        text += `${JSON.stringify(value)}\n`;
        if (text.length >= WRITE_CHARS) await flush();
      }
      onTaken();
      await flush();
      await file.write(Buffer.from(`${hash.digest("hex")}\n`));
      await file.sync();
      this.#valueCount = values;
    } finally {
      await file.close();
    }
  }

  /** Logs that the file could not be written. */
  warnNotStored(error: unknown): void {
    this.folder.logger.warn(
      { err: error, path: this.path },
      "a fold could not be kept; a start reads more of its topic",
    );
  }

  /** Returns the positions in the file's first line; null unless the file is whole and belongs to this log. */
  async #readHead(log: Pick<Log, "read" | "bounds" | "partitions">, topic: string): Promise<ReadPosition[] | null> {
    const { form } = this.fold;
    let head: Head;
    try {
      if (!(await isWhole(this.path))) return this.#ignoreFile("it is damaged");
      head = await readHead(this.path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      return this.#ignoreFile("it could not be read", error);
    }
    if (head.form !== form) return this.#ignoreFile(`it is of the form ${head.form}, not ${form}`);
    const isOfThisLog = head.log === this.folder.logId() && head.topic === topic && head.partitions === log.partitions;
    if (!isOfThisLog) return this.#ignoreFile("it is of another log");
    for (const read of head.read) {
      if (!(await continuesLastRead(log, topic, read)))
        return this.#ignoreFile("the log does not hold what it has read");
    }
    return head.read;
  }

  #ignoreFile(why: string, error?: unknown): null {
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
      // A recent draft may be one that another process is about to rename.
      const stat = await disk.stat(draft).catch(() => null);
      if (stat && systemClock.now().getTime() - stat.mtimeMs > STALE_DRAFT_MS) await disk.rm(draft, { force: true });
    }
  }
}

/**
 * Returns true if the log holds the record that was read last (the one before `next`), and also if the log has dropped
 * that record because of its age. Returns false if the log ends earlier, or holds another record there.
 */
async function continuesLastRead(
  log: Pick<Log, "read" | "bounds">,
  topic: string,
  { partition, next, last }: ReadPosition,
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
  if (size < CHECKSUM_LINE_BYTES) return false;
  const hash = createHash("sha256");
  if (size > CHECKSUM_LINE_BYTES)
    for await (const bytes of createReadStream(path, { end: size - CHECKSUM_LINE_BYTES - 1 })) hash.update(bytes);
  let expected = "";
  for await (const bytes of createReadStream(path, { start: size - CHECKSUM_LINE_BYTES })) expected += bytes;
  return expected === `${hash.digest("hex")}\n`;
}

async function readHead(path: string): Promise<Head> {
  for await (const line of readLines(path, (await disk.stat(path)).size)) return JSON.parse(line) as Head;
  throw new Error(`${path} is empty`);
}

/**
 * Yields the lines of the first `size` bytes. It splits at newline bytes only, since Node's line reader also splits at
 * characters that JSON does not escape.
 */
async function* readLines(path: string, size: number): AsyncGenerator<string> {
  if (size <= 0) return;
  let buffered: Buffer = Buffer.alloc(0);
  for await (const bytes of createReadStream(path, { end: size - 1 })) {
    buffered = Buffer.concat([buffered, bytes as Buffer]);
    let lineStart = 0;
    for (let end = buffered.indexOf(10); end >= 0; end = buffered.indexOf(10, lineStart)) {
      yield buffered.toString("utf8", lineStart, end);
      lineStart = end + 1;
    }
    buffered = buffered.subarray(lineStart);
  }
}
