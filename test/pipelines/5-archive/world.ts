import { join } from "node:path";
import { compress, decompress } from "zstd-napi";
import { sha256hex } from "../../../infra/canonical.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { allPartitions } from "../../../infra/log/ownership.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import type { Ingest } from "../../../pipelines/2-ingest/ingest.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import type { Draft } from "../../../pipelines/4-publish/leaves.ts";
import { createPublisher, type Publisher, type PublisherOptions } from "../../../pipelines/4-publish/publisher.ts";
import type { EvidenceReport } from "../../../pipelines/5-archive/evidence.ts";
import type { ArchiveStep } from "../../../pipelines/5-archive/filing.ts";
import { createArchivedMarker } from "../../../pipelines/5-archive/follow.ts";
import { readArchiveFold } from "../../../pipelines/5-archive/place.ts";
import type { SupersedeParts } from "../../../pipelines/5-archive/supersede.ts";
import type { AuditReport } from "../../../pipelines/audit/audit.ts";
import type { EndpointSelector } from "../../../pipelines/audit/gather.ts";
import { type CardVerdict, type RecomputeSummary, recompute } from "../../../pipelines/audit/recompute.ts";
import { evidenceKey } from "../../../pipelines/published/objects.ts";
import { readCheckpoint } from "../../../pipelines/published/reader.ts";
import { DirectorySource, type Source } from "../../../pipelines/published/source.ts";
import type { ArchiveLeaf, EvidenceLeaf, Leaf } from "../../../pipelines/record/leaf.ts";
import type { ArchiveSubject } from "../../../pipelines/record/vocabulary.ts";
import { type ArchiveReport, archiveDays, closeDays, createPrinterOpener } from "../../../pipelines/roles/days.ts";
import { Pipeline, type PipelineParts } from "../../../pipelines/roles/pipeline.ts";
import type { FileArchiveParts } from "../../../pipelines/roles/protocol/file-archive.ts";
import type { OwnArchiveStep } from "../../../pipelines/roles/protocol/own-archive.ts";
import { Owner } from "../../../pipelines/roles/protocol/owner.ts";
import { Publishing } from "../../../pipelines/roles/protocol/publishing.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { auditOf, fileKeyOf, leavesOf, linesAt, ofKind, valuesAt } from "../../helpers/published.ts";
import { openTestWorld, PARTITIONS, type World } from "../2-ingest/world.ts";
import { JWKS, ORIGIN, SIGNERS, TRUST } from "../4-publish/world.ts";

export { fileKeyOf };

/** Boundaries of the owner's half and of the publisher's, in their order. */
export type Step = OwnArchiveStep | ArchiveStep;
export interface ArchiveParts extends Omit<SupersedeParts, "onStep">, Pick<FileArchiveParts, "rowsPerFile" | "logger"> {
  /** In front of the lake (default: the world's). */
  ingest?: Ingest;
  onStep?: (step: Step, subject?: ArchiveSubject | null, day?: string | null) => void | Promise<void>;
}

/** A real log, lake and publisher, and the jobs of the pipeline over them; only the observer is left out. */
export class ArchiveWorld {
  private constructor(
    readonly ingest: World,
    readonly publicStore: Store,
    readonly publisher: Publisher,
    readonly pipeline: Pipeline,
  ) {}

  /** @param lake of the caller's making (default: one of a test) */
  static async open(lake?: Lake): Promise<ArchiveWorld> {
    const parts: { publicStore?: Store } = {};
    const moved = createArchivedMarker(() => readArchiveFold(parts.publicStore!, TRUST));
    const ingest = await openTestWorld({ moved, ...(lake ? { lake } : {}) });
    const publicStore = await openDirectoryStore(join(ingest.dir, "public"));
    parts.publicStore = publicStore;
    const publisher = publisherOver(ingest, publicStore);
    await publisher.publishKeys(JWKS);
    const pipelineParts = {
      clock: ingest.clock,
      log: ingest.log,
      privateStore: ingest.store,
      publicStore,
      lake: ingest.lake,
      memory: createMemory(ingest.lake),
      ingest: ingest.ingest,
      publisher,
      logger: createLogger("silent"),
      metrics: createMetrics(),
      ownOrigins: [],
    };
    // Grading, publishing and evidence never ask the observer.
    return new ArchiveWorld(ingest, publicStore, publisher, new Pipeline(pipelineParts as unknown as PipelineParts));
  }

