import { readFileSync } from "node:fs";
import { type ResourceLimits, Worker } from "node:worker_threads";

/** Limit and priority of one question (a message that the thread answers with one message). */
export interface QuestionLimits {
  /** Limit of the thread's processor time for this question, ms. */
  cpuMs: number;
  /**
   * True if this question is answered before all waiting questions that are not urgent. False if it waits behind those
   * that came earlier and the urgent ones.
   */
  urgent: boolean;
}

/**
 * Thrown when a question used up its processor time, or when the thread died twice while it worked on that question.
 */
export class OutOfBounds extends Error {
  override readonly name = "OutOfBounds";
}

export interface BoundedThreadOptions {
  /** What the thread does, for error messages: the text after "a thread that ..". */
  does: string;
  /** Limits of the thread's memory. */
  memory: ResourceLimits;
  /** Largest number of questions that wait for the thread. */
  maxWaiting: number;
}

interface Question {
  message: object;
  limits: QuestionLimits;
  resolve: (answer: unknown) => void;
  reject: (error: Error) => void;
  /** How often the thread died while it worked on this question. */
  deaths: number;
}

/** A thread's processor time is measured each time that an eighth of the question's `cpuMs` has passed in real time. */
const MEASUREMENTS_PER_LIMIT = 8;
/** Number of measurements after which a question is stopped, even if its thread got no processor time. */
const MAX_MEASUREMENTS = 40 * MEASUREMENTS_PER_LIMIT;
/**
 * Longest time in which a new thread must become ready, real ms. On a busy machine it takes tens of seconds to compile
 * its modules.
 */
const START_TIMEOUT_MS = 120_000;

/**
 * A worker thread for work that may never end. It answers one question at a time, each under a hard limit of
 * processor time. When a question uses up its limit the thread is terminated, and a new thread serves the questions
 * that wait. The limit is on processor time and not on real time, so that a busy machine does not fail questions.
 *
 * The thread's file posts `{ready: <thread id of the operating system, or null>}` once, and then one message for each
 * message that it receives. The first question starts the thread; an idle thread does not keep the process alive.
 */
export class BoundedThread {
  #worker: Worker | null = null;
  #osThreadId: number | null = null;
  #isReady = false;
  #current: Question | null = null;
  #timer: NodeJS.Timeout | undefined;
  readonly #urgent: Question[] = [];
  readonly #notUrgent: Question[] = [];

  constructor(
    private readonly file: URL,
    private readonly options: BoundedThreadOptions,
  ) {}

  /**
   * Asks a question and returns the answer, both as structured clones. The message is cloned when its turn comes, so
   * the caller must not change it until then.
   * @throws OutOfBounds; Error when too many questions wait or no thread can be started
   */
  ask<T>(message: object, limits: QuestionLimits): Promise<T> {
    const { does, maxWaiting } = this.options;
    if (this.#urgent.length + this.#notUrgent.length >= maxWaiting) {
      return Promise.reject(new Error(`more than ${maxWaiting} questions wait for a thread that ${does}`));
    }
    return new Promise<T>((resolve, reject) => {
      const queue = limits.urgent ? this.#urgent : this.#notUrgent;
      queue.push({ message, limits, resolve: resolve as (answer: unknown) => void, reject, deaths: 0 });
      this.#startNext();
    });
  }

