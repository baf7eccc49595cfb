import { Worker } from "node:worker_threads";
import { createEgress, type EgressOptions } from "./create.ts";
import type { Egress, EgressRequest, EgressResult } from "./egress.ts";

/** What a thread can be told: all but functions. */
export interface ThreadOptions extends Omit<EgressOptions, "resolve" | "loop"> {
  /** For development: the one address that every name is at. */
  resolveTo?: string;
}

/** To the thread: a request, or that one is called off. */
type ToThread = { id: number; request: EgressRequest } | { id: number; off: true };
/** What a fetch came to, or what it threw, which is its caller's. */
type FromThread = { id: number; result: EgressResult } | { id: number; error: Error };

interface Waiting {
  resolve: (result: EgressResult) => void;
  reject: (error: Error) => void;
}

/**
 * Egress on a thread of its own. Whatever else this process does (it grades, publishes and answers on its own loop) no
 * answer of a stranger waits for it, so a latency holds the other side's time and the network's, and nothing of ours.
 * The thread begins with the first fetch and holds the process open only while one is under way. When it ends by itself,
 * that is a fault of ours, and ends the process.
 */
class ThreadEgress implements Egress {
  /** Knows the rules without a thread, and what is said of a fetch that must not leave. */
  readonly #here: Egress;
  #worker: Worker | null = null;
  readonly #underway = new Map<number, Waiting>();
  #lastId = 0;
  #idle: (() => void) | null = null;
  #closed = false;

  constructor(private readonly options: ThreadOptions) {
    this.#here = createEgress(options);
  }

  validate(url: string): ReturnType<Egress["validate"]> {
    return this.#here.validate(url);
  }

  async fetch(asked: EgressRequest): Promise<EgressResult> {
    const { signal, ...request } = asked;
    if (this.#closed || signal?.aborted) return this.#here.fetch(asked);
    this.#worker ??= this.#begin();
    const worker = this.#worker;
    const id = ++this.#lastId;
    const say = (message: ToThread): void => worker.postMessage(message);
    const off = (): void => say({ id, off: true });
    say({ id, request });
    const ended = new Promise<EgressResult>((resolve, reject) => this.#underway.set(id, { resolve, reject }));
    worker.ref();
    signal?.addEventListener("abort", off, { once: true });
    try {
      return await ended;
    } finally {
      signal?.removeEventListener("abort", off);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#here.close();
    for (const id of this.#underway.keys()) this.#worker!.postMessage({ id, off: true } satisfies ToThread);
    if (this.#underway.size > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    await this.#worker?.terminate();
  }

  #begin(): Worker {
    // The flags of a test runner or loader are not for this thread: it brings its own.
    const worker = new Worker(new URL("./thread-half.mjs", import.meta.url), {
      ...{ execArgv: [], workerData: this.options },
    });
    worker.on("message", (told: FromThread) => {
      const { resolve, reject } = this.#underway.get(told.id)!;
      this.#underway.delete(told.id);
      if ("error" in told) reject(told.error);
      else resolve(told.result);
      if (this.#underway.size > 0) return;
      worker.unref();
      this.#idle?.();
    });
    worker.on("error", (error) => {
      throw error;
    });
    return worker;
  }
}

/** @throws as `createEgress` */
export const createEgressThread = (options: ThreadOptions): Egress => new ThreadEgress(options);
