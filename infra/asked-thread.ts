import { type TransferListItem, Worker } from "node:worker_threads";

interface Waiting {
  resolve: (answer: object) => void;
  reject: (error: Error) => void;
}

/**
 * A thread that answers questions: what it is posted carries a number under `ask`, and so does each answer. Whatever it
 * dies of, everybody who waits for it or asks it later is told. It is plain JavaScript, so that it starts without a loader.
 */
export class AskedThread {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #asked = 0;
  #dead: Error | null = null;

  /** @param does what it is for, as in "a thread that writes files", for messages */
  constructor(file: URL, does: string) {
    // The flags of a test runner or loader are not for this thread: it needs none.
    this.#worker = new Worker(file, { execArgv: [] });
    const died = (error: Error) => {
      this.#dead ??= error;
      for (const { reject } of this.#waiting.values()) reject(this.#dead);
      this.#waiting.clear();
    };
    this.#worker.on("message", ({ ask, ...answer }: { ask: number }) => {
      this.#waiting.get(ask)?.resolve(answer);
      this.#waiting.delete(ask);
    });
    this.#worker.on("error", died);
    this.#worker.on("exit", () => died(new Error(`a thread that ${does} ended`)));
  }

  /** Questions without an answer yet. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** @param moved memory that is the thread's from now on @throws when the thread dies */
  ask<T extends object>(question: object, moved: readonly TransferListItem[] = []): Promise<T> {
    if (this.#dead) return Promise.reject(this.#dead);
    const ask = this.#asked++;
    return new Promise<object>((resolve, reject) => {
      this.#waiting.set(ask, { resolve, reject });
      this.#worker.postMessage({ ...question, ask }, moved);
    }) as Promise<T>;
  }

  /** Whoever still waits is told that it ended. */
  async close(): Promise<void> {
    await this.#worker.terminate();
  }
}
