import type { LogRecord } from "../log.ts";
import type { RawBatch } from "./record-batch.ts";

/** What lies ready of one partition from an offset on: records of one opened batch, and batches still closed. */
export class Ahead {
  #records: LogRecord[] = [];
  #at = 0;
  #openBytes = 0;
  #batches: RawBatch[] = [];
  #closedBytes = 0;
  /** Where the next fetch begins. */
  end: number;
  /** Bytes of the last fetch. */
  fetched = 0;
  /** The next fetch, under way; undefined when it brought nothing or failed. */
  coming: Promise<RawBatch[] | undefined> | null = null;

  /** @param from offset of the next record to be given */
  constructor(public from: number) {
    this.end = from;
  }

  /** Bytes that are held here, but for what is coming. */
  get bytes(): number {
    return this.#openBytes + this.#closedBytes;
  }

  /** Bytes of batches that are not opened yet. */
  get closedBytes(): number {
    return this.#closedBytes;
  }

  /** The next record of the batch that is open. */
  peek(): LogRecord | undefined {
    return this.#records[this.#at];
  }

  /** What was peeked at is given. */
  pass(): void {
    this.from = this.#records[this.#at++]!.offset + 1;
  }

  /** The next closed batch, to be opened: what is open is used up. */
  batch(): RawBatch | undefined {
    this.#records = [];
    this.#at = 0;
    this.#openBytes = 0;
    const batch = this.#batches.shift();
    this.#closedBytes -= batch?.bytes.length ?? 0;
    return batch;
  }

  /** A batch comes whole: what lies before the offset that was asked for is not given. */
  open(records: readonly LogRecord[]): void {
    this.#records = records.filter(({ offset }) => offset >= this.from);
    this.#openBytes = records.reduce((sum, { value }) => sum + value.byteLength, 0);
  }

  add(batches: readonly RawBatch[]): void {
    this.fetched = batches.reduce((sum, { bytes }) => sum + bytes.length, 0);
    this.#batches.push(...batches.filter(({ next }) => next > this.from));
    this.#closedBytes = this.#batches.reduce((sum, { bytes }) => sum + bytes.length, 0);
    this.end = batches.at(-1)!.next;
  }
}
