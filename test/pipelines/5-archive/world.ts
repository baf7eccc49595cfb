import { join } from "node:path";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger } from "../../../infra/telemetry.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { createPublisher, type Publisher, type PublisherOptions } from "../../../pipelines/4-publish/publisher.ts";
import { RecordReader, readCheckpoint } from "../../../pipelines/4-publish/read.ts";
import { type EvidenceReport, makeEvidence } from "../../../pipelines/5-archive/evidence.ts";
import type { Wanted } from "../../../pipelines/audit/gather.ts";
import { type CardVerdict, type Recomputed, recompute } from "../../../pipelines/audit/recompute.ts";
import { DirectorySource, type Source } from "../../../pipelines/mirror/source.ts";
import { Pipeline, type PipelineParts } from "../../../pipelines/pipeline.ts";
import type { Leaf } from "../../../pipelines/record/leaf.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { openTestWorld, PARTITIONS, type World } from "../2-ingest/world.ts";
import { JWKS, ORIGIN, SIGNERS, TRUST } from "../4-publish/world.ts";

/** A real log, lake and publisher, and the jobs of the pipeline over them; only the observer is left out. */
export class ArchiveWorld {
  private constructor(
    readonly ingest: World,
    readonly publicStore: Store,
    readonly publisher: Publisher,
    readonly pipeline: Pipeline,
  ) {}

  static async open(): Promise<ArchiveWorld> {
    const ingest = await openTestWorld();
    const publicStore = await openDirectoryStore(join(ingest.dir, "public"));
    const publisher = publisherOver(ingest, publicStore);
    await publisher.publishKeys(JWKS);
    const parts = {
      now: () => ingest.clock.now(),
      logId: ingest.log.id,
      privateStore: ingest.store,
      lake: ingest.lake,
      memory: createMemory(ingest.lake),
      ingest: ingest.ingest,
      publisher,
      partitions: PARTITIONS,
      logger: createLogger("silent"),
      ownOrigins: [],
    };
    // Grading, publishing and evidence never ask the observer.
    return new ArchiveWorld(ingest, publicStore, publisher, new Pipeline(parts as unknown as PipelineParts));
  }

  get publicDir(): string {
    return join(this.ingest.dir, "public");
  }

  /** A run at this moment, published. */
  async grade(at: string): Promise<void> {
    this.ingest.clock.set(at);
    await this.pipeline.grade(new Date(at));
  }

  async freeze(at: string): Promise<EvidenceReport> {
    // Time goes on whatever a test says: a publisher refuses to go back.
    if (new Date(at) > this.ingest.clock.now()) this.ingest.clock.set(at);
    await this.ingest.ingest.pass();
    return this.pipeline.evidence(new Date(at));
  }

  /** The same job over other stores, as another process would run it. */
  freezeOver(at: string, stores: { privateStore: Store; publicStore: Store }): Promise<EvidenceReport> {
    this.ingest.clock.set(at);
    const publisher = publisherOver(this.ingest, stores.publicStore, { privateStore: stores.privateStore });
    const { privateStore } = stores;
    const { lake } = this.ingest;
    return makeEvidence(
      { lake, privateStore, publisher, partitions: PARTITIONS, logger: createLogger("silent") },
      new Date(at),
    );
  }

  async leaves(): Promise<Leaf[]> {
    const reader = await RecordReader.open(this.publicStore, (await readCheckpoint(this.publicStore, TRUST))!);
    const leaves: Leaf[] = [];
    for await (const { leaf } of reader.leaves()) leaves.push(leaf);
    return leaves;
  }

  prove() {
    return proveRecord(this.publicStore, { trust: TRUST, settled: true });
  }

  async recompute(
    wanted: Wanted = "all",
    source: Source = new DirectorySource(this.publicDir),
  ): Promise<{ done: Recomputed; cards: CardVerdict[] }> {
    const head = (await readCheckpoint(this.publicStore, TRUST))!;
    const cards: CardVerdict[] = [];
    const done = await recompute(source, head, wanted, (card) => cards.push(card));
    return { done, cards };
  }

  async close(): Promise<void> {
    await this.publicStore.close();
    await this.ingest.close();
  }
}

export const publisherOver = (ingest: World, publicStore: Store, more: Partial<PublisherOptions> = {}): Publisher =>
  createPublisher({
    privateStore: ingest.store,
    publicStore,
    signers: SIGNERS,
    clock: ingest.clock,
    origin: ORIGIN,
    partitions: PARTITIONS,
    logger: createLogger("silent"),
    metrics: ingest.metrics,
    ...more,
  });
