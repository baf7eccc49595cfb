import { createHash } from "node:crypto";
import { Worker } from "node:worker_threads";
import { linesIn } from "../../infra/lines-in.mjs";
import { FrameParts } from "./frame-parts.mjs";

/** From here on a thread of its own takes a text beside us; starting one costs more than a small text. */
export const THREADED_BYTES = 16 * 1024 * 1024;
/** Pieces that are on their way to the thread. */
const MOST_WAITING_BYTES = 16 * 1024 * 1024;
/** Small pieces go together: each message costs as much as hashing some ten thousand bytes. */
const MESSAGE_BYTES = 1024 * 1024;

/** What became of a text. */
export interface Hashed {
  /** Its sha256, lower-case hex. */
  hex: string;
  /** Parts of one zstd frame, where one was asked for. */
  packed: Uint8Array[];
  /** Line feeds in it, where none was. */
  lines: number;
}

/** sha256 of a text that comes in pieces, and the frame that it is packed into or the lines that it has. */
export interface Hashing {
  /** @param piece belongs to the hash from now on @throws when its thread died */
  update(piece: Uint8Array): Promise<void>;
  /** Once, at the end. @throws when its thread died */
  end(): Promise<Hashed>;
  /** Of no use any more; after `end` there is nothing to drop. */
  drop(): void;
}

/**
 * @param bytes of the text, as far as they are known: a large one is hashed and packed beside what else is done
 * @param level of zstd; without one nothing is packed
 */
export const hashingOf = (bytes: number, level: number | null = null): Hashing =>
  bytes > THREADED_BYTES ? new Beside(level) : new Here(level);

class Here implements Hashing {
  readonly #hash = createHash("sha256");
  readonly #frame: FrameParts | null;
  #lines = 0;

  constructor(level: number | null) {
    this.#frame = level === null ? null : new FrameParts(level);
  }

  async update(piece: Uint8Array): Promise<void> {
    this.#hash.update(piece);
    if (this.#frame) this.#frame.add(piece);
    else this.#lines += linesIn(piece);
  }

  async end(): Promise<Hashed> {
    return { hex: this.#hash.digest("hex"), packed: this.#frame?.end() ?? [], lines: this.#lines };
  }

  drop(): void {}
}

/** What the thread says. */
interface Told {
  read?: number;
  hashed?: Hashed;
}

class Beside implements Hashing {
  readonly #worker: Worker;
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  #given: ArrayBuffer[] = [];
  #waiting = 0;
  #hashed: Hashed | null = null;
  #dead: Error | null = null;
  #wake: () => void = () => undefined;

  constructor(level: number | null) {
    // The flags of a test runner or loader are not for this thread: it needs none.
    this.#worker = new Worker(new URL("./hash-worker.mjs", import.meta.url), { execArgv: [], workerData: { level } });
    this.#worker.on("message", ({ read = 0, hashed }: Told) => {
      this.#waiting -= read;
      this.#hashed = hashed ?? null;
      this.#wake();
    });
    const died = (error: Error) => {
      this.#dead ??= error;
      this.#wake();
    };
    this.#worker.on("error", died);
    this.#worker.on("exit", () => died(new Error("the thread that hashes a file ended")));
  }

  async update(piece: Uint8Array): Promise<void> {
    this.#held.push(piece);
    this.#heldBytes += piece.length;
    const { buffer } = piece;
    // Memory that is shared with others cannot be given away, and is copied.
    if (buffer instanceof ArrayBuffer && piece.byteLength === buffer.byteLength) this.#given.push(buffer);
    if (this.#heldBytes < MESSAGE_BYTES) return;
    this.#send();
    await this.#until(() => this.#waiting <= MOST_WAITING_BYTES);
  }

  async end(): Promise<Hashed> {
    this.#send();
    this.#worker.postMessage(null);
    await this.#until(() => this.#hashed !== null);
    this.drop();
    return this.#hashed!;
  }

  drop(): void {
    void this.#worker.terminate();
  }

  #send(): void {
    this.#waiting += this.#heldBytes;
    this.#worker.postMessage({ pieces: this.#held }, this.#given);
    [this.#held, this.#heldBytes, this.#given] = [[], 0, []];
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
