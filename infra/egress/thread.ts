import { Worker } from "node:worker_threads";
import { createEgress, type EgressOptions } from "./create.ts";
import type { Egress, EgressRequest, EgressResult } from "./egress.ts";

/** Options of egress that can be sent to a thread: all but functions. */
export interface ThreadOptions extends Omit<EgressOptions, "resolve" | "loop"> {
  /** For development: the address to which every name resolves. */
  resolveTo?: string;
}

/** Message to the thread: a request, or that the request with this id is aborted. */
type ToThread = { id: number; request: EgressRequest } | { id: number; off: true };
/** Message from the thread: the result of a fetch, or the error that it threw. */
type FromThread = { id: number; result: EgressResult } | { id: number; error: Error };

interface Waiting {
  resolve: (result: EgressResult) => void;
  reject: (error: Error) => void;
}

/**
 * Egress on a separate thread. The process grades, publishes and answers on its main loop. A stranger's answer does not
 * wait for that work, so a measured latency includes only the time of the stranger and the network. The first fetch
 * starts the thread. The thread keeps the process alive only while a fetch is running. An error that ends the thread is
 * a bug of ours and ends the process.
 */
class ThreadEgress implements Egress {
  /** Egress on this thread: validates urls, and answers fetches that are refused before they are sent. */
  readonly #localEgress: Egress;
  #worker: Worker | null = null;
  readonly #underway = new Map<number, Waiting>();
  #lastId = 0;
  #idle: (() => void) | null = null;
  #closed = false;

  constructor(private readonly options: ThreadOptions) {
    this.#localEgress = createEgress(options);
  }

  validate(url: string): ReturnType<Egress["validate"]> {
    return this.#localEgress.validate(url);
  }

  async fetch(asked: EgressRequest): Promise<EgressResult> {
    const { signal, ...request } = asked;
    if (this.#closed || signal?.aborted) return this.#localEgress.fetch(asked);
    this.#worker ??= this.#startWorker();
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
    await this.#localEgress.close();
    for (const id of this.#underway.keys()) this.#worker!.postMessage({ id, off: true } satisfies ToThread);
    if (this.#underway.size > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    await this.#worker?.terminate();
  }

  #startWorker(): Worker {
    // Flags of a test runner or loader are not passed on, since thread-half.mjs registers its own loader.
    const worker = new Worker(new URL("./thread-half.mjs", import.meta.url), {
      ...{ execArgv: [], workerData: this.options },
    });
    worker.on("message", (message: FromThread) => {
      const { resolve, reject } = this.#underway.get(message.id)!;
      this.#underway.delete(message.id);
      if ("error" in message) reject(message.error);
      else resolve(message.result);
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

/**
 * Creates egress on a separate thread.
 * @throws as `createEgress`
 */
export const createEgressThread = (options: ThreadOptions): Egress => new ThreadEgress(options);