  #startNext(): void {
    if (this.#current) return;
    const nextQuestion = this.#urgent[0] ?? this.#notUrgent[0];
    if (!nextQuestion) {
      this.#worker?.unref();
      return;
    }
    const worker = this.#worker ?? this.#startWorker();
    worker.ref();
    if (!this.#isReady) return;
    (this.#urgent[0] ? this.#urgent : this.#notUrgent).shift();
    this.#current = nextQuestion;
    try {
      worker.postMessage(nextQuestion.message);
    } catch (error) {
      // The message cannot be cloned. Only this question fails; the thread goes on with the next one.
      this.#current = null;
      nextQuestion.reject(error as Error);
      this.#startNext();
      return;
    }
    this.#watchProcessorTime(nextQuestion);
  }

  #startWorker(): Worker {
    // Flags of a test runner or loader must not reach this thread, which registers its own loader.
    const worker = new Worker(this.file, { execArgv: [], resourceLimits: this.options.memory });
    this.#worker = worker;
    worker.on("message", (message) => this.#onMessage(worker, message));
    worker.on("error", (error) => this.#onDeath(worker, error));
    worker.on("exit", () => this.#onDeath(worker, new Error("it ended")));
    this.#timer = setTimeout(
      () => this.#onDeath(worker, new Error(`not ready after ${START_TIMEOUT_MS} ms`)),
      START_TIMEOUT_MS,
    );
    return worker;
  }

  #onMessage(worker: Worker, message: unknown): void {
    if (worker !== this.#worker) return;
    clearTimeout(this.#timer);
    if (this.#isReady) {
      const question = this.#current;
      this.#current = null;
      question?.resolve(message);
    } else {
      this.#isReady = true;
      this.#osThreadId = (message as { ready: number | null }).ready;
    }
    this.#startNext();
  }

  /**
   * Measures the thread's processor time eight times in `cpuMs` of real time, and stops the question when the thread
   * has used `cpuMs` since the first measurement. A question that ends before the first measurement costs only a timer.
   * The number of measurements is limited, not the real time, because the machine may have suspended this process.
   */
  #watchProcessorTime(question: Question): void {
    const { cpuMs } = question.limits;
    const intervalMs = cpuMs / MEASUREMENTS_PER_LIMIT;
    let measurements = 0;
    let firstUsedMs = 0;
    const measure = (): void => {
      const usedMs = processorMs(this.#osThreadId);
      if (measurements++ === 0) firstUsedMs = usedMs;
      if (usedMs - firstUsedMs >= cpuMs || measurements > MAX_MEASUREMENTS) this.#stopQuestion(question);
      else this.#timer = setTimeout(measure, intervalMs);
    };
    this.#timer = setTimeout(measure, intervalMs);
  }

  #stopQuestion(question: Question): void {
    void this.#detachWorker()?.terminate();
    question.reject(new OutOfBounds(`not done after ${question.limits.cpuMs} ms of a processor`));
    this.#startNext();
  }

  #onDeath(worker: Worker, why: Error): void {
    if (worker !== this.#worker) return;
    const wasReady = this.#isReady;
    const question = this.#current;
    this.#detachWorker();
    void worker.terminate();
    if (!wasReady) {
      this.#failAll(new Error(`a thread that ${this.options.does} cannot be begun: ${why.message}`));
      return;
    }
    if (question) {
      question.deaths++;
      // The first death may have any cause. A second death on the same question is taken as the question's fault.
      if (question.deaths > 1) question.reject(new OutOfBounds(`the thread died of it: ${why.message}`));
      else (question.limits.urgent ? this.#urgent : this.#notUrgent).unshift(question);
    }
    this.#startNext();
  }

  /** Detaches the thread, so that its later messages are ignored. @returns the thread, if there was one */
  #detachWorker(): Worker | null {
    const worker = this.#worker;
    clearTimeout(this.#timer);
    this.#worker = null;
    this.#isReady = false;
    this.#current = null;
    return worker;
  }

  #failAll(error: Error): void {
    for (const question of [...this.#urgent.splice(0), ...this.#notUrgent.splice(0)]) question.reject(error);
  }
}

/**
 * Returns the processor time of a thread of this process, ms; on systems without /proc that of the whole process.
 * @param thread the thread's id of the operating system, "own" for the calling thread, or null when it is not known
 */
export function processorMs(thread: number | "own" | null): number {
  try {
    if (thread === null) throw new Error("unknown thread");
    const procFolder = thread === "own" ? "thread-self" : `self/task/${thread}`;
    return Number.parseInt(readFileSync(`/proc/${procFolder}/schedstat`, "utf8"), 10) / 1e6;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e3;
  }
}
