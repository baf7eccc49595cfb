import { createHash } from "node:crypto";
import { Worker } from "node:worker_threads";

/** From here on a thread of its own takes a text beside us; starting one costs more than a small text. */
export const THREADED_BYTES = 16 * 1024 * 1024;
/** Pieces that are on their way to the thread. */
const MOST_WAITING_BYTES = 16 * 1024 * 1024;

/** sha256 of a text that comes in pieces. */
export interface Hashing {
  /**
   * @param piece belongs to the hash from now on
   * @param isAlone nothing else lies in its memory, which goes with it (default: when it fills that)
   * @throws when its thread died
   */
  update(piece: Uint8Array, isAlone?: boolean): Promise<void>;
  /** Once, at the end. @throws when its thread died */
  digest(): Promise<string>;
  /** Of no use any more; after `digest` there is nothing to drop. */
  drop(): void;
}

/** @param bytes of the text, as far as they are known: a large one is hashed beside what else is done */
export const hashingOf = (bytes: number): Hashing => (bytes > THREADED_BYTES ? new Beside() : new Here());

class Here implements Hashing {
  readonly #hash = createHash("sha256");

  async update(piece: Uint8Array): Promise<void> {
    this.#hash.update(piece);
  }

  async digest(): Promise<string> {
    return this.#hash.digest("hex");
  }

  drop(): void {}
}

class Beside implements Hashing {
  // The flags of a test runner or loader are not for this thread: it needs none.
  readonly #worker = new Worker(new URL("./hash-worker.mjs", import.meta.url), { execArgv: [] });
  #waiting = 0;
  #hex: string | null = null;
  #dead: Error | null = null;
  #wake: () => void = () => undefined;

  constructor() {
    this.#worker.on("message", ({ read = 0, hex }: { read?: number; hex?: string }) => {
      this.#waiting -= read;
      this.#hex = hex ?? null;
      this.#wake();
    });
    const died = (error: Error) => {
      this.#dead ??= error;
      this.#wake();
    };
    this.#worker.on("error", died);
    this.#worker.on("exit", () => died(new Error("the thread that hashes a file ended")));
  }

  async update(piece: Uint8Array, isAlone = piece.byteLength === piece.buffer.byteLength): Promise<void> {
    this.#waiting += piece.length;
    // Memory that is shared with others cannot be given away, and is copied.
    this.#worker.postMessage(piece, isAlone && piece.buffer instanceof ArrayBuffer ? [piece.buffer] : []);
    await this.#until(() => this.#waiting <= MOST_WAITING_BYTES);
  }

  async digest(): Promise<string> {
    this.#worker.postMessage(null);
    await this.#until(() => this.#hex !== null);
    const hex = this.#hex!;
    this.drop();
    return hex;
  }

  drop(): void {
    void this.#worker.terminate();
  }

  async #until(isSo: () => boolean): Promise<void> {
    while (!isSo()) {
      if (this.#dead) throw this.#dead;
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
    }
  }
}
