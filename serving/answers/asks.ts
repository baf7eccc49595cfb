import { sha256 } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { LIMITS, type Limits } from "../../infra/config.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { BodyOf } from "../../pipelines/record/bodies.ts";
import { envelopeOf, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { dayOf, rfc3339 } from "../../pipelines/record/time.ts";
import { Limiter } from "../http/limits.ts";
import { ReadOnlyReplica } from "../replica/background-log.ts";
import { AskQueue, type ExpectedWait, LONGEST_HOURS, type WaitReason } from "../tables/ask-queue.ts";

/** Real ms after which the queue is searched again for urls that were probed meanwhile. */
const DROP_MS = 60_000;

/** The queue of asks that serving folds from the log, with these limits. */
export const askLineOf = (limits: Partial<Limits> = {}): AskQueue => {
  const { asks_in_line: max, asks_per_domain_hour: perDomainHour } = { ...LIMITS, ...limits };
  return new AskQueue({ max, perDomainHour });
};

export interface Ask {
  /** As the client wrote it, without user info and fragment. */
  url: string;
  normalised: string;
  method: string | undefined;
  /** Only for an endpoint in the record: its id, and its tool where it is one. */
  known?: { cap: string; tool: string | null };
}

/** A seller's signed request to have its endpoint looked at again, and the wallet that signed it. */
export type Proof = NonNullable<BodyOf<"ask">["retest"]>;

/** Was an ask queued, and what the client is told to do next. */
export interface Place {
  queued: boolean;
  next: string;
}

/** When an ask came, the earliest time at which it may be looked at (unix ms), and its client. */
interface Turn {
  now: Date;
  from: number;
  client: string;
  proof?: Proof;
}

export interface AskDeps {
  log: Pick<Log, "append" | "partitions">;
  clock: Clock;
  logger: Pick<Logger, "error">;
  producer: string;
  /** Address of the service that keeps the queue, without a trailing slash. */
  baseUrl: string;
  limits?: Partial<Limits>;
  /** The queue as folded from the log; without it, only what this replica itself appended. */
  line?: AskQueue;
  /** Time of an endpoint's newest handshake in the tables, unix ms. */
  seen?: (cap: string) => number | null;
}

/**
 * Queues urls for a free handshake, each by a record of the log. No client is refused for asking much: what a client
 * asks for beyond its share gets a later turn, which the record holds (`not_before`).
 */
export class Asks {
  readonly #clients: Limiter;
  readonly #total: Limiter;
  readonly #line: AskQueue;
  #droppedAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly deps: AskDeps) {
    const limits = { ...LIMITS, ...deps.limits };
    this.#line = deps.line ?? askLineOf(limits);
    const steady = () => deps.clock.monotonic();
    this.#clients = new Limiter({ name: "asks", quota: limits.asks_per_hour, windowS: 3600 }, steady);
    this.#total = new Limiter({ name: "asks-total", quota: limits.asks_per_hour_total, windowS: 3600 }, steady, 1);
  }

  /**
   * Appends an ask; resolves once it is durable. A url that is queued already costs its client nothing. It moves
   * forward when a client asks for it whose own turn would come sooner.
   */
  async put(ask: Ask, client: string): Promise<Place> {
    const now = this.deps.clock.now();
    const t = now.getTime();
    this.#dropProbed();
    const line = this.#line;
    const cap = ask.known?.cap ?? capId(ask.method ?? "GET", ask.normalised);
    if (line.isFresh(cap, t)) return { queued: true, next: FRESH };
    const from = Math.max(line.earliest(cap, t), t + this.#held(client));
    const stands = line.earliestProbe(cap);
    if (stands !== null && stands <= from) return inLine(line.wait(cap, t));
    return this.#append(ask, cap, { now, from, client });
  }
  /**
   * Appends an ask of a seller that proved to be the payee: its endpoint is looked at again even if it was looked at
   * within the day, but only once a UTC day. If it is queued already, it keeps its place.
   * @returns null when it was looked at on this UTC day because of an earlier such ask
   */
  async retest(ask: Ask & { known: NonNullable<Ask["known"]> }, proof: Proof, client: string): Promise<Place | null> {
    const now = this.deps.clock.now();
    this.#dropProbed();
    const { cap } = ask.known;
    const last = this.#line.retested(cap);
    if (last !== null && dayOf(new Date(last)) === dayOf(now)) {
      return this.#line.earliestProbe(cap) === null ? null : inLine(this.#line.wait(cap, now.getTime()));
    }
    return this.#append(ask, cap, { now, from: now.getTime() + this.#heldBack(client), client, proof });
  }

  /** Real ms by which an ask is delayed because its client asked for much. */
  #heldBack = (client: string): number => Math.round(this.#clients.msUntil(client, 1));

  /**
   * Real ms by which an ask is delayed: because its client asked for much, or else because all clients together did.
   */
  #held = (client: string): number => this.#heldBack(client) || Math.round(this.#total.msUntil("all", 1));

  async #append(ask: Ask, cap: string, turn: Turn): Promise<Place> {
    const { now, from, client, proof } = turn;
    const t = now.getTime();
    const line = this.#line;
    const wait = line.waitFor(ask.normalised, from, t);
    const retest = proof !== undefined;
    if ((line.earliestProbe(cap) === null || retest) && !line.hasRoom(client, retest))
      return { queued: false, next: FULL };
    if (wait.hours > LONGEST_HOURS) return { queued: false, next: TOO_LONG[wait.by ?? "line"] };
    const held = this.#heldBack(client) > 0;
    const charge = (cost: 1 | -1): void => {
      this.#clients.charge(client, cost);
      if (!held && !retest) this.#total.charge("all", cost);
    };
    charge(1);
    try {
      await this.deps.log.append([this.#record(ask, cap, turn)]);
    } catch (error) {
      charge(-1);
      return { queued: false, next: this.#notTaken(ask, error) };
    }
    // Folded here without waiting for the log to return it; the fold ignores the second one.
    if (retest) line.retest(cap, ask.normalised, t, from, client);
    else line.ask(cap, ask.normalised, t, from, client);
    return inLine(line.wait(cap, t));
  }

  #notTaken({ url }: Ask, error: unknown): string {
    if (!(error instanceof ReadOnlyReplica)) {
      this.deps.logger.error({ err: error }, "an ask could not be appended");
      return "The log of this service takes nothing right now, so it is not in line. Ask again in a minute.";
    }
    const where = `${this.deps.baseUrl}/v1/check?url=${encodeURIComponent(url)}`;
    return `This replica only answers and puts nothing in line. Ask the service itself: ${where}`;
  }

  #dropProbed(): void {
    const { seen, clock } = this.deps;
    if (!seen || clock.monotonic() < this.#droppedAt + DROP_MS) return;
    this.#droppedAt = clock.monotonic();
    this.#line.dropProbed(seen);
  }

  /**
   * The slot is host and UTC hour, so one url that is asked for twice in an hour is one record. Two urls of one host
   * share the slot, and the second would be dropped as a copy of the first; so the attempt number is 31 bits of a hash
   * over the url, and over the turn too, so that an ask that brings a url forward is no copy of the one that held it
   * back. The slot of a re-test is its UTC day: if two replicas are asked at once, it is one record.
   */
  #record({ url, normalised, method, known }: Ask, cap: string, { now, from, proof }: Turn) {
    const { host } = new URL(normalised);
    const slot = proof ? `${dayOf(now)}/retest` : rfc3339(now).slice(0, 13);
    const later = from > now.getTime() ? { not_before: rfc3339(new Date(from)) } : {};
    const tool = known?.tool ?? null;
    const turn = proof ? [] : Object.values(later);
    const said = [method ?? "", normalised, ...(tool === null ? [] : [tool]), ...turn].join(" ");
    const attempt = sha256(said).readUInt32BE(0) >>> 1;
    return sealEnvelope(
      envelopeOf({
        ...{ type: "ask", key: host, slot: `${host}/${slot}`, attempt, at: now, producer: this.deps.producer },
        body: {
          url,
          normalised_url: normalised,
          method: (method ?? null) as BodyOf<"ask">["method"],
          host,
          cap,
          ...(tool === null ? {} : { tool }),
          ...later,
          ...(proof ? { retest: proof } : {}),
        },
      }),
      this.deps.log.partitions,
    );
  }
}

const FRESH = "Its free handshake was just made. Ask again in a few minutes.";
const FULL = "The line of urls for a free handshake is full, so it is not in it. Ask again in about an hour.";
/** For asks whose turn would come after the time at which an ask is dropped. */
const TOO_LONG: Record<WaitReason, string> = {
  domain: "So many urls of this domain are in line that it would wait for weeks; it is not in it. Ask again tomorrow.",
  moment:
    "So many urls came from where it was asked that it would wait for weeks; it is not in line. Ask again tomorrow.",
  line: FULL,
};
const HELD_BY: Record<WaitReason, string> = {
  domain: "many urls of this domain are in line",
  moment: "it was looked at within the day, or many urls came from where it was asked",
  line: "many urls are in line",
};

function inLine({ hours, by }: ExpectedWait): Place {
  const when = by === undefined ? "in about an hour" : `in about ${hours} hours: ${HELD_BY[by]}`;
  return { queued: true, next: `In line for a free handshake. Ask again ${when}.` };
}
