import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import {
  type AppendedRecord,
  type Log,
  LogDown,
  type LogRecord,
  type NewRecord,
  type ReadOptions,
} from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";

/** The part of a log that serving uses. */
export type ServingLog = Pick<Log, "id" | "append" | "read" | "bounds" | "partitions">;

/** Thrown by a replica without a log for everything that would be written. Retrying does not help. */
export class ReadOnlyReplica extends Failure {
  constructor() {
    super("failed", "this replica is read-only; send what is to be recorded to the service itself");
  }
}

const refuse = async (): Promise<never> => {
  throw new ReadOnlyReplica();
};

/**
 * The log of a replica that has none: every call throws ReadOnlyReplica. It has one partition, since callers read that
 * first.
 */
export const NO_LOG: ServingLog = { id: "", partitions: 1, append: refuse, read: refuse, bounds: refuse };

/** First pause before opening is tried again, ms; each further pause is twice as long. */
const FIRST_PAUSE_MS = 500;
/** Longest pause before opening is tried again, ms. */
const MAX_PAUSE_MS = 30_000;

/**
 * A log that is opened in the background, so that a replica can answer while the log's cluster is down. Until the log
 * is open every call throws LogDown.
 */
export class BackgroundLog implements ServingLog {
  #log: Log | null = null;
  #openError: unknown = new Error("it is being opened");
  readonly #stopOpening = new AbortController();
  readonly #opening: Promise<void>;

  constructor(
    private readonly open: () => Promise<Log>,
    private readonly clock: Pick<Clock, "sleep">,
    private readonly logger: Pick<Logger, "warn">,
  ) {
    this.#opening = this.#openInBackground();
  }

  /** @throws LogDown while the log is not open */
  get id(): string {
    return this.#requireLog().id;
  }

  /** @throws LogDown while the log is not open */
  get partitions(): number {
    return this.#requireLog().partitions;
  }

  append = async (records: readonly NewRecord[]): Promise<AppendedRecord[]> => this.#requireLog().append(records);
  read = async (topic: string, partition: number, from: number, options?: ReadOptions): Promise<LogRecord[]> =>
    this.#requireLog().read(topic, partition, from, options);
  bounds = async (topic: string, partition: number): Promise<{ start: number; end: number }> =>
    this.#requireLog().bounds(topic, partition);

  async close(): Promise<void> {
    this.#stopOpening.abort(new Error("closed"));
    await this.#opening;
    await this.#log?.close();
  }

  #requireLog(): Log {
    if (!this.#log) throw new LogDown("using the log", this.#openError);
    return this.#log;
  }

  async #openInBackground(): Promise<void> {
    for (
      let pauseMs = FIRST_PAUSE_MS;
      !this.#stopOpening.signal.aborted;
      pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2)
    ) {
      try {
        this.#log = await this.open();
        return;
      } catch (error) {
        this.#openError = error;
        this.logger.warn({ err: error }, "the log could not be opened; nothing can be recorded until it is");
      }
      await this.clock.sleep(pauseMs, this.#stopOpening.signal).catch(() => undefined);
    }
  }
}
