import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { FixedClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import type { Log } from "../../../infra/log/log.ts";
import { fixedPartitions } from "../../../infra/log/ownership.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { createIngest } from "../../../pipelines/2-ingest/ingest.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { FollowedRecord } from "../../../pipelines/4-publish/followed.ts";
import { createPublisher, type Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { createArchivedMarker } from "../../../pipelines/5-archive/follow.ts";
import type { GradeLeaf, Leaf } from "../../../pipelines/record/leaf.ts";
import { Pipeline, type PipelineParts } from "../../../pipelines/roles/pipeline.ts";
import { Owner, type OwnerParts } from "../../../pipelines/roles/protocol/owner.ts";
import { type ArchivingParts, Publishing } from "../../../pipelines/roles/protocol/publishing.ts";
import { leavesOf } from "../../helpers/published.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { JWKS, ORIGIN, SIGNERS, TRUST } from "../4-publish/world.ts";

export const logger = createLogger("silent");

/** Stores of their own over a log that is shared: the same input, told once more. */
export class Deployment {
  readonly lakes: Lake[] = [];
  #made = 0;
  private constructor(
    readonly dir: string,
    readonly log: Log,
    readonly clock: FixedClock,
    readonly privateStore: Store,
    readonly publicStore: Store,
    readonly publisher: Publisher,
  ) {}

  static async open(dir: string, log: Log, clock: FixedClock): Promise<Deployment> {
    await mkdir(dir, { recursive: true });
    const privateStore = await openDirectoryStore(join(dir, "private"));
    const publicStore = await openDirectoryStore(join(dir, "public"));
    return Deployment.over(dir, log, clock, { privateStore, publicStore });
  }

  /** Over stores that somebody opened; they are closed with it. */
  static async over(
    dir: string,
    log: Log,
    clock: FixedClock,
    { privateStore, publicStore }: { privateStore: Store; publicStore: Store },
  ): Promise<Deployment> {
    await mkdir(dir, { recursive: true });
    const publisher = Deployment.publisherOver(log, clock, privateStore, publicStore);
    await publisher.publishKeys(JWKS);
    return new Deployment(dir, log, clock, privateStore, publicStore, publisher);
  }

  static publisherOver(log: Log, clock: FixedClock, privateStore: Store, publicStore: Store): Publisher {
    const common = { signers: SIGNERS, clock, origin: ORIGIN, partitions: log.partitions, logger };
    return createPublisher({ ...common, privateStore, publicStore, metrics: createMetrics() });
  }

  async #lake() {
    const lake = await openTestLake(join(this.dir, `lake-${this.#made++}.duckdb`));
    this.lakes.push(lake);
    return lake;
  }

  /** An owner of these partitions, as a process of its own would be one. */
  async owner(held: readonly number[], more: Partial<OwnerParts> = {}): Promise<Owner> {
    const { log, clock, privateStore } = this;
    const lake = more.lake ?? (await this.#lake());
    const common = { log, privateStore, lake, clock, logger, metrics: createMetrics() };
    const { publicStore } = this;
    const followed = new FollowedRecord(publicStore, () => TRUST);
    const moved = createArchivedMarker(async () => (await followed.current()).archive);
    return new Owner({
      ...common,
      ownership: fixedPartitions(held),
      ingest: createIngest({ ...common, partitions: [], moved }),
      followed,
      publicStore,
      ...more,
    });
  }

  /** The publisher's half over these stores. */
  publishing(publisher = this.publisher): Publishing {
    const { log, privateStore, clock } = this;
    return new Publishing({ log, privateStore, publisher, clock, logger });
  }

  /** Where the archive of these stores lies, and who signs for it. */
  filing(more: Partial<ArchivingParts> = {}): ArchivingParts {
    return {
      ...this.#place(),
      now: () => this.clock.now(),
      openPrinter: () => openTestLake(join(this.dir, "scratch")),
      ...more,
    };
  }

  #place() {
    const { publicStore } = this;
    const who = { trust: TRUST, cards: SIGNERS.cards, jwks: async () => JWKS };
    return { publicStore, ...who, baseUrl: "https://record.example" };
  }

  /** All roles in one process over one lake, as `touchstone start` has them; only the observer is left out. */
  async pipeline(more: { rowsPerFile?: number } = {}): Promise<Pipeline> {
    const { log, clock, privateStore, publicStore, publisher } = this;
    const lake = await this.#lake();
    const common = { log, privateStore, lake, clock, logger, metrics: createMetrics() };
    const parts = {
      ...common,
      ...{ publicStore, memory: createMemory(lake), ingest: createIngest(common), publisher },
      ...{ ownOrigins: [], archive: { ...this.#place(), ...more } },
    };
    return new Pipeline(parts as unknown as PipelineParts);
  }

  leaves(): Promise<Leaf[]> {
    return leavesOf(this.publicStore, TRUST);
  }

  async close(): Promise<void> {
    for (const lake of this.lakes) await lake.close();
    await this.privateStore.close();
    await this.publicStore.close();
  }
}

/** What is said of each endpoint, in order, without the places of the leaves: those depend on who was first. */
export function sayings(leaves: readonly Leaf[]): Map<string, string[]> {
  const said = new Map<string, string[]>();
  for (const { index: _, seq: __, at: ___, ...leaf } of leaves) {
    const cap = capIn("card" in leaf ? (leaf.card as GradeLeaf["card"]) : leaf);
    if (cap === null) continue;
    said.set(cap, [...(said.get(cap) ?? []), JSON.stringify(leaf)]);
  }
  return new Map([...said].sort(([a], [b]) => (a < b ? -1 : 1)));
}

const capIn = (leaf: object): string | null => ("capability_id" in leaf ? String(leaf.capability_id) : null);

/** Everybody's turn, one after the other. */
export async function gradeAll(owners: readonly Owner[], now: Date): Promise<void> {
  for (const owner of owners) await owner.grade(now);
}
