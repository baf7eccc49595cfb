import type { Packed } from "../../infra/log/log.ts";
import { openPacked } from "../../infra/log/packed.ts";
import { type Batch, BatchMaker } from "./batch.ts";

/** Records [from, end) of one partition. */
export interface Range {
  topic: string;
  partition: number;
  from: number;
  end: number;
}

/** What a thread is told: a range begins, its packed batches one after the other, the range ends. */
export type Ask = { what: "begin"; range: Range } | { what: "packed"; packed: Packed } | { what: "end" };

/** What a thread tells, of the oldest range that has not ended. */
export type Answer =
  | { what: "ready" }
  /** So many packed bytes were used up. */
  | { what: "taken"; bytes: number }
  | { what: "batch"; batch: Batch }
  /** This range is given up: nothing more comes of it but its end. */
  | { what: "failed"; reason: string }
  | { what: "end" };

type Tell = (answer: Answer, moved?: ArrayBuffer[]) => void;

/** Memory of its own may be given away; a piece of a larger one is copied first. */
function whole(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const isWhole = bytes.buffer instanceof ArrayBuffer && bytes.byteLength === bytes.buffer.byteLength;
  return isWhole ? new Uint8Array(bytes.buffer as ArrayBuffer) : new Uint8Array(bytes);
}

/** The inside of a thread: opens, judges and packs the records of one range after the other. */
export class Judging {
  #range: Range | null = null;
  /** Null where the range failed. */
  #maker: BatchMaker | null = null;

  constructor(private readonly tell: Tell) {}

  async hear(ask: Ask): Promise<void> {
    try {
      if (ask.what === "begin") this.#begin(ask.range);
      else if (ask.what === "packed") await this.#take(ask.packed);
      else this.#close();
    } catch (error) {
      this.#maker = null;
      this.tell({ what: "failed", reason: (error as Error).message });
    }
    if (ask.what === "packed") this.tell({ what: "taken", bytes: ask.packed.bytes.byteLength });
    if (ask.what === "end") this.tell({ what: "end" });
  }

  #begin(range: Range): void {
    this.#range = range;
    this.#maker = new BatchMaker(range, range.from, range.end);
  }

  async #take(packed: Packed): Promise<void> {
    const range = this.#range;
    if (!range || !this.#maker) return;
    const opened = await openPacked(range.topic, range.partition, packed);
    for (let i = 0; i < opened.count; i++) {
      // Packed batches come whole: their first records may be of the range before, their last ones of the next.
      const offset = opened.offset(i);
      if (offset < this.#maker.next) continue;
      if (offset >= range.end) return;
      if (this.#maker.isFull) {
        const from: number = this.#maker.next;
        this.#close();
        this.#maker = new BatchMaker(range, from, range.end);
      }
      this.#maker.addOpened(opened, i);
    }
  }

  #close(): void {
    const maker = this.#maker;
    this.#maker = null;
    if (!maker || maker.isEmpty) return;
    const batch = maker.close();
    const segment = whole(batch.segment);
    const bytes = whole(batch.rejected.bytes);
    const rejected = { ...batch.rejected, bytes };
    this.tell({ what: "batch", batch: { ...batch, segment, rejected } }, [segment.buffer, bytes.buffer]);
  }
}
