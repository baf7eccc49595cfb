import { availableParallelism } from "node:os";
import { type TransferListItem, Worker } from "node:worker_threads";

interface Waiting {
  resolve: (answer: object) => void;
  reject: (error: Error) => void;
}

/**
 * A thread that answers questions: what it is posted carries a number under `ask`, and so does each answer. Whatever it
 * dies of, everybody who waits for it or asks it later is told. It is plain JavaScript, so that it starts without a loader,
 * and keeps a process alive only while it has work.
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
      if (this.#waiting.size === 0) this.#worker.unref();
    });
    this.#worker.on("error", died);
    this.#worker.on("exit", () => died(new Error(`a thread that ${does} ended`)));
  }

  /** Questions without an answer yet. */
  get waiting(): number {
    return this.#waiting.size;
  }

  get isDead(): boolean {
    return this.#dead !== null;
  }

  /** @param moved memory that is the thread's from now on @throws when the thread dies */
  ask<T extends object>(question: object, moved: readonly TransferListItem[] = []): Promise<T> {
    if (this.#dead) return Promise.reject(this.#dead);
    const ask = this.#asked++;
    return new Promise<object>((resolve, reject) => {
      this.#waiting.set(ask, { resolve, reject });
      this.#worker.ref();
      this.#worker.postMessage({ ...question, ask }, moved);
    }) as Promise<T>;
  }

  /** Whoever still waits is told that it ended. */
  async close(): Promise<void> {
    await this.#worker.terminate();
  }
}

/**
 * Threads of one kind, begun as they are needed: a question goes to one that has none, to a new one while there are cores
 * without, else to the one with the fewest. One that died is asked nothing more: who waited for it was told, and nothing is
 * known of what he asked. Memory is what askers hand in: wait for an answer before asking more than a few.
 */
export class ThreadPool {
  #threads: AskedThread[] = [];
  #closed = false;

  /** @param does what a thread is for, as in "a thread that writes files" @param width threads at most (default: one a core) */
  constructor(
    private readonly file: URL,
    private readonly does: string,
    readonly width: number = availableParallelism(),
  ) {}

  /** Is there a thread already? */
  get hasBegun(): boolean {
    return this.#threads.length > 0;
  }

  /** @param moved memory that is the thread's from now on @throws when its thread dies, or the pool is closed */
  async ask<T extends object>(question: object, moved: readonly TransferListItem[] = []): Promise<T> {
    if (this.#closed) throw new Error(`no thread that ${this.does} any more: they are closed`);
    this.#threads = this.#threads.filter(({ isDead }) => !isDead);
    let least = this.#threads[0];
    for (const one of this.#threads) if (one.waiting < least!.waiting) least = one;
    if (!least || (least.waiting > 0 && this.#threads.length < this.width)) least = this.#begin();
    return least.ask<T>(question, moved);
  }

  /** Whoever still waits is told that his thread ended. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }

  #begin(): AskedThread {
    const thread = new AskedThread(this.file, this.does);
    this.#threads.push(thread);
    return thread;
  }
}
