import { BoundedMap } from "../../infra/bounded-map.ts";
import { systemClock } from "../../infra/clock.ts";
import { LIMITS } from "../../infra/config.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { BodyOf } from "../record/bodies.ts";
import { envelopeOf, sealEnvelope } from "../record/envelope.ts";
import { ASK_KEPT_MS, ASK_REST_MS, dayOf, dayStart, rfc3339 } from "../record/time.ts";
import { PLATFORM_CAP_FACTOR } from "../record/url.ts";
import type { Hosts } from "./hosts.ts";
import { type AskReport, type Observer, ObserverStopped } from "./observer.ts";
import { type CurrentListing, currentListings } from "./probe/unplanned.ts";

/**
 * Most looks that run or wait for their host at once. The observer looks at few hosts together, one look a host at a
 * time.
 */
const AT_ONCE = 64;
/** Rows that one turn reads from the lake. Those that are looked at now or are paused are among them. */
const HEAD = 1_000;
/** An ask whose look failed by a fault of ours is not tried again for this long, ms. */
const PAUSE_MS = 600_000;
/** Most asks that this process remembers as looked at: the lake loads the record of a look some time later. */
const MAX_REMEMBERED = 100_000;
/** Most capabilities that the record of one look names. */
const MAX_PROBED = 16;

/** An ask that may be looked at now. */
export interface OpenAsk {
  cap: string;
  /** When it was asked first, unix ms. */
  t: number;
  body: string;
}

/** Most looks an hour for the endpoints of one domain, and for all names under one hosting platform. */
const boundsOf = (perDomain: number) => ({ per_domain: perDomain, per_platform: PLATFORM_CAP_FACTOR * perDomain });

/** Asks whose domain may be looked at now, the domains in fair turns (sql/queries/asks, open). */
export const openAsks = (
  lake: Pick<Lake, "all">,
  now: Date,
  perDomain = LIMITS.asks_per_domain_hour,
): Promise<OpenAsk[]> =>
  lake.all<OpenAsk>(sql("queries/asks:open"), {
    ...{ now: now.getTime(), ...boundsOf(perDomain), most: HEAD },
    ...{ rest_ms: ASK_REST_MS, kept_ms: ASK_KEPT_MS },
  });

/**
 * An endpoint that was listed up to this long before the day began may be missing in the day's plan, which is drawn ten
 * minutes before the day (roles/jobs.ts), ms.
 */
const BEFORE_DAY_MS = 3_600_000;

/** An endpoint that was never probed, that nobody asked for, and that today's plan may not call. */
interface Unprobed {
  cap: string;
  /** When it was listed, unix ms. */
  t: number;
  url: string;
  method: string;
}

/**
 * Endpoints that were listed since shortly before the day's plan was drawn, and were never probed; the newest first.
 */
const unprobed = (lake: Pick<Lake, "all">, now: Date, perDomain: number): Promise<Unprobed[]> =>
  lake.all<Unprobed>(sql("queries/asks:unprobed"), {
    ...{ now: now.getTime(), ...boundsOf(perDomain), most: HEAD },
    since: dayStart(dayOf(now)).getTime() - BEFORE_DAY_MS,
  });

/**
 * How often each endpoint was asked for in the seven UTC days before `day`; those that nobody asked for are left out.
 */
export async function demandBefore(lake: Pick<Lake, "all">, day: string): Promise<Map<string, number>> {
  const rows = await lake.all<{ cap: string; n: bigint }>(sql("queries/asks:demand"), { day });
  return new Map(rows.map(({ cap, n }) => [cap, Number(n)]));
}

export interface AskRunnerParts {
  lake: Pick<Lake, "all">;
  observer: Pick<Observer, "ask" | "plans">;
  log: Pick<Log, "append" | "partitions">;
  now: () => Date;
  logger: Pick<Logger, "error">;
  metrics: Metrics;
  /** Hosts that this observer may call (default: all). */
  hosts?: Hosts;
  /** Default: that of the settings. */
  perDomainHour?: number;
}

/**
 * Looks at the urls that somebody asked for. Its state is read from the records of the topic `asks` and from the
 * handshakes, so after a restart the next process goes on where this one stopped. {@link turn} begins the looks that
 * may begin and returns at once, so a host that answers slowly delays only asks for itself. The end of each look is
 * recorded, also when nothing could be probed.
 */
export class AskRunner {
  readonly #underway = new Map<string, Promise<void>>();
  /** Capability -> unix ms: an ask that is not newer was looked at by this process. */
  readonly #looked = new BoundedMap<string, number>(MAX_REMEMBERED);
  /** Capability -> unix ms until which it is not tried again. */
  readonly #paused = new BoundedMap<string, number>(MAX_REMEMBERED);

