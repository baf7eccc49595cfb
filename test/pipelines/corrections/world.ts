import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { privateKeyToAccount } from "viem/accounts";
import { FixedClock } from "../../../infra/clock.ts";
import { createKeyring, keysDocument, loadKeys } from "../../../infra/keys/keys.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { NewRecord } from "../../../infra/log/log.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { Recorder } from "../../../pipelines/1-observe/recorder.ts";
import { createIngest } from "../../../pipelines/2-ingest/ingest.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { createPublisher } from "../../../pipelines/4-publish/publisher.ts";
import { checkpointKeys } from "../../../pipelines/4-publish/tree-head.ts";
import {
  type CorrectionOrder,
  createCorrectionDraft,
  planCorrections,
  planReinstatement,
} from "../../../pipelines/corrections/correct.ts";
import { disputeBody, disputeId, type SignedDispute, statementOf } from "../../../pipelines/corrections/dispute.ts";
import { readEndpoint } from "../../../pipelines/corrections/endpoint-record.ts";
import { LogHistoryReader } from "../../../pipelines/corrections/reading.ts";
import { PublishedTree } from "../../../pipelines/published/reader.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import type { SignedCard } from "../../../pipelines/record/card.ts";
import type { Leaf } from "../../../pipelines/record/leaf.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { Pipeline, type PipelineParts } from "../../../pipelines/roles/pipeline.ts";
import { createApp } from "../../../serving/app.ts";
import type { CheckAnswer } from "../../../serving/schemas/check.ts";
import type { TrustResponse } from "../../../serving/schemas/trust.ts";
import { Follower } from "../../../serving/tables/follower.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { CAME, capOf, handshake, intent, later, result, settlement } from "../2-ingest/records.ts";
import { openTestLake, PARTITIONS } from "../2-ingest/world.ts";

export const ORIGIN = "touchstone.test";
export const BASE_URL = `https://${ORIGIN}`;
export const SELLER = privateKeyToAccount(`0x${"42".repeat(32)}`);
export const STRANGER = privateKeyToAccount(`0x${"43".repeat(32)}`);

/** A paid call and all that follows from it. `wrong`: an answer that our check called wrong. */
export function paidCall(name: string, time: string, wrong = false): NewRecord[] {
  const sent = intent(name, time, { input: "known_answer" });
  const outcome = wrong ? 0 : 1;
  return [
    sent,
    result(name, sent.eventId, later(time, 1_000), { ...CAME, outcome }),
    settlement(name, sent.eventId, later(time, 2_000)),
  ];
}

/** One probe and one paid call in each of so many blocks of six hours. */
export function history(name: string, from: string, blocks: number, wrong: (block: number) => boolean = () => false) {
  const records: NewRecord[] = [];
  for (let block = 0; block < blocks; block++) {
    const time = later(from, block * 21_600_000);
    records.push(handshake(name, time), ...paidCall(name, later(time, 60_000), wrong(block)));
  }
  return records;
}

type ThisWorld = Awaited<ReturnType<typeof openWorld>>;

export type { ThisWorld as World };

/** Fails the next writes whose key begins so: what a crash leaves is what was written before it. */
export class Faults {
  readonly failing = new Set<string>();
  over(store: Store): Store {
    const guard = (key: string) => {
      for (const prefix of this.failing) if (key.startsWith(prefix)) throw new Error(`injected: ${key}`);
    };
    return new Proxy(store, {
      get: (target, name) => {
        const member = Reflect.get(target, name) as unknown;
        if (typeof member !== "function") return member;
        return (...args: unknown[]) => {
          if (name === "create" || name === "swap") guard(String(args[0]));
          return (member as (...all: unknown[]) => unknown).apply(target, args);
        };
      },
    });
  }
}

