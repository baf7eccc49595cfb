import { parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { openChain } from "../../infra/chain/commits.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { AppendedRecord, Log, LogRecord } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import { parseRejected } from "../../pipelines/2-ingest/batch.ts";
import { INGESTED } from "../../pipelines/2-ingest/load.ts";
import { type Envelope, readRecord } from "../../pipelines/record/envelope.ts";
import { dayOf } from "../../pipelines/record/time.ts";

/** A lake and the partitions whose rows it holds; without them it holds all. */
export interface Held {
  lake: Lake;
  partitions?: readonly number[];
}

export interface Ingested {
  log: Log;
  privateStore: Store;
  /** Of several lakes with the same partitions each must be whole. */
  lakes: readonly Held[];
  /** Every append that was acknowledged. */
  acked?: readonly AppendedRecord[];
  /** Ids of the rows that left the lakes for the archive; one that is still there as well is about to leave. */
  archived?: ReadonlySet<string>;
}

/** A record that ingest had to accept. */
export interface Accepted {
  partition: number;
  day: string;
  envelope: Envelope;
}

type Bad = (says: string) => void;

/** What stands somewhere, but not once. */
export const notOnce = (counts: ReadonlyMap<string, number>): string[] =>
  [...counts].flatMap(([name, n]) => (n === 1 ? [] : [`${name} x ${n}`]));

export const countOf = (names: Iterable<string>): Map<string, number> => {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
};

export const missing = (wanted: Iterable<string>, there: { has(name: string): boolean }): string[] =>
  [...wanted].filter((name) => !there.has(name));

export const tell = (names: readonly string[], what: string, bad: Bad): void => {
  if (names.length > 0) bad(`${what}: ${names.length}: ${names.slice(0, 5).join(", ")}`);
};

/** Every record of one place, in order. */
export async function recordsOf(log: Log, topic: string, partition: number): Promise<LogRecord[]> {
  const { start, end } = await log.bounds(topic, partition);
  const all: LogRecord[] = [];
  for (let from = start; from < end; ) {
    const read = await log.read(topic, partition, from, { maxRecords: 10_000, waitMs: 120_000 });
    if (read.length === 0) throw new Error(`${topic}/${partition}: nothing at ${from}, the end is ${end}`);
    all.push(...read);
    from = read.at(-1)!.offset + 1;
  }
  return all;
}

/** One place against its chain: offsets tiled by commits, each in one live segment or its rejected file. */
async function provePlace({ log, privateStore, acked = [] }: Ingested, topic: string, partition: number, bad: Bad) {
  const place = `${topic}/${partition}`;
  const records = await recordsOf(log, topic, partition);
  const byOffset = new Map(records.map((record) => [record.offset, record]));
  for (const one of acked) {
    if (one.topic !== topic || one.partition !== partition) continue;
    if (byOffset.get(one.offset)?.eventId !== one.eventId)
      bad(`${place}: acknowledged ${one.offset} is not in the log`);
  }
  const chain = openChain(privateStore, { logId: log.id, topic, partition });
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
    for (const { offset } of parseRejected(await chain.readSegment(ref.rejects))) {
      found.push(offset);
      rejected.add(offset);
    }
  }
  if (next !== records.length) bad(`${place}: the chain goes to ${next}, the log to ${records.length}`);
  const counts = countOf(found.map(String));
  const offsets = records.map(({ offset }) => String(offset));
  tell(notOnce(counts), `${place}: offsets in segments`, bad);
  tell(missing(offsets, counts), `${place}: offsets in no segment`, bad);
  return records.filter(({ offset }) => !rejected.has(offset));
}

function acceptedOf(record: LogRecord, bad: Bad): Accepted[] {
  const read = readRecord(record);
  if (read.ok) {
    const day = dayOf(new Date(read.envelope.observed_at));
    return [{ partition: record.partition, day, envelope: read.envelope }];
  }
  bad(`${record.topic}/${record.partition}/${record.offset}: neither a record nor rejected`);
  return [];
}

/** Every event once in every lake that holds its partition, or in the archive, and nothing else there. */
async function proveLake(
  { lake, partitions }: Held,
  accepted: readonly Accepted[],
  archived: ReadonlySet<string>,
  bad: Bad,
) {
  const rows = await lake.all<{ event: string; n: bigint }>(
    "SELECT event_id || ' ' || observed_at::DATE AS event, count(*) AS n FROM event GROUP BY ALL",
  );
  const there = new Map(rows.map(({ event, n }) => [event, Number(n)]));
  const mine = accepted.filter(({ partition }) => partitions?.includes(partition) ?? true);
  // Copies are looked for inside one UTC day.
  const wanted = new Set(mine.map(({ envelope, day }) => `${envelope.event_id} ${day}`));
  const stays = [...wanted].filter((event) => !archived.has(event.split(" ")[0]!));
  tell(notOnce(there), `${lake.path}: events`, bad);
  tell(missing(stays, there), `${lake.path}: events missing`, bad);
  tell(missing(there.keys(), wanted), `${lake.path}: events from nowhere`, bad);
}

/**
 * The way from log to lake, proven again: commits tile the log without hole or overlap, every offset is in one live
 * segment or its rejected file, and every event stands once in the lakes of its partition.
 * @returns what is wrong, and the records that ingest had to accept
 */
export async function logProblems(of: Ingested): Promise<{ problems: string[]; accepted: Accepted[] }> {
  const problems: string[] = [];
  const bad: Bad = (says) => void problems.push(says);
  const accepted: Accepted[] = [];
  for (const topic of INGESTED) {
    for (let partition = 0; partition < of.log.partitions; partition++) {
      for (const record of await provePlace(of, topic, partition, bad)) accepted.push(...acceptedOf(record, bad));
    }
  }
  for (const held of of.lakes) await proveLake(held, accepted, of.archived ?? new Set(), bad);
  return { problems, accepted };
}
