import { sha256 } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { ENVELOPE_VERSION, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../pipelines/record/ids.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { registrableDomain } from "../../pipelines/record/url.ts";
import { Limiter } from "../http/limits.ts";
import { Problem } from "../http/problem.ts";

export interface AskLimits {
  /** New urls one client may put in line in an hour. */
  perClientHour: number;
  /** New urls of one registrable domain that are knocked at in an hour: more only wait longer. */
  perDomainHour: number;
  /** New urls in an hour from all clients together. */
  totalHour: number;
}

export const ASK_LIMITS: AskLimits = { perClientHour: 20, perDomainHour: 5, totalHour: 50_000 };

const HOUR_MS = 3_600_000;
/** Urls asked in this hour and domains counted in it that are remembered. */
const MAX_REMEMBERED = 100_000;

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
}

/** Urls that nobody knew, put in line for a free handshake by one record of the log. */
export class Asks {
  readonly #limits: AskLimits;
  readonly #clients: Limiter;
  readonly #total: Limiter;
  #hour = -1;
  /** This hour's urls and how long each was told to wait, in hours. */
  readonly #asked = new Map<string, number>();
  readonly #domains = new Map<string, number>();

  constructor(private readonly deps: AskDeps) {
    this.#limits = { ...ASK_LIMITS, ...deps.limits };
    const steady = () => deps.clock.monotonic();
    this.#clients = new Limiter({ name: "asks", quota: this.#limits.perClientHour, windowS: 3600 }, steady);
    this.#total = new Limiter({ name: "asks-total", quota: this.#limits.totalHour, windowS: 3600 }, steady, 1);
  }

  /**
   * Append the ask; resolves once it is durable, with the hours until an answer can be expected. A url that this
   * replica appended in the same hour is in line already and costs nobody anything.
   * @throws Problem too_many_asks past the limits of the client or in total; log_unavailable when nothing was stored.
   */
  async put(ask: Ask, client: string): Promise<number> {
    const now = this.deps.clock.now();
    this.#turn(Math.floor(now.getTime() / HOUR_MS));
    const key = `${ask.method ?? ""} ${ask.normalised}`;
    const known = this.#asked.get(key);
    if (known !== undefined) return known;
    for (const [limiter, who] of [
      [this.#clients, client],
      [this.#total, "all"],
    ] as const) {
      const taken = limiter.take(who);
      if (taken.ok) continue;
      const detail = `at most ${limiter.limit.quota} unknown urls an hour ${who === "all" ? "in total" : "for one client"}`;
      throw new Problem("too_many_asks", detail, { headers: limiter.headers(taken) });
    }
    try {
      await this.deps.log.append([this.#record(ask, now)]);
    } catch (error) {
      this.deps.logger.error({ err: error }, "an ask could not be appended");
      throw new Problem("log_unavailable", "the url could not be put in line; ask again", {
        headers: { "retry-after": "5" },
      });
    }
    const hours = this.#wait(registrableDomain(ask.normalised));
    if (this.#asked.size < MAX_REMEMBERED) this.#asked.set(key, hours);
    return hours;
  }

  #turn(hour: number): void {
    if (hour === this.#hour) return;
    this.#hour = hour;
    this.#asked.clear();
    this.#domains.clear();
  }

  #wait(domain: string): number {
    const place = (this.#domains.get(domain) ?? 0) + 1;
    if (place > 1 || this.#domains.size < MAX_REMEMBERED) this.#domains.set(domain, place);
    return Math.max(1, Math.ceil(place / this.#limits.perDomainHour));
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