/** The whole way over real parts: log, ingest, grade, publish, serve; only the observer is left out, the tests append. */
export async function openWorld() {
  const dir = await mkdtemp(join(tmpdir(), "corrections-"));
  const clock = new FixedClock("2026-11-16T12:00:00.000Z");
  const logger = createLogger("silent");
  const metrics = createMetrics();
  createKeyring(join(dir, "keys"), new Date("2026-01-01T00:00:00.000Z"));
  const keys = loadKeys(join(dir, "keys"));
  const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  const faults = new Faults();
  const privateStore = await openDirectoryStore(join(dir, "private"));
  const publicStore = await openDirectoryStore(join(dir, "public"));
  const lakes: Lake[] = [];

  /** A process of its own: nothing in memory comes from another one. `fresh` builds its lake from the chain. */
  async function process_(fresh = false) {
    const lake = fresh || !lakes.at(-1) ? await openTestLake(join(dir, `lake-${lakes.length}.duckdb`)) : lakes.at(-1)!;
    if (!lakes.includes(lake)) lakes.push(lake);
    const guarded = faults.over(privateStore);
    const ingest = createIngest({ log, privateStore: guarded, lake, clock, logger, metrics });
    const publisher = createPublisher({
      privateStore: guarded,
      publicStore: faults.over(publicStore),
      signers: keys,
      clock,
      origin: ORIGIN,
      partitions: PARTITIONS,
      logger,
      metrics,
    });
    await publisher.publishKeys(keysDocument(keys.ring));
    // Grading, publishing and the volatile table never ask the observer, the line of asks, the purse or the archive.
    const unused = {} as Pick<PipelineParts, "observer" | "askRunner" | "caps" | "archive">;
    const pipeline = new Pipeline({
      ...unused,
      ...{ clock, log, privateStore: guarded, publicStore: faults.over(publicStore), lake },
      ...{ memory: createMemory(lake), ingest, publisher, logger, metrics, ownOrigins: [], priority: {} },
    });
    return { lake, ingest, publisher, pipeline };
  }

  const trust = checkpointKeys(ORIGIN, keys);
  const follower = new Follower({
    tree: new PublishedTree(publicStore, trust),
    ...{ store: publicStore, origin: ORIGIN, clock, logger, metrics },
  });
  const app = createApp({
    ...{ store: publicStore, follower, log, answers: keys.answers, clock, logger, metrics, baseUrl: BASE_URL },
    validateUrl: () => ({ ok: true }),
    jwks: () => keysDocument(keys.ring),
    limits: { checks_per_minute: 1e6, reads_per_minute: 1e6, disputes_per_hour: 1e6 },
    cache: { ttlMs: 0, maxEntries: 1, maxBytes: 1e6 },
  });
  const reading = await LogHistoryReader.open({ log, privateStore, lake: { memory_limit: "256MB", threads: 1 } });
  const recorder = new Recorder({ log, producer: "test/1", metrics });

  const get = async <T>(path: string): Promise<T> => {
    await follower.refresh();
    const response = await app.request(path);
    if (response.status !== 200) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  };
  const world = {
    ...{ dir, clock, log, privateStore, publicStore, faults, app, follower, keys, trust, reading },
    ...(await process_()),
    /** Go on as another process would after a kill. */
    async restart(fresh = false) {
      Object.assign(world, await process_(fresh));
    },
    pass: (ms: number) => clock.set(new Date(clock.now().getTime() + ms)),
    append: (...records: NewRecord[]) => log.append(records),
    grade: () => world.pipeline.grade(clock.now()),
    check: (name: string) => get<CheckAnswer>(`/v1/check?url=${capOf(name)}`),
    trustOf: (name: string) => get<TrustResponse>(`/v1/trust/${capOf(name)}`),
    /** As `touchstone correct` does it. */
    async correct(name: string, order: Partial<CorrectionOrder> = {}): Promise<BodyOf<"correction">[]> {
      const record = await readEndpoint(reading, capOf(name));
      const now = clock.now();
      const whole = {
        records: "all_before_now",
        gradeAt: null,
        fault: "wrong_checker",
        says: "ours",
        ...order,
      } as const;
      const bodies = planCorrections(record, whole, now);
      await recorder.append(bodies.map((body) => createCorrectionDraft("correction", record.cap, body, now)));
      return bodies;
    },
    async reinstate(name: string, id: string): Promise<void> {
      const { correctionRecords } = await readEndpoint(reading, capOf(name));
      const { cap, body } = planReinstatement(correctionRecords, id, "it was right");
      await recorder.append([createCorrectionDraft("reinstated", cap, body, clock.now())]);
    },
    /** A dispute as an operator records it. */
    async dispute(name: string, recordId: string | null = null): Promise<string> {
      const signed = await signedDispute(name, clock.now(), { record_id: recordId });
      await recorder.append([
        createCorrectionDraft("dispute", capOf(name), disputeBody(signed, clock.now()), clock.now()),
      ]);
      return disputeId(signed);
    },
    /** Prove the whole record again. @throws RecordBroken */
    prove: () => proveRecord(publicStore, { trust }),
    /** Leaves of one endpoint, in order. */
    async leavesOf(name: string): Promise<Leaf[]> {
      await follower.refresh();
      const { head, reader } = follower.snapshot!;
      const cap = capOf(name);
      const own: Leaf[] = [];
      for await (const { leaf } of reader.leaves(0, head.size)) {
        const of = leaf.kind === "grade" ? leaf.card.capability_id : "capability_id" in leaf && leaf.capability_id;
        if (of === cap) own.push(leaf);
      }
      return own;
    },
    async close() {
      await reading.close();
      for (const lake of lakes) await lake.close();
      await privateStore.close();
      await publicStore.close();
      await log.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
  return world;
}

/** A statement signed by the seller unless told; `over` may spoil it. */
export async function signedDispute(
  name: string,
  at: Date,
  over: Partial<SignedDispute> = {},
  by = SELLER,
): Promise<SignedDispute> {
  const statement = {
    capability_id: capOf(name),
    record_id: null,
    says: "your check was wrong",
    at: at.toISOString(),
    service: BASE_URL,
    ...over,
  };
  const signature = await by.signMessage({ message: statementOf(statement) });
  return { ...statement, pay_to: by.address, signature, ...over };
}

/** What of a card must come back bit for bit. */
export function figuresOf({ computed_at: _at, signature: _signature, ...figures }: SignedCard) {
  return figures;
}
