import { BoundedThread, OutOfBounds, type QuestionLimits } from "../../../infra/bounded-thread.ts";
import type { Questions } from "./questions.ts";

type Name = keyof Questions;
type Of<N extends Name> = Parameters<Questions[N]>[0];
type Answer<N extends Name> = ReturnType<Questions[N]>;

/** What was read; or why nothing was, which is the stranger's doing: it went past a bound, or our reader failed on it. */
export type Read<T> = { ok: true; value: T } | { ok: false; says: string };

/** Reads what strangers sent, where it can be stopped. */
export interface Reader {
  /**
   * The answer to one question of the table. What it is asked of must not change until then.
   * @throws Error when nobody can read at all: our own fault, and nothing about the stranger
   */
  ask<N extends Name>(name: N, of: Of<N>): Promise<Read<Answer<N>>>;
}

/**
 * What each question may cost of a processor: some hundred times what those of real sellers take. Calls go before
 * documents, so that nobody's listing delays the evaluation of a payment by more than one document.
 */
const LIMITS: Readonly<Record<Name, QuestionLimits>> = {
  terms: { cpuMs: 500, urgent: true },
  welcome: { cpuMs: 500, urgent: true },
  list: { cpuMs: 500, urgent: true },
  reply: { cpuMs: 500, urgent: true },
  // A schema is compiled and tried under limits of its own (schema.ts), which end before this one.
  evaluate: { cpuMs: 5_000, urgent: true },
  document: { cpuMs: 2_000, urgent: false },
  page: { cpuMs: 2_000, urgent: false },
  rows: { cpuMs: 2_000, urgent: false },
  yaml: { cpuMs: 4_000, urgent: false },
};

/** Memory of the thread, MiB: a document of a megabyte takes some twenty. What takes more ends the thread, not us. */
const MEMORY = { maxOldGenerationSizeMb: 512 };
/** More than all hosts that are called at once could ask. */
const MAX_WAITING = 10_000;

class ThreadReader implements Reader {
  readonly #thread = new BoundedThread(new URL("./read-worker.mjs", import.meta.url), {
    does: "reads what strangers sent",
    memory: MEMORY,
    maxWaiting: MAX_WAITING,
  });

  async ask<N extends Name>(name: N, of: Of<N>): Promise<Read<Answer<N>>> {
    try {
      return await this.#thread.ask<Read<Answer<N>>>({ name, of }, LIMITS[name]);
    } catch (error) {
      if (error instanceof OutOfBounds) return { ok: false, says: error.message };
      throw error;
    }
  }
}

/** A reader with a thread of its own, begun by the first question. */
export const openReader = (): Reader => new ThreadReader();

/** The reader of this process. */
export const ownReader: Reader = openReader();
