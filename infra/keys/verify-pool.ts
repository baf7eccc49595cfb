import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import { verifyBytes } from "./verify.ts";

/** One signature to verify: Ed25519 over `bytes` under a key that was judged before (point.ts). */
export interface SignedBytes {
  publicKey: Uint8Array;
  bytes: Uint8Array;
  signature: Uint8Array;
}

/** Fewer are verified where they are: a thread costs some 40 ms to start. */
const FEW = 64;

interface Waiting {
  resolve: (good: Uint8Array) => void;
  reject: (error: Error) => void;
}

/**
 * Verifies batches of signatures on all cores; begins no thread before the first large batch. Order of answers is that
 * of the jobs. Memory is what callers hand in: await a batch before handing in more than a few.
 */
export class VerifyPool {
  readonly #threads: { worker: Worker; waiting: Map<number, Waiting> }[] = [];
  #next = 0;
  #closed = false;

  /** @param width threads at most (default: one a core) */
  constructor(readonly width: number = availableParallelism()) {}

  /** 1 for each signature that holds. @throws when a thread dies: nothing is known of its batch then */
  async verify(jobs: readonly SignedBytes[]): Promise<Uint8Array> {
    if (jobs.length < FEW && this.#threads.length === 0) {
      return Uint8Array.from(jobs, ({ publicKey, bytes, signature }) => +verifyBytes(publicKey, bytes, signature));
    }
    const isSound = ({ publicKey, signature }: SignedBytes) => publicKey.length === 32 && signature.length === 64;
    if (jobs.every(isSound)) return this.#send(jobs);
    const good = new Uint8Array(jobs.length);
    const sound = jobs.flatMap((job, i) => (isSound(job) ? [i] : []));
    const answers = await this.#send(sound.map((i) => jobs[i]!));
    for (const [at, i] of sound.entries()) good[i] = answers[at]!;
    return good;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#threads.splice(0).map(({ worker }) => worker.terminate()));
  }

  #send(jobs: readonly SignedBytes[]): Promise<Uint8Array> {
    const { worker, waiting } = this.#thread();
    const id = this.#next++;
    const batch = packed(jobs);
    return new Promise<Uint8Array>((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      worker.ref();
      worker.postMessage({ id, ...batch }, [batch.bytes.buffer as ArrayBuffer]);
    });
  }

  /** The thread with the fewest batches; a new one while there are cores without. */
  #thread() {
    if (this.#closed) throw new Error("the pool is closed");
    const idle = this.#threads.find(({ waiting }) => waiting.size === 0);
    if (idle) return idle;
    if (this.#threads.length < this.width) return this.#begin();
    return this.#threads.reduce((least, one) => (one.waiting.size < least.waiting.size ? one : least));
  }

  #begin() {
    // The flags of a test runner or loader are not for this thread: it needs none.
    const worker = new Worker(new URL("./verify-worker.mjs", import.meta.url), { execArgv: [] });
    const thread = { worker, waiting: new Map<number, Waiting>() };
    const died = (error: Error) => {
      for (const { reject } of thread.waiting.values()) reject(error);
      thread.waiting.clear();
      const at = this.#threads.indexOf(thread);
      if (at >= 0) this.#threads.splice(at, 1);
    };
    worker.on("message", ({ id, good }: { id: number; good: Uint8Array }) => {
      thread.waiting.get(id)?.resolve(good);
      thread.waiting.delete(id);
      // A thread keeps a process alive only while it has work.
      if (thread.waiting.size === 0) worker.unref();
    });
    worker.on("error", died);
    worker.on("exit", () => died(new Error("a thread of the signature checks ended")));
    this.#threads.push(thread);
    return thread;
  }
}

/** One transferable block of memory for a batch. */
function packed(jobs: readonly SignedBytes[]) {
  const bytes = new Uint8Array(jobs.reduce((sum, job) => sum + 64 + job.bytes.length, 0));
  const ends = new Uint32Array(jobs.length);
  const keyOf = new Uint16Array(jobs.length);
  const keys: Uint8Array[] = [];
  let at = 0;
  for (const [i, job] of jobs.entries()) {
    bytes.set(job.signature, at);
    bytes.set(job.bytes, at + 64);
    at += 64 + job.bytes.length;
    ends[i] = at;
    let key = keys.indexOf(job.publicKey);
    if (key < 0) key = keys.push(job.publicKey) - 1;
    keyOf[i] = key;
  }
  return { bytes, ends, keyOf, keys };
}
