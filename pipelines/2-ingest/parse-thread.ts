import { Worker } from "node:worker_threads";
import type { LogRecord } from "../../infra/log/log.ts";
import type { Answer, Ask, Made, Packed, Parser } from "./batch.ts";

/** Bytes of records that the thread has and has not parsed. */
const MOST_BYTES = 16 * 1024 * 1024;

function packedOf(records: readonly LogRecord[]): Packed {
  const { topic, partition } = records[0]!;
  const numbers = new Float64Array(3 * records.length);
  const values = new Uint8Array(records.reduce((sum, { value }) => sum + value.byteLength, 0));
  let end = 0;
  for (const [i, { offset, appendedAt, value }] of records.entries()) {
    values.set(value, end);
    end += value.byteLength;
    numbers.set([offset, appendedAt.getTime(), end], 3 * i);
  }
  return {
    topic,
    partition,
    eventIds: records.map((one) => one.eventId),
    keys: records.map((one) => one.key),
    numbers,
    values,
  };
}

/** The flags of a test runner or loader are not for this thread: it brings its own. */
export const beginWorker = (): Worker => new Worker(new URL("./parse-worker.mjs", import.meta.url), { execArgv: [] });

interface Waiting {
  resolve: (made: Made) => void;
  reject: (error: Error) => void;
}

/** Parses batches beside us, one after the other. It takes half a second of a core until it can begin. */
export class ParseThread {
  readonly #worker: Worker;
  #dead: Error | null = null;
  /** Batches that it made. */
  made = 0;
  #bytes = 0;
  #room: () => void = () => undefined;
  /** Batches that ended and were not answered, oldest first. */
  readonly #ended: Waiting[] = [];

  constructor(begin: () => Worker = beginWorker) {
    this.#worker = begin();
    this.#worker.on("message", (answer: Answer) => this.#hear(answer));
    this.#worker.on("error", (error) => this.#died(error));
    this.#worker.on("exit", () => this.#died(new Error("the thread that parses records ended")));
  }

  /** Why it parses nothing any more; null while it lives. */
  get dead(): Error | null {
    return this.#dead;
  }

  readonly parse: Parser = (path) => {
    this.#tell({ what: "begin", path });
    return {
      add: async (records) => {
        const packed = packedOf(records);
        this.#bytes += packed.values.byteLength;
        this.#tell({ what: "records", packed }, [
          packed.values.buffer as ArrayBuffer,
          packed.numbers.buffer as ArrayBuffer,
        ]);
        while (this.#bytes > MOST_BYTES && !this.#dead)
          await new Promise<void>((resolve) => {
            this.#room = resolve;
          });
        if (this.#dead) throw this.#dead;
      },
      close: () =>
        new Promise((resolve, reject) => {
          if (this.#dead) return reject(this.#dead);
          this.#ended.push({ resolve, reject });
          this.#tell({ what: "end" });
        }),
    };
  };

  async stop(): Promise<void> {
    await this.#worker.terminate();
  }

  #tell(ask: Ask, moved: ArrayBuffer[] = []): void {
    if (!this.#dead) this.#worker.postMessage(ask, moved);
  }

  #hear(answer: Answer): void {
    if (answer.what === "parsed") {
      this.#bytes -= answer.bytes;
      this.#room();
    } else if (answer.what === "made") {
      this.made++;
      this.#ended.shift()!.resolve(answer.made);
    } else this.#ended.shift()!.reject(new Error(answer.reason));
  }

  #died(error: Error): void {
    this.#dead ??= error;
    for (const { reject } of this.#ended.splice(0)) reject(this.#dead);
    this.#room();
  }
}
