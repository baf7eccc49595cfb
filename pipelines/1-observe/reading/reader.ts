import { BoundedThread, OutOfBounds, type QuestionLimits } from "../../../infra/bounded-thread.ts";
import type { Questions } from "./questions.ts";

type QuestionName = keyof Questions;
type ArgumentOf<N extends QuestionName> = Parameters<Questions[N]>[0];
type Answer<N extends QuestionName> = ReturnType<Questions[N]>;

/**
 * The result of reading, or why the input could not be read: it exceeded a bound, or our reader failed on it. Both
 * count against the seller that sent it.
 */
export type ReadResult<T> = { ok: true; value: T } | { ok: false; says: string };

/** Reads data from strangers in a thread that can be stopped. */
export interface Reader {
  /**
   * Runs one of {@link QUESTIONS} in the thread. Its argument must not change until the promise resolves.
   * @throws Error when the reader itself does not work, which is our own fault
   */
  ask<N extends QuestionName>(name: N, argument: ArgumentOf<N>): Promise<ReadResult<Answer<N>>>;
}

/**
 * Most processor time of each question (a function in questions.ts): about a hundred times what real sellers' data
 * needs. Urgent questions (those of calls) run before documents, so that a listing delays the evaluation of a payment
 * by at most one document.
 */
const LIMITS: Readonly<Record<QuestionName, QuestionLimits>> = {
  terms: { cpuMs: 500, urgent: true },
  welcome: { cpuMs: 500, urgent: true },
  list: { cpuMs: 500, urgent: true },
  reply: { cpuMs: 500, urgent: true },
  // Compiling a schema and checking an answer with it have lower limits of their own (schema.ts), so that a slow schema
  // is stopped before these limits.
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
 * Memory of the thread, MiB. A document of one megabyte needs about twenty. Exceeding the limit ends the thread, not
 * the process.
 */
const MEMORY_LIMIT = { maxOldGenerationSizeMb: 512 };
/** Largest number of waiting questions. The hosts that are called at once cannot cause as many. */
const MAX_QUEUED_QUESTIONS = 10_000;

class ThreadReader implements Reader {
  readonly #thread = new BoundedThread(new URL("./read-worker.mjs", import.meta.url), {
    does: "reads what strangers sent",
    memory: MEMORY_LIMIT,
    maxWaiting: MAX_QUEUED_QUESTIONS,
  });

  async ask<N extends QuestionName>(name: N, argument: ArgumentOf<N>): Promise<ReadResult<Answer<N>>> {
    try {
      return await this.#thread.ask<ReadResult<Answer<N>>>({ name, of: argument }, LIMITS[name]);
    } catch (error) {
      if (error instanceof OutOfBounds) return { ok: false, says: error.message };
      throw error;
    }
  }
}

/** Creates a reader with its own thread, which the first question starts. */
export const createReader = (): Reader => new ThreadReader();

/** The reader of this process. */
export const processReader: Reader = createReader();
