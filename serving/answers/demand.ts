import { randomBytes } from "node:crypto";
import type { Clock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { envelopeOf, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { dayOf } from "../../pipelines/record/time.ts";

export interface DemandBounds {
  /** Endpoints that one client is counted for on a day: who walks through the whole index says nothing by it. */
  perClient: number;
  /** Clients, pairs of client and endpoint, and endpoints that are remembered of a day; past it nothing is counted. */
  clients: number;
  pairs: number;
  /** Endpoints of one record: those asked for most. The others wait for the next. */
  perRecord: number;
}

const DEMAND_BOUNDS: DemandBounds = { perClient: 50, clients: 50_000, pairs: 200_000, perRecord: 1_000 };

/** Real ms between two tallies. */
const EVERY_MS = 600_000;

export interface DemandDeps {
  log: Pick<Log, "append" | "partitions">;
  clock: Clock;
  logger: Pick<Logger, "warn">;
  bounds?: Partial<DemandBounds>;
}

/**
 * How many clients check each endpoint that is in the record: that is what decides who is paid first when the budget
 * is short (docs/schedule.md). A client counts once a day for an endpoint, so asking a thousand times buys nothing. Only
 * counts leave this process: who asked for what is forgotten with the day, and is never written anywhere.
 */
export class Demand {
  readonly #bounds: DemandBounds;
  readonly #replica = randomBytes(8).toString("hex");
  #seq = 0;
  #day = "";
  readonly #pairs = new Set<string>();
  readonly #clients = new Map<string, number>();
  /** Clients since the last tally, by capability. */
  #counts = new Map<string, number>();
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> = Promise.resolve();

  constructor(private readonly deps: DemandDeps) {
    this.#bounds = { ...DEMAND_BOUNDS, ...deps.bounds };
  }

  /** One client checked one endpoint. Cheap; called for every answer. */
  count(cap: string, client: string): void {
    const pair = `${cap} ${client}`;
    const today = dayOf(this.deps.clock.now());
    if (today !== this.#day) this.#turn(today);
    if (this.#pairs.has(pair) || this.#pairs.size >= this.#bounds.pairs) return;
    const counted = this.#clients.get(client) ?? 0;
    if (counted >= this.#bounds.perClient) return;
    if (counted === 0 && this.#clients.size >= this.#bounds.clients) return;
    this.#clients.set(client, counted + 1);
    this.#pairs.add(pair);
    this.#counts.set(cap, (this.#counts.get(cap) ?? 0) + 1);
  }

  /** Writes what was counted since the last time, most asked for first. A log that refuses gets it with the next one. */
  flush(): Promise<void> {
    const { counts, day } = { counts: this.#counts, day: this.#day };
    this.#counts = new Map();
    this.#writing = this.#writing.then(() => this.#write(day, counts));
    return this.#writing;
  }

  /** Begin to write tallies, ten minutes apart. */
  start(): void {
    this.#timer = setInterval(() => void this.flush(), EVERY_MS);
    this.#timer.unref();
  }

  /** The last tally, and no more. */
  async stop(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await this.flush();
  }

  #turn(today: string): void {
    if (this.#counts.size > 0) void this.flush();
    this.#day = today;
    this.#pairs.clear();
    this.#clients.clear();
  }

  async #write(day: string, counts: Map<string, number>): Promise<void> {
    const { log, clock, logger } = this.deps;
    const most = [...counts].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
    for (let i = 0; i < most.length; i += this.#bounds.perRecord) {
      const asked = most.slice(i, i + this.#bounds.perRecord).map(([cap, clients]) => ({ cap, clients }));
      const key = `demand/${this.#replica}`;
      try {
        const body = { day, replica: this.#replica, asked };
        const of = { key, slot: `${day}/${this.#seq++}`, at: clock.now(), producer: "serving", body };
        await log.append([sealEnvelope(envelopeOf({ type: "demand", ...of }), log.partitions)]);
      } catch (error) {
        logger.warn({ err: error }, "a tally of checks could not be appended; it is kept for the next");
        if (day === this.#day) for (const { cap, clients } of asked) this.#add(cap, clients);
      }
    }
  }

  #add(cap: string, clients: number): void {
    this.#counts.set(cap, (this.#counts.get(cap) ?? 0) + clients);
  }
}
