import { type Log, type LogRecord, OffsetGone } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { BodyOf } from "../../pipelines/record/bodies.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import { registrableDomain } from "../../pipelines/record/url.ts";

const HOUR_MS = 3_600_000;
/** As the pipeline folds it (sql/queries/asks, open). */
const NEGATIVE_MS = 24 * HOUR_MS;
const EXPIRES_MS = 30 * 24 * HOUR_MS;
/** Looks that the pipeline can make in an hour, all domains together: 64 at once, ten seconds each. */
const LOOKS_AN_HOUR = 20_000;
/** Capabilities whose last look is remembered. */
const MAX_LOOKED = 100_000;

export interface LineLimits {
  /** Asks in line at most; who asks for more is told to come back. */
  max: number;
  /** Asks of one registrable domain that are begun within an hour. */
  perDomainHour: number;
}

interface Domain {
  /** Asks of it that ever stood in line, and those that left: the difference waits. */
  came: number;
  left: number;
  /** Moments of its newest looks, unix ms, oldest first; no more than can matter. */
  looks: number[];
}

interface Waiting {
  domain: string;
  /** Its number among those of its domain. */
  n: number;
  t: number;
}

/**
 * The line of asks as serving knows it: the same fold of the topic `asks` that the pipeline works off, so how long an
 * ask waits is told from the real line, whoever put it there, and a restart forgets nothing. Bounded.
 */
export class AskLine {
  readonly #open = new Map<string, Waiting>();
  readonly #domains = new Map<string, Domain>();
  readonly #looked = new Map<string, number>();

  constructor(private readonly limits: LineLimits) {}

  /** Asks in line. */
  get size(): number {
    return this.#open.size;
  }

  get full(): boolean {
    return this.#open.size >= this.limits.max;
  }

  /** Is it in line, or was it looked at within a day: is there nothing to append for it? */
  knows(cap: string, now: number): boolean {
    return this.#open.has(cap) || (this.#looked.get(cap) ?? Number.NEGATIVE_INFINITY) >= now - NEGATIVE_MS;
  }

  /** An ask came; one that stands in line already, was looked at within a day, or is past the bound changes nothing. */
  ask(cap: string, normalised: string, t: number): void {
    if (this.knows(cap, t)) return;
    this.#expire(t);
    if (this.full) return;
    const name = registrableDomain(normalised);
    const domain = this.#domains.get(name) ?? { came: 0, left: 0, looks: [] };
    this.#domains.set(name, domain);
    this.#open.set(cap, { domain: name, n: domain.came++, t });
  }

  /** It was looked at and leaves the line. */
  looked(cap: string, t: number): void {
    this.#looked.delete(cap);
    if (this.#looked.size >= MAX_LOOKED) this.#looked.delete(this.#looked.keys().next().value!);
    this.#looked.set(cap, t);
    const domain = this.#leave(cap);
    if (!domain) return;
    domain.looks.push(t);
    if (domain.looks.length > this.limits.perDomainHour) domain.looks.shift();
  }

  /** Hours until an answer can be expected for this ask, at least 1: its position among those of its domain, and the whole line. */
  hours(cap: string, now: number): number {
    const waiting = this.#open.get(cap);
    if (!waiting) return 1;
    const { came, left, looks } = this.#domains.get(waiting.domain) ?? { came: 0, left: 0, looks: [] };
    const ahead = Math.min(waiting.n - left, came - left - 1);
    const begun = looks.filter((t) => t > now - HOUR_MS).length;
    const position = Math.max(0, ahead) + begun;
    return Math.max(1, Math.floor(position / this.limits.perDomainHour) + 1, Math.ceil(this.size / LOOKS_AN_HOUR));
  }

  /** One record of the topic `asks`; what is none of the line's is passed over. */
  apply(record: LogRecord): void {
    const read = readRecord(record);
    if (!read.ok) return;
    const { type, observed_at, body } = read.envelope;
    const t = Date.parse(observed_at);
    if (type === "ask") {
      const { cap, normalised_url } = body as BodyOf<"ask">;
      this.ask(cap, normalised_url, t);
    } else if (type === "ask.looked") this.looked((body as BodyOf<"ask.looked">).cap, t);
  }

  #leave(cap: string): Domain | null {
    const waiting = this.#open.get(cap);
    if (!waiting) return null;
    this.#open.delete(cap);
    const domain = this.#domains.get(waiting.domain)!;
    domain.left++;
    return domain;
  }

  /** The oldest stand first: a Map keeps its order. Domains with nothing in line and no look that matters go with them. */
  #expire(now: number): void {
    for (const [cap, { t }] of this.#open) {
      if (t >= now - EXPIRES_MS) break;
      this.#leave(cap);
    }
    if (this.#domains.size <= this.limits.max * 2) return;
    for (const [name, domain] of this.#domains) {
      if (domain.left >= domain.came && (domain.looks.at(-1) ?? 0) <= now - HOUR_MS) this.#domains.delete(name);
    }
  }
}

export interface FollowAsks {
  /** Read what is new, now. */
  catchUp(): Promise<void>;
  stop(): Promise<void>;
}

/** Follows the topic `asks` from its beginning, `everyMs` (real) apart. A read that fails is made again next time. */
export function followAsks(
  log: Pick<Log, "read" | "bounds" | "partitions">,
  line: AskLine,
  logger: Pick<Logger, "warn">,
  everyMs = 2_000,
): FollowAsks {
  const next = new Map<number, number>();
  let timer: NodeJS.Timeout | null = null;
  let stopped = false;
  let reading: Promise<void> = Promise.resolve();
  const read = async (partition: number): Promise<void> => {
    for (;;) {
      const from = next.get(partition) ?? (await log.bounds("asks", partition)).start;
      try {
        const records = await log.read("asks", partition, from);
        for (const record of records) line.apply(record);
        next.set(partition, (records.at(-1)?.offset ?? from - 1) + 1);
        if (records.length === 0 || stopped) return;
      } catch (error) {
        if (!(error instanceof OffsetGone)) throw error;
        next.set(partition, error.start);
      }
    }
  };
  const catchUp = (): Promise<void> => {
    reading = reading.then(async () => {
      try {
        for (let partition = 0; partition < log.partitions; partition++) await read(partition);
      } catch (error) {
        logger.warn({ err: error }, "the line of asks could not be followed; waits are told from what is known");
      }
    });
    return reading;
  };
  const turn = async (): Promise<void> => {
    await catchUp();
    if (!stopped) timer = setTimeout(() => void turn(), everyMs);
  };
  void turn();
  return {
    catchUp,
    async stop() {
      stopped = true;
      if (timer) clearTimeout(timer);
      await reading;
    },
  };
}
