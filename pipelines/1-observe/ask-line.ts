import { systemClock } from "../../infra/clock.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { BodyOf } from "../record/bodies.ts";
import { ENVELOPE_VERSION, sealEnvelope } from "../record/envelope.ts";
import { recordId } from "../record/ids.ts";
import { rfc3339 } from "../record/time.ts";
import { BoundedMap } from "./bounded.ts";
import type { Hosts } from "./hosts.ts";
import type { AskReport, Observer } from "./observer.ts";

/** Asked urls of one registrable domain that are begun within an hour (egress.md, Limits). */
export const PER_DOMAIN_HOUR = 5;
/** Asks begun and not ended; each host has one of them at a time and the observer few together, so most wait there. */
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

/** The head of the line, the fairest first: asks whose domain may be begun now (sql/queries/asks, open). */
export const openAsks = (lake: Pick<Lake, "all">, now: Date, perDomain = PER_DOMAIN_HOUR): Promise<OpenAsk[]> =>
  lake.all<OpenAsk>(sql("queries/asks:open"), { now: now.getTime(), per_domain: perDomain, most: HEAD });

/** How much each endpoint was asked for in the seven UTC days before `day`; those that nobody asked for are left out. */
export async function demandBefore(lake: Pick<Lake, "all">, day: string): Promise<Map<string, number>> {
  const rows = await lake.all<{ cap: string; n: bigint }>(sql("queries/asks:demand"), { day });
  return new Map(rows.map(({ cap, n }) => [cap, Number(n)]));
}

export interface AskLineParts {
  lake: Pick<Lake, "all">;
  observer: Pick<Observer, "ask">;
  log: Pick<Log, "append" | "partitions">;
  now: () => Date;
  logger: Pick<Logger, "error">;
  metrics: Metrics;
  /** Hosts that are ours to look at (default: all). */
  hosts?: Hosts;
  /** Default {@link PER_DOMAIN_HOUR}. */
  perDomainHour?: number;
}

/**
 * The line of asked urls. It is a fold of the topic `asks` and the handshakes, so a restart goes on where the last
 * process stood. A turn begins what may be begun and returns at once: a stranger that answers slowly holds up nobody
 * but its own host. What was looked at is written down, also when nothing could be probed.
 */
export class AskLine {
  readonly #underway = new Map<string, Promise<void>>();
  /** Capability -> until when (unix ms of the ask) this process has it behind it, or may not try it again. */
  readonly #looked = new BoundedMap<string, number>(MAX_REMEMBERED);
  readonly #paused = new BoundedMap<string, number>(MAX_REMEMBERED);

  constructor(private readonly parts: AskLineParts) {}

  /** Begins looks as far as there is room. @returns how many */
  async turn(): Promise<number> {
    const { lake, now, perDomainHour } = this.parts;
    const room = AT_ONCE - this.#underway.size;
    if (room <= 0) return 0;
    const at = now();
    const open = (await openAsks(lake, at, perDomainHour)).filter((ask) => this.#may(ask, at.getTime())).slice(0, room);
    for (const ask of open) {
      const look = this.#look(ask).finally(() => this.#underway.delete(ask.cap));
      this.#underway.set(ask.cap, look);
    }
    return open.length;
  }

  /** Resolves when every look that was begun has ended, or after `graceMs` (real ms): a tarpit holds up no shutdown. */
  async idle(graceMs = 5_000): Promise<void> {
    const pause = new AbortController();
    const ended = Promise.all(this.#underway.values()).then(() => pause.abort());
    await Promise.race([ended, systemClock.sleep(graceMs, pause.signal).catch(() => {})]);
  }

  #may({ cap, t, body }: OpenAsk, now: number): boolean {
    if (this.#underway.has(cap)) return false;
    const { hosts } = this.parts;
    if (hosts && !hosts.owns((JSON.parse(body) as BodyOf<"ask">).host)) return false;
    return (this.#looked.get(cap) ?? -1) < t && (this.#paused.get(cap) ?? 0) <= now;
  }

  async #look({ cap, t, body }: OpenAsk): Promise<void> {
    const { observer, log, now, logger, metrics } = this.parts;
    try {
      const ask = JSON.parse(body) as BodyOf<"ask">;
      const report = await observer.ask(ask);
      await log.append([lookedRecord(ask, t, report, now(), log.partitions)]);
      this.#looked.set(cap, now().getTime());
      metrics.count("observe_asks_total", { result: report.probed[0]?.state ?? "not_knocked" });
    } catch (error) {
      // It stays in the line: the log, the disk or our own code failed, and none of them is the asker's doing.
      this.#paused.set(cap, now().getTime() + PAUSE_MS);
      metrics.count("observe_asks_total", { result: "broken" });
      logger.error({ err: error, cap }, "a look at an asked url broke off; it stays in the line");
    }
  }
}

/** Its id names the ask, so a look that is written again after a crash is the same record. */
function lookedRecord(ask: BodyOf<"ask">, t: number, report: AskReport, at: Date, partitions: number) {
  return sealEnvelope(
    {
      v: ENVELOPE_VERSION,
      type: "ask.looked",
      event_id: recordId("ask.looked", ask.host, `${ask.cap}/${rfc3339(new Date(t))}`),
      key: ask.host,
      observed_at: rfc3339(at),
      producer: "touchstone/1",
      body: { cap: ask.cap, host: ask.host, knocked: report.probed.slice(0, MAX_PROBED) },
    },
    partitions,
  );
}
