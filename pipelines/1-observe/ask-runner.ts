import { BoundedMap } from "../../infra/bounded-map.ts";
import { systemClock } from "../../infra/clock.ts";
import { DEFAULT_LIMITS } from "../../infra/config.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { BodyOf } from "../record/bodies.ts";
import { envelopeOf, sealEnvelope } from "../record/envelope.ts";
import { ASK_LIFETIME_MS, dayOf, dayStart, MIN_PROBE_INTERVAL_MS, rfc3339 } from "../record/time.ts";
import { PLATFORM_CAP_FACTOR } from "../record/url.ts";
import type { Hosts } from "./hosts.ts";
import { type AskReport, type Observer, ObserverStopped } from "./observer.ts";
import { type CurrentListing, readCurrentListings } from "./probe/unplanned.ts";

/**
 * Largest number of asks (clients' requests to probe a url) whose probe runs or waits for its host at once. The
 * observer probes few hosts in parallel, one call at a time for each host.
 */
const MAX_PROBES_AT_ONCE = 64;
/**
 * Largest number of rows that one call of `startDue` reads from the lake (the database of the log's rows), including
 * asks that are being probed or are paused.
 */
const MAX_ROWS_READ = 1_000;
/** Pause before an ask whose probe failed through our own fault is tried again, ms. */
const RETRY_PAUSE_MS = 600_000;
/**
 * Largest number of asks that this process remembers as done. It has to remember them because the lake loads their
 * records some time later.
 */
const MAX_REMEMBERED = 100_000;
/** Largest number of endpoint ids in an `ask.looked` record, which marks an ask as done. */
const MAX_CAPS_PER_ASK = 16;

/** An ask (a client's request to probe a url) that may be probed now. */
export interface OpenAsk {
  cap: string;
  /** Time at which a client first asked for the endpoint, unix ms. */
  t: number;
  /** Body of the record `ask`, as JSON text. */
  body: string;
}

/**
 * Returns the limits on the number of probes in an hour: for the endpoints of one domain, and for all names under one
 * hosting platform.
 */
const probeLimits = (perDomain: number) => ({ per_domain: perDomain, per_platform: PLATFORM_CAP_FACTOR * perDomain });

/**
 * Reads the asks whose domain may be probed now. Domains take turns, so that no domain delays another
 * (sql/queries/asks, open).
 */
export const readOpenAsks = (
  lake: Pick<Lake, "all">,
  now: Date,
  perDomain = DEFAULT_LIMITS.asks_per_domain_hour,
): Promise<OpenAsk[]> =>
  lake.all<OpenAsk>(sql("queries/asks:open"), {
    ...{ now: now.getTime(), ...probeLimits(perDomain), most: MAX_ROWS_READ },
    ...{ rest_ms: MIN_PROBE_INTERVAL_MS, kept_ms: ASK_LIFETIME_MS },
  });

/**
 * Time before the beginning of a day, ms. An endpoint that was listed within this time may be missing in the day's
 * plan, which is drawn ten minutes before the day (roles/jobs.ts) from what the lake has loaded by then.
 */
const PLAN_LEAD_MS = 3_600_000;

/** An endpoint that was never probed, that no client asked for, and that is perhaps missing in today's plan. */
interface UnprobedEndpoint {
  cap: string;
  /** When the endpoint was listed, unix ms. */
  t: number;
  url: string;
  method: string;
}

/**
 * Reads the endpoints that were listed since shortly before the day's plan was drawn and were never probed, the newest
 * first.
 */
const readUnprobed = (lake: Pick<Lake, "all">, now: Date, perDomain: number): Promise<UnprobedEndpoint[]> =>
  lake.all<UnprobedEndpoint>(sql("queries/asks:unprobed"), {
    ...{ now: now.getTime(), ...probeLimits(perDomain), most: MAX_ROWS_READ },
    since: dayStart(dayOf(now)).getTime() - PLAN_LEAD_MS,
  });

/**
 * Reads how many clients asked for each endpoint in the seven UTC days before `day`. Endpoints without a request are
 * left out.
 */
export async function readDemandBefore(lake: Pick<Lake, "all">, day: string): Promise<Map<string, number>> {
  const rows = await lake.all<{ cap: string; n: bigint }>(sql("queries/asks:demand"), { day });
  return new Map(rows.map(({ cap, n }) => [cap, Number(n)]));
}

export interface AskRunnerParts {
  lake: Pick<Lake, "all">;
  observer: Pick<Observer, "probeAsk" | "isPlanned">;
  log: Pick<Log, "append" | "partitions">;
  now: () => Date;
  logger: Pick<Logger, "error">;
  metrics: Metrics;
  /** Hosts that this observer may call (default: all). */
  hosts?: Hosts;
  /** Largest number of probes an hour for one domain (default: the value in the settings). */
  perDomainHour?: number;
}

/**
 * Probes the urls that clients asked for. Which asks are done follows from the records of the topic `asks` and from the
 * handshakes, so a restarted process continues where the last one stopped. {@link startDue} starts the probes that may
 * start and returns at once, so that a slow host delays only its own asks. The end of each ask is recorded, also when
 * nothing could be probed.
 */
