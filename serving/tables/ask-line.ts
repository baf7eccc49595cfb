import { BoundedMap } from "../../infra/bounded-map.ts";
import type { Log, LogRecord } from "../../infra/log/log.ts";
import { LogTail } from "../../infra/log/tail.ts";
import { FairQueue } from "../../infra/shares.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { BodyOf } from "../../pipelines/record/bodies.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import { ASK_KEPT_MS, ASK_REST_MS } from "../../pipelines/record/time.ts";
import { PLATFORM_TIMES, platformOf, registrableDomain } from "../../pipelines/record/url.ts";

const HOUR_MS = 3_600_000;
/** An ask that would wait longer than this would not be looked at before it has had its time, hours. */
export const LONGEST_HOURS = 28 * 24;
/** What a look saw is in the tables of serving by then. */
const FRESH_MS = 5 * 60_000;
/** Looks that the pipeline can make in an hour, all domains together: 64 at once, ten seconds each. */
const LOOKS_AN_HOUR = 20_000;
/** Capabilities whose last look is remembered, and as many whose last re-test is. */
const MAX_LOOKED = 100_000;

/** Part of the line that is kept for re-tests which sellers signed, on top of it. */
const KEPT_SHARE = 0.1;
/** Whose ask it is where the client is not known: another replica took it, or this process did before a restart. */
const ELSEWHERE = "elsewhere";

export interface LineLimits {
  /** Asks in line at most; and a tenth as many re-tests. */
  max: number;
  /** Asks of one registrable domain that are begun within an hour; of its platform {@link PLATFORM_TIMES} as many. */
  perDomainHour: number;
}

/** A registrable domain, or a platform of many. */
interface Domain {
  /** Asks of it that are begun within an hour. */
  perHour: number;
  /** Asks of it in line, in the order in which they are begun. */
  line: Waiting[];
  /** Moments of its newest looks, unix ms, oldest first; no more than can matter. */
  looks: number[];
}

interface Waiting {
  /** Its domain, and its platform. */
  domains: readonly string[];
  retest: boolean;
  /** Its number among all that ever came. */
  n: number;
  t: number;
  /** It is not begun before, unix ms. */
  from: number;
  /** A look so long before its turn, ms, is as good as one at its turn. */
  rest: number;
}

/** What keeps an ask waiting longest: others of its domain, its own moment, or the whole line. */
export type WaitReason = "domain" | "moment" | "line";

export interface Wait {
  /** Hours until an answer can be expected, at least 1. */
  hours: number;
  /** Only where that is more than one hour. */
  by?: WaitReason;
}

/**
 * The line of asks as serving knows it: the same fold of the topic `asks` that the pipeline works off, so how long an
 * ask waits is told from the real line, whoever put it there, and a restart forgets nothing. Bounded by shares: who asked
 * stays in this process, and where the line is full the newest ask of whoever has most is forgotten here for one of a
 * client that has fewer. What stands in the log is looked at all the same, so replicas may forget different ones.
 */
export class AskQueue {
  readonly #open = new Map<string, Waiting>();
  readonly #asks: FairQueue<string>;
  readonly #retests: FairQueue<string>;
  readonly #domains = new Map<string, Domain>();
  readonly #looked = new BoundedMap<string, number>(MAX_LOOKED);
  readonly #retested = new BoundedMap<string, number>(MAX_LOOKED);
  #came = 0;

  constructor(private readonly limits: LineLimits) {
    this.#asks = new FairQueue({ name: "asks", size: limits.max });
    this.#retests = new FairQueue({ name: "re-tests", size: Math.ceil(KEPT_SHARE * limits.max) });
  }

  /** Asks in line. */
  get size(): number {
    return this.#open.size;
  }

