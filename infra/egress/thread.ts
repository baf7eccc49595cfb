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

interface PendingFetch {
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
  readonly #pendingFetches = new Map<number, PendingFetch>();
  #lastId = 0;
  /** Called when no fetch is pending any more; set while `close` waits for that. */
  #resolveIdle: (() => void) | null = null;
  #isClosed = false;

  constructor(private readonly options: ThreadOptions) {
    this.#localEgress = createEgress(options);
  }

  validate(url: string): ReturnType<Egress["validate"]> {
    return this.#localEgress.validate(url);
  }

  async fetch(fullRequest: EgressRequest): Promise<EgressResult> {
    const { signal, ...request } = fullRequest;
    if (this.#isClosed || signal?.aborted) return this.#localEgress.fetch(fullRequest);
    this.#worker ??= this.#startWorker();
    const worker = this.#worker;
    const id = ++this.#lastId;
    const postToThread = (message: ToThread): void => worker.postMessage(message);
    const abortFetch = (): void => postToThread({ id, off: true });
    postToThread({ id, request });
    const resultPromise = new Promise<EgressResult>((resolve, reject) =>
      this.#pendingFetches.set(id, { resolve, reject }),
    );
    worker.ref();
    signal?.addEventListener("abort", abortFetch, { once: true });
    try {
      return await resultPromise;
    } finally {
      signal?.removeEventListener("abort", abortFetch);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#localEgress.close();
    for (const id of this.#pendingFetches.keys()) this.#worker!.postMessage({ id, off: true } satisfies ToThread);
    if (this.#pendingFetches.size > 0) await new Promise<void>((resolve) => (this.#resolveIdle = resolve));
    await this.#worker?.terminate();
  }

  #startWorker(): Worker {
    // Flags of a test runner or loader are not passed on, since thread-half.mjs registers its own loader.
    const worker = new Worker(new URL("./thread-half.mjs", import.meta.url), {
      ...{ execArgv: [], workerData: this.options },
    });
    worker.on("message", (message: FromThread) => {
      const { resolve, reject } = this.#pendingFetches.get(message.id)!;
      this.#pendingFetches.delete(message.id);
      if ("error" in message) reject(message.error);
      else resolve(message.result);
      if (this.#pendingFetches.size > 0) return;
      worker.unref();
      this.#resolveIdle?.();
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
