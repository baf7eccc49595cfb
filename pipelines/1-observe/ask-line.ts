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
import { PLATFORM_TIMES } from "../record/url.ts";
import type { Hosts } from "./hosts.ts";
import { type AskReport, type Observer, ObserverStopped } from "./observer.ts";
import { type CurrentListing, currentListings } from "./probe/unplanned.ts";

/** Most asks begun and not ended. Each host has one at a time and the observer few together, so most wait in a queue. */
const AT_ONCE = 64;
/** Asks that are looked at in one turn; those under way and paused stand among them. */
const HEAD = 1_000;
/** An ask that broke off by a fault of ours is left alone for so long, ms. */
const PAUSE_MS = 600_000;
/** Asks of this process that are remembered: the lake may not have loaded the look yet. */
const MAX_REMEMBERED = 100_000;
/** Capabilities of one look that are written down. */
const MAX_PROBED = 16;

/** An ask whose turn has come. */
export interface OpenAsk {
  cap: string;
  /** When it was asked first, unix ms. */
  t: number;
  body: string;
}

/** Asks of one domain, and of all names under one platform, that are begun within an hour. */
const boundsOf = (perDomain: number) => ({ per_domain: perDomain, per_platform: PLATFORM_TIMES * perDomain });

/** The head of the line, in fair turns of the domains: asks whose domain may be begun now (sql/queries/asks, open). */
export const openAsks = (
  lake: Pick<Lake, "all">,
  now: Date,
  perDomain = LIMITS.asks_per_domain_hour,
): Promise<OpenAsk[]> =>
  lake.all<OpenAsk>(sql("queries/asks:open"), {
    ...{ now: now.getTime(), ...boundsOf(perDomain), most: HEAD },
    ...{ rest_ms: ASK_REST_MS, kept_ms: ASK_KEPT_MS },
  });

/** A listing of this long before the day may have come after the day's plan was drawn (jobs.ts: ten minutes before it), ms. */
const BEFORE_DAY_MS = 3_600_000;

/** An endpoint that nobody asked for and no plan calls yet. */
interface Unprobed {
  cap: string;
  /** When it was listed, unix ms. */
  t: number;
  url: string;
  method: string;
}

/** Endpoints that were listed since the day's plan may have been drawn, and were never probed; the newest first. */
const unprobed = (lake: Pick<Lake, "all">, now: Date, perDomain: number): Promise<Unprobed[]> =>
  lake.all<Unprobed>(sql("queries/asks:unprobed"), {
    ...{ now: now.getTime(), ...boundsOf(perDomain), most: HEAD },
    since: dayStart(dayOf(now)).getTime() - BEFORE_DAY_MS,
  });

/** How much each endpoint was asked for in the seven UTC days before `day`; those that nobody asked for are left out. */
export async function demandBefore(lake: Pick<Lake, "all">, day: string): Promise<Map<string, number>> {
  const rows = await lake.all<{ cap: string; n: bigint }>(sql("queries/asks:demand"), { day });
  return new Map(rows.map(({ cap, n }) => [cap, Number(n)]));
}

export interface AskLineParts {
  lake: Pick<Lake, "all">;
  observer: Pick<Observer, "ask" | "plans">;
  log: Pick<Log, "append" | "partitions">;
  now: () => Date;
  logger: Pick<Logger, "error">;
  metrics: Metrics;
  /** Hosts that are ours to look at (default: all). */
  hosts?: Hosts;
  /** Default: the settings'. */
  perDomainHour?: number;
}

/**
 * The line of asked urls. It is a fold of the topic `asks` and the handshakes, so a restart goes on where the last
 * process stood. A turn begins what may be begun and returns at once: a stranger that answers slowly holds up nobody
 * but its own host. What was looked at is written down, also when nothing could be probed.
 */
export class AskLine {
  readonly #underway = new Map<string, Promise<void>>();
  /** By capability, unix ms: asks up to then were looked at by this process; until then it does not try again. */
  readonly #looked = new BoundedMap<string, number>(MAX_REMEMBERED);
  readonly #paused = new BoundedMap<string, number>(MAX_REMEMBERED);

  constructor(private readonly parts: AskLineParts) {}

  /** Begins looks as far as there is room: what was asked for, then what came too late for the day's plan. @returns how many */
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
      // What the plan calls is called as it says; before there is a plan nothing is late for it.
      .filter(({ cap }) => this.parts.observer.plans(day, cap) === false)
      .map(({ cap, t, url, method }) => ({ cap, t, ask: askFor(cap, url, method) }));
    return begun + (await this.#begin(late, at, room(), true));
  }

  /** @param listed only what is listed still */
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

  /** Resolves when every look that was begun has ended, or after `graceMs` (real ms): a tarpit holds up no shutdown. */
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
      // We were stopped, and nothing failed: it stays in the line for the next process.
      if (error instanceof ObserverStopped) return;
      // It stays in the line: the log, the disk or our own code failed, and none of them is the asker's doing.
      this.#paused.set(cap, now().getTime() + PAUSE_MS);
      metrics.count("touchstone_observe_asks_total", { result: "broken" });
      logger.error({ err: error, cap }, "a look at an asked url broke off; it stays in the line");
    }
  }
}

/** An endpoint whose turn has come, as an ask for it. `t`: when its turn came, unix ms. */
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

/** Its id names the ask, so a look that is written again after a crash is the same record. */
function lookedRecord(ask: BodyOf<"ask">, t: number, report: AskReport, at: Date, partitions: number) {
  const body = { cap: ask.cap, host: ask.host, probed: report.probed.slice(0, MAX_PROBED) };
  const slot = `${ask.cap}/${rfc3339(new Date(t))}`;
  const producer = "touchstone/1";
  return sealEnvelope(envelopeOf({ type: "ask.looked", key: ask.host, slot, at, producer, body }), partitions);
}