  constructor(private readonly parts: AskRunnerParts) {}

  /**
   * Begins as many looks as have room: first at what was asked for, then at what was listed after the day's plan was
   * drawn.
   * @returns how many
   */
  async turn(): Promise<number> {
    const { lake, now, perDomainHour = LIMITS.asks_per_domain_hour } = this.parts;
    const room = () => AT_ONCE - this.#underway.size;
    if (room() <= 0) return 0;
    const at = now();
    const asked = (await openAsks(lake, at, perDomainHour)).map(({ cap, t, body }) => ({
      ...{ cap, t },
      ask: JSON.parse(body) as BodyOf<"ask">,
    }));
    const begun = await this.#begin(asked, at, room());
    if (room() <= 0) return begun;
    const day = dayOf(at);
    const late = (await unprobed(lake, at, perDomainHour))
      // What the plan calls is left to the plan. Before there is a plan (null) nothing is too late for it.
      .filter(({ cap }) => this.parts.observer.plans(day, cap) === false)
      .map(({ cap, t, url, method }) => ({ cap, t, ask: askFor(cap, url, method) }));
    return begun + (await this.#begin(late, at, room(), true));
  }

  /** @param listed true: take only endpoints that are still listed */
  async #begin(turns: readonly Turn[], at: Date, room: number, listed = false): Promise<number> {
    const first = turns.filter((one) => this.#may(one, at.getTime())).slice(0, room);
    const caps = first.map(({ cap }) => cap);
    const said = await currentListings(this.parts.lake, caps);
    const may = first.filter(({ cap }) => !listed || said.has(cap));
    for (const one of may) {
      const look = this.#look(one, said.get(one.cap)).finally(() => this.#underway.delete(one.cap));
      this.#underway.set(one.cap, look);
    }
    return may.length;
  }

  /**
   * Resolves when all looks have ended, or after `graceMs` (real ms), so that a host that never answers does not delay
   * a shutdown.
   */
  async idle(graceMs = 5_000): Promise<void> {
    const pause = new AbortController();
    const ended = Promise.all(this.#underway.values()).then(() => pause.abort());
    await Promise.race([ended, systemClock.sleep(graceMs, pause.signal).catch(() => {})]);
  }

  #may({ cap, t, ask }: Turn, now: number): boolean {
    if (this.#underway.has(cap)) return false;
    const { hosts } = this.parts;
    if (hosts && !hosts.owns(ask.host)) return false;
    return (this.#looked.get(cap) ?? -1) < t && (this.#paused.get(cap) ?? 0) <= now;
  }

  async #look({ cap, t, ask }: Turn, said: CurrentListing | undefined): Promise<void> {
    const { observer, log, now, logger, metrics } = this.parts;
    try {
      const report = await observer.ask(ask, said);
      await log.append([lookedRecord(ask, t, report, now(), log.partitions)]);
      this.#looked.set(cap, now().getTime());
      metrics.count("touchstone_observe_asks_total", { result: report.probed[0]?.state ?? "not_probed" });
    } catch (error) {
      // The observer was stopped: the ask stays open for the next process.
      if (error instanceof ObserverStopped) return;
      // The log, the disk or our own code failed. The ask stays open and is tried again later.
      this.#paused.set(cap, now().getTime() + PAUSE_MS);
      metrics.count("touchstone_observe_asks_total", { result: "broken" });
      logger.error({ err: error, cap }, "a look at an asked url failed; the url is tried again in ten minutes");
    }
  }
}

/** An endpoint to look at, with an ask for it. `t`: when it was asked for or listed, unix ms. */
interface Turn {
  cap: string;
  t: number;
  ask: BodyOf<"ask">;
}

const askFor = (cap: string, url: string, method: string): BodyOf<"ask"> => ({
  ...{ url, normalised_url: url, cap },
  method: method as BodyOf<"ask">["method"],
  host: new URL(url).host,
});

/** The event id is made from the ask, so a look that is recorded again after a crash is a copy and is dropped. */
function lookedRecord(ask: BodyOf<"ask">, t: number, report: AskReport, at: Date, partitions: number) {
  const body = { cap: ask.cap, host: ask.host, probed: report.probed.slice(0, MAX_PROBED) };
  const slot = `${ask.cap}/${rfc3339(new Date(t))}`;
  const producer = "touchstone/1";
  return sealEnvelope(envelopeOf({ type: "ask.looked", key: ask.host, slot, at, producer, body }), partitions);
}
