import { parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { decompress } from "zstd-napi";
import { openChain } from "../../infra/chain/commits.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Appended, Log, LogRecord } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { readRejected } from "../../pipelines/2-ingest/batch.ts";
import { INGESTED } from "../../pipelines/2-ingest/load.ts";
import { audit } from "../../pipelines/audit/audit.ts";
import { StoreSource } from "../../pipelines/published/open-source.ts";
import { openSourceTreeHead } from "../../pipelines/published/trust.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { dayOf } from "../../pipelines/record/time.ts";
import { proveRecord, RecordBroken } from "./prove-record.ts";

/** A lake and the partitions whose rows it holds; without them it holds all. */
export interface Held {
  lake: Lake;
  partitions?: readonly number[];
}

export interface Whole {
  log: Log;
  privateStore: Store;
  publicStore: Store;
  trust: CheckpointTrust;
  /** Every append that was acknowledged. */
  acked: readonly Appended[];
  /** Of several lakes with the same partitions each must be whole. */
  lakes: readonly Held[];
  /** Evidence of every day before this one has been published (UTC date). Absent: evidence is not looked at. */
  closedBefore?: string;
  /** Evidence is complete: every card must come out of it, none may be pending. Default true. */
  audited?: boolean;
}

/** What is wrong, each in a line; the oracle collects everything before it throws. */
export class OracleBroken extends Error {
  constructor(readonly problems: readonly string[]) {
    super(`the record is not whole, ${problems.length} times:\n${problems.slice(0, 30).join("\n")}`);
    this.name = "OracleBroken";
  }
}

/** A thing that is there but not once. */
const notOnce = (counts: ReadonlyMap<string, number>): string[] =>
  [...counts].flatMap(([name, n]) => (n === 1 ? [] : [`${name} x ${n}`]));

const countOf = (names: Iterable<string>): Map<string, number> => {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
};

const missing = (wanted: Iterable<string>, there: { has(name: string): boolean }): string[] =>
  [...wanted].filter((name) => !there.has(name));

/** Every record of one place, in order. */
export async function recordsOf(log: Log, topic: string, partition: number): Promise<LogRecord[]> {
  const { start, end } = await log.bounds(topic, partition);
  const all: LogRecord[] = [];
  for (let from = start; from < end; ) {
    const read = await log.read(topic, partition, from, { maxRecords: 10_000, waitMs: 10_000 });
    if (read.length === 0) throw new Error(`${topic}/${partition}: nothing at ${from}, the end is ${end}`);
    all.push(...read);
    from = read.at(-1)!.offset + 1;
  }
  return all;
}

interface Accepted {
  partition: number;
  /** `<event id> <UTC day>`: inside of that copies are looked for. */
  event: string;
  eventId: string;
  /** Evidence has a line for it, on that day. */
  sample: boolean;
  day: string;
}

/** One place against its chain: offsets tiled by commits, each in one live segment or its rejected file. */
async function provePlace(whole: Whole, topic: string, partition: number, bad: (says: string) => void) {
  const place = `${topic}/${partition}`;
  const records = await recordsOf(whole.log, topic, partition);
  const byOffset = new Map(records.map((record) => [record.offset, record]));
  for (const one of whole.acked) {
    if (one.topic !== topic || one.partition !== partition) continue;
    if (byOffset.get(one.offset)?.eventId !== one.eventId)
      bad(`${place}: acknowledged ${one.offset} is not in the log`);
  }
  const chain = openChain(whole.privateStore, { logId: whole.log.id, topic, partition });
  const { live, next } = await chain.head();
  const found: number[] = [];
  const rejected = new Set<number>();
  for (const ref of live) {
    const bytes = await chain.readSegment(ref);
    const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
    // By a reader that is not the one that wrote it.
    const rows = await parquetReadObjects({ file, compressors, columns: ["offset"] });
    found.push(...rows.map((row) => Number(row.offset)));
    if (!ref.rejects) continue;
    for (const { offset } of readRejected(await chain.readSegment(ref.rejects))) {
      found.push(offset);
      rejected.add(offset);
    }
  }
  if (next !== records.length) bad(`${place}: the chain goes to ${next}, the log to ${records.length}`);
  const counts = countOf(found.map(String));
  bad_(notOnce(counts), `${place}: offsets in segments`, bad);
  bad_(
    missing(
      records.map(({ offset }) => String(offset)),
      counts,
    ),
    `${place}: offsets in no segment`,
    bad,
  );
  return records.filter(({ offset }) => !rejected.has(offset));
}

const bad_ = (names: readonly string[], what: string, bad: (says: string) => void): void => {
  if (names.length > 0) bad(`${what}: ${names.length}: ${names.slice(0, 5).join(", ")}`);
};

const SAMPLES: readonly string[] = ["handshake", "mcp.probe", "paid.intent"];

function acceptedOf(record: LogRecord, bad: (says: string) => void): Accepted[] {
  const read = readRecord(record);
  if (!read.ok) {
    bad(`${record.topic}/${record.partition}/${record.offset}: neither a record nor rejected`);
    return [];
  }
  const { event_id: eventId, observed_at, type } = read.envelope;
  const day = dayOf(new Date(observed_at));
  const { partition } = record;
  return [{ partition, event: `${eventId} ${day}`, eventId, day, sample: SAMPLES.includes(type) }];
}

/** Every event once in every lake that holds its partition, and nothing else there. */
async function proveLake({ lake, partitions }: Held, accepted: readonly Accepted[], bad: (says: string) => void) {
  const rows = await lake.all<{ event: string; n: bigint }>(
    "SELECT event_id || ' ' || observed_at::DATE AS event, count(*) AS n FROM event GROUP BY ALL",
  );
  const there = new Map(rows.map(({ event, n }) => [event, Number(n)]));
  const mine = accepted.filter(({ partition }) => partitions?.includes(partition) ?? true);
  const wanted = new Set(mine.map(({ event }) => event));
  bad_(notOnce(there), `${lake.path}: events`, bad);
  bad_(missing(wanted, there), `${lake.path}: events missing`, bad);
  bad_(missing(there.keys(), wanted), `${lake.path}: events from nowhere`, bad);
}

/** Every sample of a closed day stands in the published evidence once. */
async function proveEvidence(
  whole: Whole,
  leaves: readonly Leaf[],
  accepted: readonly Accepted[],
  bad: (says: string) => void,
) {
  const ids: string[] = [];
  for (const leaf of leaves) {
    if (leaf.kind !== "evidence" || leaf.holds !== "rows") continue;
    const packed = await whole.publicStore.get(leaf.key!);
    const text = decompress(Buffer.from(packed!.bytes)).toString("utf8");
    for (const line of text.split("\n").filter(Boolean)) {
      const { obs_id } = JSON.parse(line) as { obs_id?: string };
      if (obs_id) ids.push(obs_id);
    }
  }
  const there = countOf(ids);
  const wanted = new Set(accepted.flatMap((one) => (one.sample && one.day < whole.closedBefore! ? [one.eventId] : [])));
  bad_(notOnce(there), "samples in evidence", bad);
  bad_(missing(wanted, there), "samples in no evidence", bad);
  bad_(missing(there.keys(), wanted), "samples from nowhere", bad);
}

/** Every correction, dispute and reinstatement of the log is one leaf. */
function proveCorrections(leaves: readonly Leaf[], ids: ReadonlySet<string>, bad: (says: string) => void): void {
  const published = countOf(
    leaves.flatMap((leaf) => ("body" in leaf && leaf.kind !== "keys" ? [nameOf(leaf.body)] : [])),
  );
  bad_(notOnce(published), "corrections published", bad);
  bad_(missing(ids, published), "corrections not published", bad);
}

const nameOf = (body: unknown): string => {
  const { id, correction } = body as { id?: string; correction?: string };
  return id ?? `of ${correction}`;
};

/**
 * The oracle of the fault tests (engines.md, Kafka): every acknowledged offset once in the segments (or among the
 * rejected), every event id once in the lake, every sample once in the evidence, every published change once in the
 * tree; and an audit of the public store finds nothing.
 * @returns leaves of the tree @throws OracleBroken with everything that is wrong
 */
export async function proveWhole(whole: Whole): Promise<readonly Leaf[]> {
  const problems: string[] = [];
  const bad = (says: string): void => void problems.push(says);
  const accepted: Accepted[] = [];
  const corrections = new Set<string>();
  for (const topic of INGESTED) {
    for (let partition = 0; partition < whole.log.partitions; partition++) {
      for (const record of await provePlace(whole, topic, partition, bad)) {
        accepted.push(...acceptedOf(record, bad));
        const read = topic === "corrections" ? readRecord(record) : null;
        if (read?.ok) corrections.add(nameOf(read.envelope.body));
      }
    }
  }
  for (const held of whole.lakes) await proveLake(held, accepted, bad);
  const leaves = await proveTree(whole, bad);
  // Of a tree that cannot be read nothing more is said: every record of the log would be missing in it.
  if (leaves) {
    proveCorrections(leaves, corrections, bad);
    if (whole.closedBefore) await proveEvidence(whole, leaves, accepted, bad);
  }
  if (problems.length > 0) throw new OracleBroken(problems);
  return leaves!;
}

/** @returns the leaves, also of a tree that is not sound; null when they cannot be read */
async function proveTree(whole: Whole, bad: (says: string) => void): Promise<readonly Leaf[] | null> {
  const leaves = await leavesOf(whole, bad);
  await auditTree(whole, bad);
  return leaves;
}

async function leavesOf({ publicStore, trust }: Whole, bad: (says: string) => void): Promise<readonly Leaf[] | null> {
  try {
    // Leaves that say the same twice are found there.
    return (await proveRecord(publicStore, { trust, atRest: true })).leaves;
  } catch (error) {
    bad((error as Error).message);
    return error instanceof RecordBroken ? error.leaves : null;
  }
}

async function auditTree({ publicStore, audited = true }: Whole, bad: (says: string) => void): Promise<void> {
  try {
    const source = new StoreSource("the public store", publicStore);
    const { findings } = await audit({ source, head: await openSourceTreeHead(source, {}, () => undefined) });
    for (const { check, result, open, problems } of findings) {
      const [first] = problems;
      if (result !== "ok")
        bad(`audit: ${check}: ${result} ${first ? `${first.key} ${first.expected} ${first.got}` : ""}`);
      // Plans are opened by whoever makes them: a schedule of appended records has none.
      if (audited && open > 0 && check.startsWith("cards")) bad(`audit: ${check}: ${open} open`);
    }
  } catch (error) {
    bad((error as Error).message);
  }
}
