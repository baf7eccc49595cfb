import { Worker } from "node:worker_threads";
import type { Packed } from "../../infra/log/log.ts";
import type { Batch } from "./batch.ts";
import type { Answer, Ask, Range } from "./judging.ts";

/** A range on its way through a thread. */
export interface Job {
  /** Batches that nobody has taken yet, in their order. */
  readonly made: Batch[];
  /** Packed bytes on their way to the thread, and bytes of what it made. */
  bytes: number;
  /** Everything of it was made. */
  ended: boolean;
  /** Why nothing more comes of it. */
  failed: Error | null;
}

const sizeOf = ({ segment, rejected }: Batch): number => segment.byteLength + rejected.bytes.byteLength;

// The flags of a test runner or loader are not for this thread: it brings its own.
export const beginWorker = (): Worker => new Worker(new URL("./judge-worker.mjs", import.meta.url), { execArgv: [] });

/** Judges ranges beside us, one after the other (judging.ts). It takes half a second of a core until it can begin. */
export class JudgeThread {
  isReady = false;
  dead: Error | null = null;
  /** Batches that it made. */
  made = 0;
  readonly #worker: Worker;
  /** Ranges that it was given and has not ended, oldest first. */
  readonly #jobs: Job[] = [];

  /** @param changed whoever waits for something of it has to look again */
  constructor(
    begin: () => Worker,
    private readonly changed: () => void,
  ) {
    this.#worker = begin();
    this.#worker.on("message", (answer: Answer) => {
      this.#hear(answer);
      changed();
    });
    this.#worker.on("error", (error) => this.#died(error));
    this.#worker.on("exit", () => this.#died(new Error("a thread that judges records ended")));
  }

  /** Ranges that it still has to do. */
  get waiting(): number {
    return this.#jobs.length;
  }

  begin({ topic, partition, from, end }: Range): Job {
    const job: Job = { made: [], bytes: 0, ended: false, failed: this.dead };
    this.#jobs.push(job);
    this.#tell({ what: "begin", range: { topic, partition, from, end } });
    return job;
  }

  /** The next packed batch of the job that began last. */
  feed(job: Job, { first, next, bytes }: Packed): void {
    // What was fetched lies in one piece of memory with its neighbours, so it cannot be given away.
    const own = new Uint8Array(bytes);
    job.bytes += own.byteLength;
    this.#tell({ what: "packed", packed: { first, next, bytes: own } }, [own.buffer]);
  }

  /** The job that began last has all it needs. */
  end(): void {
    this.#tell({ what: "end" });
  }

  async stop(): Promise<void> {
    await this.#worker.terminate();
  }

  #tell(ask: Ask, moved: ArrayBuffer[] = []): void {
    if (!this.dead) this.#worker.postMessage(ask, moved);
  }

  #hear(answer: Answer): void {
    if (answer.what === "ready") {
      this.isReady = true;
      return;
    }
    const job = this.#jobs[0]!;
    if (answer.what === "taken") job.bytes -= answer.bytes;
    else if (answer.what === "failed") job.failed = new Error(answer.reason);
    else if (answer.what === "batch") {
      this.made++;
      job.made.push(answer.batch);
      job.bytes += sizeOf(answer.batch);
    } else {
      job.ended = job.failed === null;
      this.#jobs.shift();
    }
  }

  #died(error: Error): void {
    this.dead ??= error;
    for (const job of this.#jobs) job.failed ??= this.dead;
    this.#jobs.length = 0;
    this.changed();
  }
}

/** The next batch that was made of it. */
export function takeMade(job: Job): Batch | undefined {
  const batch = job.made.shift();
  if (batch) job.bytes -= sizeOf(batch);
  return batch;
}
