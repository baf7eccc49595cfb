import { randomBytes } from "node:crypto";
import type { Clock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { envelopeOf, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { dayOf } from "../../pipelines/record/time.ts";

export interface DemandBounds {
  /**
   * Largest number of endpoints that one client is counted for on a day, so that a client that walks through the whole
   * index does not count for all.
   */
  perClient: number;
  /** Largest number of clients that are remembered in a day. Further clients are not counted. */
  maxClients: number;
  /** Largest number of pairs of client and endpoint that are remembered in a day. Beyond it nothing is counted. */
  maxPairs: number;
  /** Largest number of endpoints in one record of the log, the most requested first; the next record has the others. */
  perRecord: number;
}

const DEMAND_BOUNDS: DemandBounds = { perClient: 50, maxClients: 50_000, maxPairs: 200_000, perRecord: 1_000 };

/** Time between two records, real ms. */
const FLUSH_INTERVAL_MS = 600_000;

export interface DemandDeps {
  log: Pick<Log, "append" | "partitions">;
  clock: Clock;
  logger: Pick<Logger, "warn">;
  bounds?: Partial<DemandBounds>;
}

/**
 * Counts how many clients check each endpoint. When the budget is short, the counts decide which endpoints are paid
 * first (docs/schedule.md). A client counts once a day for an endpoint, so checking it a thousand times gains
 * nothing. Only counts leave this process: which client checked which endpoint stays in memory until the day ends and
 * is never written.
 */
export class Demand {
  readonly #bounds: DemandBounds;
  /** Random name of this process, by which the log tells the counts of several replicas apart. */
  readonly #replica = randomBytes(8).toString("hex");
  /** Number of the next record, which makes its slot unique. */
  #seq = 0;
  /** The UTC day that is counted, YYYY-MM-DD. */
  #day = "";
  /** Pairs of endpoint and client that were counted today. */
  readonly #pairs = new Set<string>();
  /** Number of endpoints that each client was counted for today. */
  readonly #clients = new Map<string, number>();
  /** Number of clients since the last record, by capability id. */
  #counts = new Map<string, number>();
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> = Promise.resolve();

  constructor(private readonly deps: DemandDeps) {
    this.#bounds = { ...DEMAND_BOUNDS, ...deps.bounds };
  }

  /** Counts one check of an endpoint by a client. Cheap, since it is called for every answer. */
  count(cap: string, client: string): void {
    const pair = `${cap} ${client}`;
    const today = dayOf(this.deps.clock.now());
    if (today !== this.#day) this.#startDay(today);
    if (this.#pairs.has(pair) || this.#pairs.size >= this.#bounds.maxPairs) return;
    const counted = this.#clients.get(client) ?? 0;
    if (counted >= this.#bounds.perClient) return;
    if (counted === 0 && this.#clients.size >= this.#bounds.maxClients) return;
    this.#clients.set(client, counted + 1);
    this.#pairs.add(pair);
    this.#counts.set(cap, (this.#counts.get(cap) ?? 0) + 1);
  }

  /**
   * Appends the counts since the last record, the most requested endpoints first. Counts that the log refuses are kept
   * for the next record of the same day.
   */
  flush(): Promise<void> {
    const { counts, day } = { counts: this.#counts, day: this.#day };
    this.#counts = new Map();
    this.#writing = this.#writing.then(() => this.#write(day, counts));
    return this.#writing;
  }

  /** Starts to append a record every ten minutes. */
  start(): void {
    this.#timer = setInterval(() => void this.flush(), FLUSH_INTERVAL_MS);
    this.#timer.unref();
  }

  /** Appends the last record and stops. */
  async stop(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await this.flush();
  }

  #startDay(today: string): void {
    if (this.#counts.size > 0) void this.flush();
    this.#day = today;
    this.#pairs.clear();
    this.#clients.clear();
  }

  async #write(day: string, counts: Map<string, number>): Promise<void> {
    const { log, clock, logger } = this.deps;
    const mostRequestedFirst = [...counts].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
    for (let i = 0; i < mostRequestedFirst.length; i += this.#bounds.perRecord) {
      const batch = mostRequestedFirst.slice(i, i + this.#bounds.perRecord).map(([cap, clients]) => ({ cap, clients }));
      const key = `demand/${this.#replica}`;
      try {
        const body = { day, replica: this.#replica, asked: batch };
        const fields = { key, slot: `${day}/${this.#seq++}`, at: clock.now(), producer: "serving", body };
        await log.append([sealEnvelope(envelopeOf({ type: "demand", ...fields }), log.partitions)]);
      } catch (error) {
        logger.warn({ err: error }, "a tally of checks could not be appended; it is kept for the next");
        if (day === this.#day) for (const { cap, clients } of batch) this.#add(cap, clients);
      }
    }
  }

  #add(cap: string, clients: number): void {
    this.#counts.set(cap, (this.#counts.get(cap) ?? 0) + clients);
  }
}
