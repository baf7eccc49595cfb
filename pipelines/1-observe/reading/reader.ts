import { BoundedThread, OutOfBounds, type QuestionLimits } from "../../../infra/bounded-thread.ts";
import type { Questions } from "./questions.ts";

type Name = keyof Questions;
type Of<N extends Name> = Parameters<Questions[N]>[0];
type Answer<N extends Name> = ReturnType<Questions[N]>;

/**
 * What was read; or why nothing was: the input exceeded a bound, or our reader failed on it. Both are the stranger's
 * fault.
 */
export type Read<T> = { ok: true; value: T } | { ok: false; says: string };

/** Reads what strangers sent, in a thread that can be stopped. */
export interface Reader {
  /**
   * Answers one of {@link QUESTIONS}. Its argument must not change until then.
   * @throws Error when the reader does not work at all: our own fault, which tells nothing about the stranger
   */
  ask<N extends Name>(name: N, of: Of<N>): Promise<Read<Answer<N>>>;
}

/**
 * Processor time that each question may use: some hundred times what real sellers' data needs. Urgent questions, those
 * of calls, go before documents, so that a listing delays the evaluation of a payment by one document at most.
 */
const LIMITS: Readonly<Record<Name, QuestionLimits>> = {
  terms: { cpuMs: 500, urgent: true },
  welcome: { cpuMs: 500, urgent: true },
  list: { cpuMs: 500, urgent: true },
  reply: { cpuMs: 500, urgent: true },
  // Schemas are compiled and tried under limits of their own (schema.ts), which end before this one.
  evaluate: { cpuMs: 5_000, urgent: true },
  usable: { cpuMs: 1_000, urgent: true },
  faults: { cpuMs: 1_000, urgent: true },
  expected: { cpuMs: 5_000, urgent: true },
  document: { cpuMs: 2_000, urgent: false },
  page: { cpuMs: 2_000, urgent: false },
  rows: { cpuMs: 2_000, urgent: false },
  yaml: { cpuMs: 4_000, urgent: false },
};

/**
 * Memory of the thread, MiB: a document of a megabyte needs some twenty. Exceeding it ends the thread, not the process.
 */
const MEMORY = { maxOldGenerationSizeMb: 512 };
/** Most questions that wait: more than all hosts that are called at once could cause. */
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

/** A reader with its own thread, which the first question starts. */
export const openReader = (): Reader => new ThreadReader();

/** The reader of this process. */
export const ownReader: Reader = openReader();
