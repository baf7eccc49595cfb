import { readFileSync } from "node:fs";
import { type ResourceLimits, Worker } from "node:worker_threads";

/** What one question may cost. */
export interface QuestionLimits {
  /** Time of a processor, ms. */
  cpuMs: number;
  /** Goes before those that are not. */
  urgent: boolean;
}

/** The thread was ended for this question, or died of it twice: it has no answer, and everybody else's was asked again. */
export class OutOfBounds extends Error {
  override readonly name = "OutOfBounds";
}

export interface BoundedThreadOptions {
  /** What it is for, as in "a thread that reads documents", for messages. */
  does: string;
  memory: ResourceLimits;
  /** Questions that may wait. */
  maxWaiting: number;
}

interface Question {
  message: object;
  limits: QuestionLimits;
  resolve: (answer: unknown) => void;
  reject: (error: Error) => void;
  /** Times that the thread died under it. */
  deaths: number;
}

/** Looks, its limit of the clock apart, until a question that is given no processor at all is given up. */
const PATIENCE = 40;
/** Longest until a thread is ready, real ms: a machine with much else to do takes tens of seconds to compile what it needs. */
const BEGIN_MS = 120_000;

/**
 * A thread for work that may never end: one question at a time, each under a hard limit of processor time. When one
 * uses it up the thread is ended, whatever it is doing, and another begins for those that wait. A machine that has much
 * else to do stretches anybody's work, so the time that counts is what the system says the thread had of a processor.
 *
 * The file posts `{ready: <its thread id of the system, or null>}` once, and then one message for each it is sent. It is
 * begun by the first question and holds no process open.
 */
export class BoundedThread {
  #worker: Worker | null = null;
  #task: number | null = null;
  #isReady = false;
  #current: Question | null = null;
  #timer: NodeJS.Timeout | undefined;
  readonly #urgent: Question[] = [];
  readonly #others: Question[] = [];

  constructor(
    private readonly file: URL,
    private readonly options: BoundedThreadOptions,
  ) {}

  /**
   * The answer, as a structured clone. What is asked is cloned when its turn comes: it must not change until then.
   * @throws OutOfBounds; Error when too many wait or no thread can be begun, which says nothing of the question
   */
  ask<T>(message: object, limits: QuestionLimits): Promise<T> {
    const { does, maxWaiting } = this.options;
    if (this.#urgent.length + this.#others.length >= maxWaiting) {
      return Promise.reject(new Error(`more than ${maxWaiting} questions wait for a thread that ${does}`));
    }
    return new Promise<T>((resolve, reject) => {
      const line = limits.urgent ? this.#urgent : this.#others;
      line.push({ message, limits, resolve: resolve as (answer: unknown) => void, reject, deaths: 0 });
      this.#next();
    });
  }

  #next(): void {
    if (this.#current) return;
    const waits = this.#urgent[0] ?? this.#others[0];
    if (!waits) {
      this.#worker?.unref();
      return;
    }
    const worker = this.#worker ?? this.#begin();
    worker.ref();
    if (!this.#isReady) return;
    (this.#urgent[0] ? this.#urgent : this.#others).shift();
    this.#current = waits;
    try {
      worker.postMessage(waits.message);
    } catch (error) {
      // It cannot be cloned: the asker's fault, and nobody else's.
      this.#current = null;
      waits.reject(error as Error);
      this.#next();
      return;
    }
    this.#watch(waits);
  }

  #begin(): Worker {
    // The flags of a test runner or loader are not for this thread: it brings its own.
    const worker = new Worker(this.file, { execArgv: [], resourceLimits: this.options.memory });
    this.#worker = worker;
    worker.on("message", (message) => this.#hear(worker, message));
    worker.on("error", (error) => this.#died(worker, error));
    worker.on("exit", () => this.#died(worker, new Error("it ended")));
    this.#timer = setTimeout(() => this.#died(worker, new Error(`not ready after ${BEGIN_MS} ms`)), BEGIN_MS);
    return worker;
  }

  #hear(worker: Worker, message: unknown): void {
    if (worker !== this.#worker) return;
    clearTimeout(this.#timer);
    if (this.#isReady) {
      const asked = this.#current;
      this.#current = null;
      asked?.resolve(message);
    } else {
      this.#isReady = true;
      this.#task = (message as { ready: number | null }).ready;
    }
    this.#next();
  }

  /**
   * Ends the question that uses up its time. The first look is only taken once that much has passed on the clock, so
   * what is answered at once costs a timer. Looks are counted, and not the clock: we may have stood still ourselves.
   */
  #watch(asked: Question): void {
    const { cpuMs } = asked.limits;
    let looks = 0;
    let from = 0;
    const look = (): void => {
      const used = processorMs(this.#task);
      if (looks++ === 0) from = used;
      if (used - from >= cpuMs || looks > PATIENCE) this.#giveUp(asked);
      else this.#timer = setTimeout(look, cpuMs);
    };
    this.#timer = setTimeout(look, cpuMs);
  }

  #giveUp(asked: Question): void {
    void this.#leave()?.terminate();
    asked.reject(new OutOfBounds(`not done after ${asked.limits.cpuMs} ms of a processor`));
    this.#next();
  }

  #died(worker: Worker, why: Error): void {
    if (worker !== this.#worker) return;
    const wasReady = this.#isReady;
    const asked = this.#current;
    this.#leave();
    void worker.terminate();
    if (!wasReady) {
      this.#failAll(new Error(`a thread that ${this.options.does} cannot be begun: ${why.message}`));
      return;
    }
    if (asked) {
      asked.deaths++;
      // Once may be anything; twice under one question is that question's doing.
      if (asked.deaths > 1) asked.reject(new OutOfBounds(`the thread died of it: ${why.message}`));
      else (asked.limits.urgent ? this.#urgent : this.#others).unshift(asked);
    }
    this.#next();
  }

  /** Forgets the thread: nothing that it still says is heard. */
  #leave(): Worker | null {
    const worker = this.#worker;
    clearTimeout(this.#timer);
    this.#worker = null;
    this.#isReady = false;
    this.#current = null;
    return worker;
  }

  #failAll(error: Error): void {
    for (const asked of [...this.#urgent.splice(0), ...this.#others.splice(0)]) asked.reject(error);
  }
}

/**
 * Time that a thread of this process has had of a processor, ms; where the system does not tell, that of the whole process.
 * @param thread its number to the system, or whoever asks; null: it is not known
 */
export function processorMs(thread: number | "own" | null): number {
  try {
    if (thread === null) throw new Error("not told");
    const of = thread === "own" ? "thread-self" : `self/task/${thread}`;
    return Number.parseInt(readFileSync(`/proc/${of}/schedstat`, "utf8"), 10) / 1e6;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e3;
  }
}
