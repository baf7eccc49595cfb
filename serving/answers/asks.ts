import { sha256 } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { ENVELOPE_VERSION, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../pipelines/record/ids.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { Limiter } from "../http/limits.ts";
import { Problem } from "../http/problem.ts";
import { TakesNothing } from "../replica/late-log.ts";
import { AskLine } from "../tables/ask-line.ts";

export interface AskLimits {
  /** New urls one client may put in line in an hour. */
  perClientHour: number;
  /** New urls of one registrable domain that are probed in an hour: more only wait longer. */
  perDomainHour: number;
  /** New urls in an hour from all clients together. */
  totalHour: number;
  /** Urls in line. */
  inLine: number;
}

/** egress.md, Limits. */
export const ASK_LIMITS: AskLimits = { perClientHour: 20, perDomainHour: 5, totalHour: 50_000, inLine: 50_000 };

/** Seconds after which a client may try again when the whole line is full. */
const FULL_RETRY_S = 600;

/** The line as serving folds it, for these limits. */
export const askLineOf = (limits: Partial<AskLimits> = {}): AskLine => {
  const { inLine, perDomainHour } = { ...ASK_LIMITS, ...limits };
  return new AskLine({ max: inLine, perDomainHour });
};

export interface Ask {
  /** As asked, without user info and fragment. */
  url: string;
  normalised: string;
  method: string | undefined;
}

export interface AskDeps {
  log: Pick<Log, "append" | "partitions">;
  clock: Clock;
  logger: Pick<Logger, "error">;
  producer: string;
  limits?: Partial<AskLimits>;
  /** The line as the log tells it; without one, what this replica itself appended. */
  line?: AskLine;
}

/** Urls that nobody knew, put in line for a free handshake by one record of the log. */
export class Asks {
  readonly #limits: AskLimits;
  readonly #clients: Limiter;
  readonly #total: Limiter;
  readonly #line: AskLine;

  constructor(private readonly deps: AskDeps) {
    this.#limits = { ...ASK_LIMITS, ...deps.limits };
    this.#line = deps.line ?? askLineOf(this.#limits);
    const steady = () => deps.clock.monotonic();
    this.#clients = new Limiter({ name: "asks", quota: this.#limits.perClientHour, windowS: 3600 }, steady);
    this.#total = new Limiter({ name: "asks-total", quota: this.#limits.totalHour, windowS: 3600 }, steady, 1);
  }

  /**
   * Append the ask; resolves once it is durable, with the hours until an answer can be expected. A url that stands in
   * line already, or was looked at within a day, costs nobody anything.
   * @throws Problem too_many_asks past the limits of the client or in total; log_unavailable when nothing was stored.
   */
  async put(ask: Ask, client: string): Promise<number> {
    const now = this.deps.clock.now();
    const cap = capId(ask.method ?? "GET", ask.normalised);
    if (this.#line.knows(cap, now.getTime())) return this.#line.hours(cap, now.getTime());
    this.#admit(client);
    try {
      await this.deps.log.append([this.#record(ask, now)]);
    } catch (error) {
      if (error instanceof TakesNothing) throw new Problem("log_unavailable", error.message);
      this.deps.logger.error({ err: error }, "an ask could not be appended");
      throw new Problem("log_unavailable", "the url could not be put in line; ask again", {
        headers: { "retry-after": "5" },
      });
    }
    // Not waited for from the log: what was appended stands there, and the fold takes it once.
    this.#line.ask(cap, ask.normalised, now.getTime());
    return this.#line.hours(cap, now.getTime());
  }

  /** @throws Problem too_many_asks */
  #admit(client: string): void {
    if (this.#line.full) {
      const detail = `${this.#limits.inLine} unknown urls are in line; try again in a while`;
      throw new Problem("too_many_asks", detail, { headers: { "retry-after": String(FULL_RETRY_S) } });
    }
    for (const [limiter, who] of [
      [this.#clients, client],
      [this.#total, "all"],
    ] as const) {
      const taken = limiter.take(who);
      if (taken.ok) continue;
      const detail = `at most ${limiter.limit.quota} unknown urls an hour ${who === "all" ? "in total" : "for one client"}`;
      throw new Problem("too_many_asks", detail, { headers: limiter.headers(taken) });
    }
  }

  /**
   * The slot is host and UTC hour, so the same url asked twice in an hour is one record. Two urls of one host would
   * share that slot, and the second would be dropped as a copy of the first: the attempt tells them apart by 31 bits
   * of the url's hash.
   */
  #record({ url, normalised, method }: Ask, now: Date) {
    const { host } = new URL(normalised);
    const hour = rfc3339(now).slice(0, 13);
    const attempt = sha256(`${method ?? ""} ${normalised}`).readUInt32BE(0) >>> 1;
    return sealEnvelope(
      {
        v: ENVELOPE_VERSION,
        type: "ask",
        event_id: recordId("ask", host, `${host}/${hour}`, attempt),
        key: host,
        observed_at: rfc3339(now),
        producer: this.deps.producer,
        body: {
          url,
          normalised_url: normalised,
          method: (method ?? null) as "GET" | "POST" | null,
          host,
          cap: capId(method ?? "GET", normalised),
        },
      },
      this.deps.log.partitions,
    );
  }
}