  /** Is there room for an ask of this client, or somebody with more? */
  hasRoom(client: string, retest = false): boolean {
    return (retest ? this.#retests : this.#asks).wouldEvict({ client }) !== undefined;
  }

  /** When its turn may come at the earliest (unix ms), or null when it is not in line. */
  turnOf(cap: string): number | null {
    return this.#open.get(cap)?.from ?? null;
  }

  /** Was it looked at a moment ago, so that what was seen is on its way? */
  isFresh(cap: string, now: number): boolean {
    return this.#lookOf(cap) > now - FRESH_MS;
  }

  /** When its seller asked last for a re-test, unix ms, or null. */
  retested(cap: string): number | null {
    return this.#retested.get(cap) ?? null;
  }

  /** From when on an ask of now can be begun: what was looked at rests for a day. */
  earliest(cap: string, now: number): number {
    return Math.max(now, this.#lookOf(cap) + ASK_REST_MS + 1);
  }

  /**
   * An ask came, not to be begun before `from`; one that says nothing new, or has no room, changes nothing.
   * @param client key of whoever asked, where it is known
   */
  ask(cap: string, normalised: string, t: number, from = t, client = ELSEWHERE): void {
    this.#put(cap, normalised, { t, from, rest: ASK_REST_MS, retest: false }, client);
  }

  /** Its seller asked for a re-test: it is in line until a look that comes after its turn. */
  retest(cap: string, normalised: string, t: number, from = t, client = ELSEWHERE): void {
    this.#retested.set(cap, t);
    this.#put(cap, normalised, { t, from, rest: 0, retest: true }, client);
  }

  #put(cap: string, normalised: string, when: Omit<Waiting, "domains" | "n">, client: string): void {
    const { t, from, rest, retest } = when;
    if (this.#lookOf(cap) >= from - rest) return;
    const held = this.#open.get(cap);
    if (held && held.from <= from && held.rest <= rest) return;
    this.#expire(t);
    if (held) this.#leave(cap);
    const out = (retest ? this.#retests : this.#asks).admit({ client }, cap);
    if (out === undefined) return;
    if (out !== null) this.#leave(out);
    const waiting = { ...when, domains: namesOf(normalised), n: this.#came++ };
    for (const [i, name] of waiting.domains.entries()) {
      const perHour = this.limits.perDomainHour * (i === 0 ? 1 : PLATFORM_TIMES);
      const domain = this.#domains.get(name) ?? { perHour, line: [], looks: [] };
      this.#domains.set(name, domain);
      domain.line.splice(placeOf(domain.line, waiting), 0, waiting);
    }
    this.#open.set(cap, waiting);
  }

  /** It was looked at and leaves the line, unless its turn is a later one. */
  looked(cap: string, t: number): void {
    this.#looked.set(cap, t);
    const waiting = this.#open.get(cap);
    if (!waiting || t < waiting.from - waiting.rest) return;
    for (const { looks, perHour } of this.#leave(cap)) {
      looks.push(t);
      if (looks.length > perHour) looks.shift();
    }
  }

  /** Drops what the plan has probed meanwhile: nobody looks at it any more. @param seen newest handshake, unix ms */
  dropProbed(seen: (cap: string) => number | null): void {
    for (const [cap, { from, rest }] of this.#open) {
      if ((seen(cap) ?? Number.NEGATIVE_INFINITY) >= from - rest) this.#leave(cap);
    }
  }

  /** How long this ask waits: its place among those of its domain, its own moment, and the whole line. */
  wait(cap: string, now: number): Wait {
    const waiting = this.#open.get(cap);
    if (!waiting) return { hours: 1 };
    return this.#wait(waiting, now);
  }

  /** The same for one that would come now. */
  waitFor(normalised: string, from: number, now: number): Wait {
    return this.#wait({ domains: namesOf(normalised), n: this.#came, from }, now);
  }

  #wait(waiting: Pick<Waiting, "domains" | "n" | "from">, now: number): Wait {
    const inDomain = Math.max(
      ...waiting.domains.map((name) => {
        const { line, looks, perHour } = this.#domains.get(name) ?? { line: [], looks: [], perHour: 1 };
        const begun = looks.filter((t) => t > now - HOUR_MS).length;
        return Math.floor((placeOf(line, waiting) + begun) / perHour) + 1;
      }),
    );
    const own = Math.floor(Math.max(0, waiting.from - now) / HOUR_MS) + 1;
    const inAll = Math.ceil(this.size / LOOKS_AN_HOUR);
    const hours = Math.max(1, inDomain, own, inAll);
    if (hours === 1) return { hours };
    return { hours, by: hours === own ? "moment" : hours === inDomain ? "domain" : "line" };
  }

  /** One record of the topic `asks`; what is none of the line's is passed over. */
  apply(record: LogRecord): void {
    const read = readRecord(record);
    if (!read.ok) return;
    const { type, observed_at, body } = read.envelope;
    const t = Date.parse(observed_at);
    if (type === "ask") {
      const { cap, normalised_url, not_before, retest } = body as BodyOf<"ask">;
      const from = not_before === undefined ? t : Math.max(t, Date.parse(not_before));
      if (retest) this.retest(cap, normalised_url, t, from);
      else this.ask(cap, normalised_url, t, from);
    } else if (type === "ask.looked") this.looked((body as BodyOf<"ask.looked">).cap, t);
  }

  #lookOf(cap: string): number {
    return this.#looked.get(cap) ?? Number.NEGATIVE_INFINITY;
  }

  /** Takes one that is in line out of it. @returns its domain and its platform */
  #leave(cap: string): Domain[] {
    const waiting = this.#open.get(cap)!;
    this.#open.delete(cap);
    (waiting.retest ? this.#retests : this.#asks).remove(cap);
    return waiting.domains.map((name) => {
      const domain = this.#domains.get(name)!;
      domain.line.splice(placeOf(domain.line, waiting), 1);
      return domain;
    });
  }

  /** A Map keeps its order, so the oldest stand first. Domains with nothing in line and no look that matters go with them. */
  #expire(now: number): void {
    for (const [cap, { t }] of this.#open) {
      if (t >= now - ASK_KEPT_MS) break;
      this.#leave(cap);
    }
    if (this.#domains.size <= this.limits.max * 4) return;
    for (const [name, { line, looks }] of this.#domains) {
      if (line.length === 0 && (looks.at(-1) ?? 0) <= now - HOUR_MS) this.#domains.delete(name);
    }
  }
}

/** Names of the lines that an url stands in: its registrable domain's, and where that is one of many its platform's. */
function namesOf(normalised: string): string[] {
  const domain = registrableDomain(normalised);
  const platform = platformOf(normalised);
  return platform === domain ? [domain] : [domain, `all of ${platform}`];
}

/** How many of a domain's line stand before this one: by their moments, then as they came. */
function placeOf(line: readonly Waiting[], { from, n }: Pick<Waiting, "from" | "n">): number {
  let low = 0;
  let high = line.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const other = line[middle]!;
    if (other.from < from || (other.from === from && other.n < n)) low = middle + 1;
    else high = middle;
  }
  return low;
}

export interface AskFollower {
  /** Read what is new, now. */
  catchUp(): Promise<void>;
  stop(): Promise<void>;
}

/** Follows the topic `asks` from its beginning, `everyMs` (real) apart. A read that fails is made again next time. */
export function followAsks(
  log: Pick<Log, "read" | "bounds" | "partitions">,
  line: AskQueue,
  logger: Pick<Logger, "warn">,
  everyMs = 2_000,
): AskFollower {
  const tail = new LogTail(log, "asks", (record) => line.apply(record));
  let timer: NodeJS.Timeout | null = null;
  let stopped = false;
  let reading: Promise<void> = Promise.resolve();
  const catchUp = (): Promise<void> => {
    reading = tail.catchUp().catch((error: unknown) => {
      logger.warn({ err: error }, "the line of asks could not be followed; waits are told from what is known");
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
      tail.close();
      if (timer) clearTimeout(timer);
      await reading;
    },
  };
}
