import { sha256 } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { DEFAULT_LIMITS, type Limits } from "../../infra/config.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { BodyOf } from "../../pipelines/record/bodies.ts";
import { envelopeOf, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { dayOf, rfc3339 } from "../../pipelines/record/time.ts";
import { Limiter } from "../http/limits.ts";
import { ReadOnlyReplica } from "../replica/background-log.ts";
import { AskQueue, type ExpectedWait, MAX_WAIT_HOURS, type WaitReason } from "../tables/ask-queue.ts";

/** Shortest time between two searches of the queue for urls that were probed for another reason, real ms. */
const DROP_INTERVAL_MS = 60_000;

/** Creates the queue of asks (urls that clients asked about and that wait for a free probe), with these limits. */
export const createAskQueue = (limits: Partial<Limits> = {}): AskQueue => {
  const { asks_in_line: max, asks_per_domain_hour: perDomainHour } = { ...DEFAULT_LIMITS, ...limits };
  return new AskQueue({ maxAsks: max, perDomainHour });
};

export interface Ask {
  /** As the client wrote it, without user info and fragment. */
  url: string;
  /** The normalised url. */
  normalised: string;
  /** Undefined when the client named none; GET is then meant. */
  method: string | undefined;
  /** Only for an endpoint in the record: its capability id, and its name if it is a tool of an MCP server. */
  knownEndpoint?: { cap: string; tool: string | null };
}

/** A seller's signed request to probe its endpoint again (a re-test), and the wallet that signed it. */
export type SignedRetest = NonNullable<BodyOf<"ask">["retest"]>;

/** Whether an ask was queued, and what the client should do next. */
export interface AskReply {
  queued: boolean;
  next: string;
}

/** What is known of an ask besides its url. */
interface AskTime {
  /** When the ask was made. */
  now: Date;
  /** Earliest time of its probe, unix ms. */
  notBeforeMs: number;
  client: string;
  /** The seller's signed request; only present for a re-test. */
  proof?: SignedRetest;
}

export interface AskDeps {
  log: Pick<Log, "append" | "partitions">;
  clock: Clock;
  logger: Pick<Logger, "error">;
  /** Name by which the appended records name this program. */
  producer: string;
  /** Address of the service that keeps the queue, without a trailing slash. */
  baseUrl: string;
  limits?: Partial<Limits>;
  /**
   * The queue that is computed from the log's records. Without it, the queue has only the asks of this replica since
   * its start.
   */
  queue?: AskQueue;
  /**
   * Returns the time of an endpoint's newest probe in the volatile tables (the facts that change faster than cards),
   * unix ms; null: it was not probed.
   */
  lastProbeTime?: (cap: string) => number | null;
}

/**
 * Queues urls for a free probe, each by a record of the log. No client is refused because it asks often: urls beyond
 * the client's share (`asks_per_hour`) are probed later, from the time in the record's field `not_before`.
 */
export class Asks {
  readonly #clients: Limiter;
  readonly #total: Limiter;
  readonly #queue: AskQueue;
  /** Records that are being appended: asks by capability id, re-tests by `retest` and the id. */
  readonly #underway = new Map<string, Pick<AskTime, "client" | "notBeforeMs"> & { reply: Promise<AskReply> }>();
  /** When the queue was last searched for urls that were probed meanwhile, ms of the monotonic clock. */
  #droppedAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly deps: AskDeps) {
    const limits = { ...DEFAULT_LIMITS, ...deps.limits };
    this.#queue = deps.queue ?? createAskQueue(limits);
    const monotonicNow = () => deps.clock.monotonic();
    this.#clients = new Limiter({ name: "asks", quota: limits.asks_per_hour, windowS: 3600 }, monotonicNow);
    this.#total = new Limiter(
      { name: "asks-total", quota: limits.asks_per_hour_total, windowS: 3600 },
      monotonicNow,
      1,
    );
  }

  /**
   * Queues an ask (a url that is to be probed); resolves once its record is durable in the log. If the url already
   * waits for a probe that is not later than this client's would be, or its record is just being appended, nothing is
   * appended, and the client's share is not used.
   */
  async put(ask: Ask, client: string): Promise<AskReply> {
    const now = this.deps.clock.now();
    const t = now.getTime();
    this.#dropProbed();
    const queue = this.#queue;
    const cap = ask.knownEndpoint?.cap ?? capId(ask.method ?? "GET", ask.normalised);
    if (queue.wasJustProbed(cap, t)) return { queued: true, next: JUST_PROBED };
    const notBeforeMs = Math.max(queue.earliestNewProbe(cap, t), t + this.#delayFor(client));
    const queuedProbeAt = queue.earliestProbe(cap);
    if (queuedProbeAt !== null && queuedProbeAt <= notBeforeMs) return queuedReply(queue.waitOf(cap, t));
    return this.#appendOnce(cap, ask, cap, { now, notBeforeMs, client });
  }

  /**
   * Appends a re-test for a seller that proved to be the payee: its endpoint is probed again even if it was probed
   * within the day, but at most once a UTC day. If this day's re-test still waits, its expected wait is returned and
   * nothing is appended.
   * @returns null when this UTC day's re-test was already made
   */
  async retest(
    ask: Ask & { knownEndpoint: NonNullable<Ask["knownEndpoint"]> },
    proof: SignedRetest,
    client: string,
  ): Promise<AskReply | null> {
    const now = this.deps.clock.now();
    this.#dropProbed();
    const { cap } = ask.knownEndpoint;
    const last = this.#queue.lastRetest(cap);
    if (last !== null && dayOf(new Date(last)) === dayOf(now)) {
      return this.#queue.earliestProbe(cap) === null ? null : queuedReply(this.#queue.waitOf(cap, now.getTime()));
    }
    const notBeforeMs = now.getTime() + this.#clientDelayFor(client);
    return this.#appendOnce(`retest ${cap}`, ask, cap, { now, notBeforeMs, client, proof });
  }

  /**
   * Appends the record of an ask, unless the record of another request is just being appended that stands for this one
   * too. Then its reply is returned, and this client's share is not used.
   * @param key under which requests at the same moment stand for each other
   */
  async #appendOnce(key: string, ask: Ask, cap: string, askTime: AskTime): Promise<AskReply> {
    const { client, notBeforeMs, proof } = askTime;
    let underway = this.#underway.get(key);
    // There is one record of a re-test a day, whoever sent it.
    while (underway && (proof !== undefined || underway.notBeforeMs <= notBeforeMs)) {
      const reply = await underway.reply;
      // What was refused to another client may be accepted from this one.
      if (reply.queued || underway.client === client) return reply;
      underway = this.#underway.get(key);
    }
    const own = { client, notBeforeMs, reply: this.#append(ask, cap, askTime) };
    this.#underway.set(key, own);
    try {
      return await own.reply;
    } finally {
      if (this.#underway.get(key) === own) this.#underway.delete(key);
    }
  }

  /** Delay of a client's next ask because the client asked often, real ms. */
  #clientDelayFor = (client: string): number => Math.round(this.#clients.msUntil(client, 1));

  /** Delay of a client's next ask because the client, or all clients together, asked often, real ms. */
  #delayFor = (client: string): number => this.#clientDelayFor(client) || Math.round(this.#total.msUntil("all", 1));

  async #append(ask: Ask, cap: string, askTime: AskTime): Promise<AskReply> {
    const { now, notBeforeMs, client, proof } = askTime;
    const t = now.getTime();
    const queue = this.#queue;
    const wait = queue.waitOfNewAsk(ask.normalised, notBeforeMs, t);
    const retest = proof !== undefined;
    if ((queue.earliestProbe(cap) === null || retest) && !queue.hasRoom(client, retest))
      return { queued: false, next: QUEUE_FULL };
    if (wait.hours > MAX_WAIT_HOURS) return { queued: false, next: TOO_LONG[wait.by ?? "line"] };
    const isDelayed = this.#clientDelayFor(client) > 0;
    const charge = (cost: 1 | -1): void => {
      this.#clients.charge(client, cost);
      if (!isDelayed && !retest) this.#total.charge("all", cost);
    };
    charge(1);
    try {
      await this.deps.log.append([this.#record(ask, cap, askTime)]);
    } catch (error) {
      charge(-1);
      return { queued: false, next: this.#whyNotQueued(ask, error) };
    }
    // The record is applied to the queue at once, before it is read back from the log; applying it a second time
    // changes nothing.
    if (retest) queue.addRetest(cap, ask.normalised, t, notBeforeMs, client);
    else queue.addAsk(cap, ask.normalised, t, notBeforeMs, client);
    return queuedReply(queue.waitOf(cap, t));
  }

  #whyNotQueued({ url }: Ask, error: unknown): string {
    if (!(error instanceof ReadOnlyReplica)) {
      this.deps.logger.error({ err: error }, "an ask could not be appended");
      return "The log of this service takes nothing right now, so it is not in line. Ask again in a minute.";
    }
    const checkUrl = `${this.deps.baseUrl}/v1/check?url=${encodeURIComponent(url)}`;
    return `This replica only answers and puts nothing in line. Ask the service itself: ${checkUrl}`;
  }

  #dropProbed(): void {
    const { lastProbeTime, clock } = this.deps;
    if (!lastProbeTime || clock.monotonic() < this.#droppedAt + DROP_INTERVAL_MS) return;
    this.#droppedAt = clock.monotonic();
    this.#queue.dropProbed(lastProbeTime);
  }

  /**
   * Builds the record of an ask. The record's slot (the key by which copies are dropped) consists of host and UTC
   * hour, so a url that is asked for twice in an hour gives one record. Urls of one host share the slot; the attempt
   * number, 31 bits of a hash over the url, tells them apart. Except for a re-test, the hash also covers `not_before`,
   * so that an ask that moves a url forward is not dropped as a copy of the earlier one. The slot of a re-test has the
   * UTC day instead of the hour, so two replicas that receive it at the same time make one record.
   */
  #record({ url, normalised, method, knownEndpoint }: Ask, cap: string, { now, notBeforeMs, proof }: AskTime) {
    const { host } = new URL(normalised);
    const slot = proof ? `${dayOf(now)}/retest` : rfc3339(now).slice(0, 13);
    const notBeforeField = notBeforeMs > now.getTime() ? { not_before: rfc3339(new Date(notBeforeMs)) } : {};
    const tool = knownEndpoint?.tool ?? null;
    const hashedTimes = proof ? [] : Object.values(notBeforeField);
    const hashedText = [method ?? "", normalised, ...(tool === null ? [] : [tool]), ...hashedTimes].join(" ");
    const attempt = sha256(hashedText).readUInt32BE(0) >>> 1;
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
          ...notBeforeField,
          ...(proof ? { retest: proof } : {}),
        },
      }),
      this.deps.log.partitions,
    );
  }
}

const JUST_PROBED = "Its free handshake was just made. Ask again in a few minutes.";
const QUEUE_FULL = "The line of urls for a free handshake is full, so it is not in it. Ask again in about an hour.";
/** Texts for asks that would expire before their probe, by the reason of the long wait. */
const TOO_LONG: Record<WaitReason, string> = {
  domain: "So many urls of this domain are in line that it would wait for weeks; it is not in it. Ask again tomorrow.",
  moment:
    "So many urls came from where it was asked that it would wait for weeks; it is not in line. Ask again tomorrow.",
  line: QUEUE_FULL,
};
const WAIT_WORDS: Record<WaitReason, string> = {
  domain: "many urls of this domain are in line",
  moment: "it was looked at within the day, or many urls came from where it was asked",
  line: "many urls are in line",
};

function queuedReply({ hours, by }: ExpectedWait): AskReply {
  const when = by === undefined ? "in about an hour" : `in about ${hours} hours: ${WAIT_WORDS[by]}`;
  return { queued: true, next: `In line for a free handshake. Ask again ${when}.` };
}
