import { join } from "node:path";
import { Receiver } from "../../fixtures/receiver.ts";
import { createEgress, type EgressOptions } from "../../infra/egress/create.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import type { Log, LogRecord } from "../../infra/log/log.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { Notifier, type NotifierParts } from "../../pipelines/6-notify/notifier.ts";
import { PublishedTree } from "../../pipelines/published/reader.ts";
import type { UnsignedCard } from "../../pipelines/record/card.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import type { ServingDeps } from "../../serving/context.ts";
import { cardOf, type EndpointSpec, listingDraft, PublicRecord } from "./public-record.ts";
import { ManualClock, servingOver, type TestServing } from "./serving.ts";

export const SUM = { url: "https://seller.example/sum" };
export const MUL = { url: "https://seller.example/mul" };

/** A public record, a log, one clock, receivers on this machine, and what answers and delivers over them. */
export class WatcherTestbed {
  readonly clock = new ManualClock();
  readonly logger = createLogger("silent");
  readonly metrics = createMetrics();
  readonly #receivers: Receiver[] = [];
  readonly #notifiers: Notifier[] = [];
  #cards = 0;

  /** Laid out as the data folder of a machine. */
  get dir(): string {
    return this.record.dir;
  }

  private constructor(
    readonly record: PublicRecord,
    readonly log: Log,
    readonly egress: Egress,
  ) {}

  static async open(egress: Partial<EgressOptions> = {}, partitions = 4): Promise<WatcherTestbed> {
    const out = createEgress({ allowLoopback: true, userAgent: "touchstone (test)", ...egress });
    const record = await PublicRecord.open();
    const log = await openEmbeddedLog(join(record.dir, "log"), { topics: TOPICS, partitions });
    await record.publish([listingDraft(SUM), listingDraft(MUL)]);
    return new WatcherTestbed(record, log, out);
  }

  async receiver(): Promise<Receiver> {
    const receiver = await Receiver.open(this.record.jwks.keys);
    this.#receivers.push(receiver);
    return receiver;
  }

  /** A serving replica with a view of its own. */
  serving(more: Partial<ServingDeps> = {}): Promise<TestServing> {
    const receivers = { egress: this.egress, log: this.log, allowPlainHttp: true };
    return servingOver(this.record, {
      ...{ receivers, validateUrl: (url) => this.egress.validate(url), clock: this.clock },
      ...{ limits: { watchers_per_hour: 100 }, ...more },
    });
  }

  /** A process that delivers. */
  notifier(more: Partial<NotifierParts> = {}): Notifier {
    const { log, egress, clock, logger, metrics, record } = this;
    const tree = new PublishedTree(record.store, record.trust);
    const signers = { cards: record.keys.cards, answers: record.keys.answers };
    const parts = { log, egress, clock, logger, metrics, tree, signers, perDomainMinute: 1_000, random: () => 0 };
    const notifier = new Notifier({ ...parts, ...more });
    this.#notifiers.push(notifier);
    return notifier;
  }

  /** Publish a new card; each was computed a minute after the one before. */
  async card(spec: EndpointSpec, card: Partial<UnsignedCard> = {}): Promise<UnsignedCard> {
    const computed_at = new Date(Date.parse("2026-11-21T06:00:00.000Z") + this.#cards++ * 60_000).toISOString();
    const made = cardOf(spec, { computed_at, ...card });
    await this.record.publish(this.record.grades([made], "why"));
    return made;
  }

  /** Everything of the topic, as told, in the order of each partition. */
  async told(): Promise<{ type: string; body: Record<string, unknown>; raw: LogRecord }[]> {
    const all = [];
    for (let partition = 0; partition < this.log.partitions; partition++) {
      for (const raw of await this.log.read("watchers", partition, 0, { maxRecords: 10_000 })) {
        const read = readRecord(raw);
        if (!read.ok) throw new Error(read.reason);
        const { type, body } = read.envelope;
        all.push({ type, body: body as Record<string, unknown>, raw });
      }
    }
    return all;
  }

  async close(): Promise<void> {
    for (const notifier of this.#notifiers) await notifier.stop();
    await this.egress.close();
    for (const receiver of this.#receivers) await receiver.close();
    await this.log.close();
    await this.record.close();
  }
}

/** One turn, and everything that it began. */
export async function deliver(notifier: Notifier): Promise<void> {
  await notifier.runOnce();
  await notifier.waitUntilIdle();
}

export const postJson = (serving: TestServing, path: string, body: unknown, token?: string): Promise<Response> =>
  serving.get(path, {
    method: "POST",
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
  });

export interface MadeWatcher {
  watcher_id: string;
  token: string;
}

/** A watcher, made over the API. @throws Error with the problem document when it is refused */
export async function watch(serving: TestServing, url: string, endpoints: readonly string[]): Promise<MadeWatcher> {
  const response = await postJson(serving, "/v1/watchers", { url, watch: endpoints });
  if (response.status !== 201) throw new Error(`${response.status}: ${await response.text()}`);
  return (await response.json()) as MadeWatcher;
}

export const readWatcher = (serving: TestServing, { watcher_id, token }: MadeWatcher): Promise<Response> =>
  serving.get(`/v1/watchers/${watcher_id}`, { headers: { authorization: `Bearer ${token}` } });