  /**
   * Another record with the same leaves in the same places, its evidence files as `change` makes them and named so. What
   * a publisher could do that wants to tell other rows than those it graded.
   */
  static async copy(
    of: ArchiveWorld,
    change: (leaf: EvidenceLeaf, text: string) => Promise<string>,
  ): Promise<ArchiveWorld> {
    const other = await ArchiveWorld.open();
    const drafts: Draft[] = [];
    for (const { index: _, seq: __, at: ___, ...draft } of (await of.leaves()) as (Leaf & Record<string, unknown>)[]) {
      if (draft.kind === "evidence" && draft.holds === "rows") {
        const leaf = draft as unknown as EvidenceLeaf;
        const text = await change(leaf, decompress((await of.publicStore.get(leaf.key!))!.bytes).toString("utf8"));
        const [packed, sha] = [compress(Buffer.from(text)), sha256hex(text)];
        const key = evidenceKey(leaf.day, leaf.bucket!, sha);
        await other.publisher.putEvidence(key, packed);
        Object.assign(draft, { key, sha256: sha256hex(packed), bytes: packed.length, unpacked_sha256: sha });
        Object.assign(draft, { unpacked_bytes: Buffer.byteLength(text), rows: text.split("\n").length - 1 });
      } else if (draft.kind === "evidence" && draft.key) {
        await other.publisher.putEvidence(String(draft.key), (await of.publicStore.get(String(draft.key)))!.bytes);
      }
      if (draft.kind !== "keys") drafts.push(draft as unknown as Draft);
    }
    await other.publisher.publishLeaves(drafts);
    return other;
  }

  get publicDir(): string {
    return join(this.ingest.dir, "public");
  }

  /** A run at this moment, published. */
  async grade(at: string): Promise<void> {
    this.ingest.clock.set(at);
    await this.pipeline.grade(new Date(at));
  }

  async closeDays(at: string): Promise<EvidenceReport> {
    // Time goes on whatever a test says: a publisher refuses to go back.
    if (new Date(at) > this.ingest.clock.now()) this.ingest.clock.set(at);
    await this.ingest.ingest.pass();
    return this.pipeline.publishEvidence(new Date(at));
  }

  /** Parts of the archive's job, over these stores and this lake, as another process would open them. */
  archiveParts(more: Partial<ArchiveParts> = {}): ArchiveParts {
    const { publicStore = this.publicStore, privateStore = this.ingest.store } = more;
    const isOwn = publicStore === this.publicStore && privateStore === this.ingest.store;
    return {
      ...{ lake: this.ingest.lake, privateStore, publicStore, logId: this.ingest.log.id },
      logger: createLogger("silent"),
      publisher: isOwn ? this.publisher : publisherOver(this.ingest, publicStore, { privateStore }),
      ...{ trust: TRUST, cards: SIGNERS.cards, jwks: async () => JWKS, baseUrl: "https://record.example" },
      now: () => this.ingest.clock.now(),
      ...more,
    };
  }

  /** The archive's job at this moment. */
  async archive(at: string, more: Partial<ArchiveParts> = {}): Promise<ArchiveReport> {
    if (new Date(at) > this.ingest.clock.now()) this.ingest.clock.set(at);
    const parts = this.archiveParts(more);
    const archivingParts = { ...parts, openPrinter: createPrinterOpener(parts.lake) };
    return archiveDays(
      { ...this.#halves(parts), archivingParts },
      new Date(at),
      parts.onStep ? { onStep: parts.onStep } : {},
    );
  }

  /** The owner of every partition and the publisher, over these stores. */
  #halves(parts: Pick<ArchiveParts, "lake" | "ingest" | "privateStore" | "publicStore" | "publisher" | "logger">) {
    const { lake, ingest = this.ingest.ingest, privateStore, publicStore, publisher, logger } = parts;
    const { log, clock, metrics } = this.ingest;
    const common = { privateStore, publicStore, log, clock, logger, metrics };
    const owner = new Owner({ ...common, lake, ingest, ownership: allPartitions(PARTITIONS), followed: publisher });
    return { owner, publishing: new Publishing({ ...common, publisher }) };
  }

  /** Leaves of the archive. */
  async filed(): Promise<ArchiveLeaf[]> {
    return ofKind(await this.leaves(), "archive");
  }

  /** Lines of one file of it. */
  linesOf(leaf: ArchiveLeaf): Promise<string[]> {
    return linesAt(this.publicStore, fileKeyOf(leaf));
  }

  /** The same job over other stores, as another process would run it. */
  closeDaysOver(at: string, stores: { privateStore: Store; publicStore: Store }): Promise<EvidenceReport> {
    this.ingest.clock.set(at);
    const publisher = publisherOver(this.ingest, stores.publicStore, { privateStore: stores.privateStore });
    const logger = createLogger("silent");
    const { owner, publishing } = this.#halves({ ...stores, lake: this.ingest.lake, publisher, logger });
    return closeDays(owner, publishing, new Date(at));
  }

  leaves(): Promise<Leaf[]> {
    return leavesOf(this.publicStore, TRUST);
  }

  /** Lines of all files of the evidence. */
  async evidenceLines(): Promise<Record<string, unknown>[]> {
    const files = ofKind(await this.leaves(), "evidence").filter(({ key }) => key !== null);
    return (await Promise.all(files.map(({ key }) => valuesAt(this.publicStore, key!)))).flat();
  }

  audit(): Promise<AuditReport> {
    return auditOf(new DirectorySource(this.publicDir));
  }

  prove() {
    return proveRecord(this.publicStore, { trust: TRUST, atRest: true });
  }

  async recompute(
    wanted: EndpointSelector = "all",
    source: Source = new DirectorySource(this.publicDir),
  ): Promise<{ done: RecomputeSummary; cards: CardVerdict[] }> {
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