export class AskRunner {
  /** Running probes by endpoint id. */
  readonly #running = new Map<string, Promise<void>>();
  /** Unix ms at which this process last probed each endpoint. Asks made before that are done. */
  readonly #probedAt = new BoundedMap<string, number>(MAX_REMEMBERED);
  /** Unix ms until which each endpoint whose probe failed is not tried again. */
  readonly #pausedUntil = new BoundedMap<string, number>(MAX_REMEMBERED);

  constructor(private readonly parts: AskRunnerParts) {}

  /**
   * Starts as many probes as there is room for: first for asks, then for endpoints that were listed after the day's
   * plan was drawn.
   * @returns number of probes that were started
   */
  async startDue(): Promise<number> {
    const { lake, now, perDomainHour = DEFAULT_LIMITS.asks_per_domain_hour } = this.parts;
    const freeSlots = () => MAX_PROBES_AT_ONCE - this.#running.size;
    if (freeSlots() <= 0) return 0;
    const at = now();
    const askTurns = (await readOpenAsks(lake, at, perDomainHour)).map(({ cap, t, body }) => ({
      ...{ cap, t },
      ask: JSON.parse(body) as BodyOf<"ask">,
    }));
    const startedForAsks = await this.#start(askTurns, at, freeSlots());
    if (freeSlots() <= 0) return startedForAsks;
    const day = dayOf(at);
    const unplannedTurns = (await readUnprobed(lake, at, perDomainHour))
      // Endpoints in the day's plan are probed as planned. Before the plan exists (null), any endpoint may still get
      // into it.
      .filter(({ cap }) => this.parts.observer.isPlanned(day, cap) === false)
      .map(({ cap, t, url, method }) => ({ cap, t, ask: createAsk(cap, url, method) }));
    return startedForAsks + (await this.#start(unplannedTurns, at, freeSlots(), true));
  }

  /** @param mustBeListed true to skip endpoints that are no longer listed */
  async #start(turns: readonly ProbeTurn[], at: Date, freeSlots: number, mustBeListed = false): Promise<number> {
    const turnsToStart = turns.filter((one) => this.#mayProbe(one, at.getTime())).slice(0, freeSlots);
    const endpointIds = turnsToStart.map(({ cap }) => cap);
    const listings = await readCurrentListings(this.parts.lake, endpointIds);
    const startable = turnsToStart.filter(({ cap }) => !mustBeListed || listings.has(cap));
    for (const one of startable) {
      const running = this.#probe(one, listings.get(one.cap)).finally(() => this.#running.delete(one.cap));
      this.#running.set(one.cap, running);
    }
    return startable.length;
  }

  /**
   * Resolves when all probes have ended, but at the latest after `graceMs` (real ms), so that a host that never answers
   * does not delay a shutdown.
   */
  async waitUntilIdle(graceMs = 5_000): Promise<void> {
    const graceEnd = new AbortController();
    const allEnded = Promise.all(this.#running.values()).then(() => graceEnd.abort());
    await Promise.race([allEnded, systemClock.sleep(graceMs, graceEnd.signal).catch(() => {})]);
  }

  #mayProbe({ cap, t, ask }: ProbeTurn, now: number): boolean {
    if (this.#running.has(cap)) return false;
    const { hosts } = this.parts;
    if (hosts && !hosts.owns(ask.host)) return false;
    return (this.#probedAt.get(cap) ?? -1) < t && (this.#pausedUntil.get(cap) ?? 0) <= now;
  }

  async #probe({ cap, t, ask }: ProbeTurn, listing: CurrentListing | undefined): Promise<void> {
    const { observer, log, now, logger, metrics } = this.parts;
    try {
      const report = await observer.probeAsk(ask, listing);
      await log.append([createAskDoneRecord(ask, t, report, now(), log.partitions)]);
      this.#probedAt.set(cap, now().getTime());
      metrics.count("touchstone_observe_asks_total", { result: report.probed[0]?.state ?? "not_probed" });
    } catch (error) {
      // The observer was stopped: the ask stays open for the next process.
      if (error instanceof ObserverStopped) return;
      // The log, the disk or our own code failed. The ask stays open and is tried again later.
      this.#pausedUntil.set(cap, now().getTime() + RETRY_PAUSE_MS);
      metrics.count("touchstone_observe_asks_total", { result: "broken" });
      logger.error({ err: error, cap }, "a look at an asked url failed; the url is tried again in ten minutes");
    }
  }
}

/** An endpoint to probe, with an ask for it. `t`: when the endpoint was asked for or listed, unix ms. */
interface ProbeTurn {
  cap: string;
  t: number;
  ask: BodyOf<"ask">;
}

const createAsk = (cap: string, url: string, method: string): BodyOf<"ask"> => ({
  ...{ url, normalised_url: url, cap },
  method: method as BodyOf<"ask">["method"],
  host: new URL(url).host,
});

/**
 * Makes the record that an ask is done. Its event id follows from the ask, so that a second record after a crash is
 * dropped as a copy.
 */
function createAskDoneRecord(ask: BodyOf<"ask">, askedAtMs: number, report: AskReport, at: Date, partitions: number) {
  const body = { cap: ask.cap, host: ask.host, probed: report.probed.slice(0, MAX_CAPS_PER_ASK) };
  const slot = `${ask.cap}/${rfc3339(new Date(askedAtMs))}`;
  const producer = "touchstone/1";
  return sealEnvelope(envelopeOf({ type: "ask.looked", key: ask.host, slot, at, producer, body }), partitions);
}
