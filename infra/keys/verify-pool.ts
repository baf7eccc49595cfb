import { ThreadPool } from "../thread-pool.ts";
import { isFit, verifyBytes } from "./verify.ts";

/** One signature to verify: Ed25519 over `bytes` under 32 bytes of a stranger's, which may be no key at all. */
export interface SignedBytes {
  publicKey: Uint8Array;
  bytes: Uint8Array;
  signature: Uint8Array;
}

/** Fewer are verified where they are: a thread costs some 40 ms to start. */
const FEW = 64;

/**
 * Verifies batches of signatures on all cores; begins no thread before the first large batch. Order of answers is that
 * of the jobs. Memory is what callers hand in: await a batch before handing in more than a few.
 */
export class VerifyPool {
  readonly #threads: ThreadPool;

  /** @param width threads at most (default: one a core) */
  constructor(width?: number) {
    this.#threads = new ThreadPool(new URL("./verify-worker.mjs", import.meta.url), "verifies signatures", width);
  }

  get width(): number {
    return this.#threads.width;
  }

  /** 1 for each signature that `verifyBytes` takes. @throws when a thread dies: nothing is known of its batch then */
  async verify(jobs: readonly SignedBytes[]): Promise<Uint8Array> {
    if (jobs.length < FEW && !this.#threads.hasBegun) {
      return Uint8Array.from(jobs, ({ publicKey, bytes, signature }) => +verifyBytes(publicKey, bytes, signature));
    }
    // Keys are validated here: a thread believes what it is handed. A batch is under a few, so each is looked up once.
    const fit = new Map<Uint8Array, boolean>();
    const isSound = ({ publicKey, signature }: SignedBytes) => {
      if (!fit.has(publicKey)) fit.set(publicKey, isFit(publicKey));
      return signature.length === 64 && fit.get(publicKey)!;
    };
    if (jobs.every(isSound)) return this.#send(jobs);
    const good = new Uint8Array(jobs.length);
    const sound = jobs.flatMap((job, i) => (isSound(job) ? [i] : []));
    const answers = await this.#send(sound.map((i) => jobs[i]!));
    for (const [at, i] of sound.entries()) good[i] = answers[at]!;
    return good;
  }

  close(): Promise<void> {
    return this.#threads.close();
  }

  async #send(jobs: readonly SignedBytes[]): Promise<Uint8Array> {
    const batch = packed(jobs);
    const { good } = await this.#threads.ask<{ good: Uint8Array }>(batch, [batch.bytes.buffer as ArrayBuffer]);
    return good;
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
