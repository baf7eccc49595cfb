import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { capId } from "../record/ids.ts";
import { registrableDomain } from "../record/url.ts";
import { METHODS } from "../record/vocabulary.ts";

/** Statements that make the lake's tables of this floor, for `openLake`. They repeat safely. */
export const INGEST_TABLES: readonly string[] = [
  "tables/settings",
  "tables/rules",
  "tables/record",
  "tables/samples",
  "tables/grade",
  "tables/asks",
  "tables/archive",
].map(sql);

const PROBED = ["staging/probes", "samples/seen", "samples/withdrawn"];
/** What follows the staging of a segment, by topic. */
export const STEPS: Record<string, readonly string[]> = {
  listings: ["staging/listings"],
  "observations.free": PROBED,
  "observations.mcp": PROBED,
  "observations.paid": ["staging/paid", "samples/paid", "samples/published", "samples/seen", "samples/withdrawn"],
  asks: ["staging/asks"],
  corrections: ["staging/corrections", "samples/withdrawn"],
};
/** Topics that become segments and rows; the others have no types yet. */
export const INGESTED: readonly string[] = Object.keys(STEPS);

/** One live segment of a chain, with the bytes on this machine. */
export interface Loadable {
  topic: string;
  partition: number;
  /** Its key in the store. */
  file: string;
  /** Rows in the file. */
  rows: number;
  path: string;
  /** Positions below are loaded once this segment is. */
  next: number;
}

/**
 * A segment's new records into the lake, with its `loaded` row and the position: one transaction, all or nothing. Loading
 * it again, or a compacted one, adds nothing twice.
 * @param ownHosts hosts (with port) that are ours: never graded
 * @returns records that the lake did not have
 */
export async function loadSegment(lake: Lake, segment: Loadable, ownHosts: ReadonlySet<string>): Promise<number> {
  return lake.transaction(async (tx) => {
    const file = { topic: segment.topic, part: segment.partition, file: segment.file };
    const known = await tx.all("FROM loaded WHERE topic = $topic AND part = $part AND file = $file", file);
    const fresh = known.length > 0 ? 0 : await fold(tx, segment, ownHosts);
    const { rows, path } = segment;
    if (known.length === 0) await tx.run(sql("staging/loaded:file"), { ...file, rows, path });
    await advance(tx, segment, []);
    return fresh;
  });
}

/** Move a partition's position where there is nothing to load, and forget files that others replaced. */
export async function advanceLake(
  lake: Lake,
  position: { topic: string; partition: number; next: number },
  gone: readonly string[],
): Promise<void> {
  await lake.transaction((tx) => advance(tx, position, gone));
}

async function advance(
  tx: Statements,
  { topic, partition: part, next }: { topic: string; partition: number; next: number },
  gone: readonly string[],
): Promise<void> {
  await tx.run(sql("staging/loaded:position"), { topic, part, next, gone: JSON.stringify(gone) });
}

async function fold(tx: Statements, segment: Loadable, ownHosts: ReadonlySet<string>): Promise<number> {
  await tx.run(sql("staging/stage"), { segment: segment.path });
  for (const step of STEPS[segment.topic] ?? []) await tx.run(sql(step));
  await addEndpoints(tx, segment.topic, ownHosts);
  await tx.run(sql("samples/site"));
  const [staged] = await tx.all<{ fresh: bigint }>("SELECT count(*) AS fresh FROM stage");
  return Number(staged?.fresh ?? 0n);
}

interface Named {
  cap: string;
  url: string;
  method: string | null;
  tool: string | null;
}

/** Records of these say where a new capability lives: a listing, an ask, or a probe that an ask was answered with. */
const NAMING: ReadonlySet<string> = new Set(["listings", "asks", "observations.free"]);

/** The method of a capability: the one whose hash it is. A listing may leave it out, and the observer then chose one. */
function methodOf({ cap, url, method, tool }: Named): string {
  const order = method === null ? METHODS : [method, ...METHODS];
  return order.find((name) => capId(name, url, tool ?? "") === cap) ?? method ?? "GET";
}

/** Host (with port) and registrable domain of a url; both null when it is none. */
function hostOf(url: string): { host: string | null; domain: string | null } {
  try {
    return { host: new URL(url).host, domain: registrableDomain(url) };
  } catch {
    // A listing may carry what is no url; it has no domain then and is never called.
    return { host: null, domain: null };
  }
}

/** Rows of `endpoint` for the staged records' new capabilities; their `site` is made anew with them. */
async function addEndpoints(tx: Statements, topic: string, ownHosts: ReadonlySet<string>): Promise<void> {
  if (!NAMING.has(topic)) return;
  const all = await tx.all<Named>(sql("staging/endpoints:named"));
  // A template is probed under a concrete url: the url of a probe is the capability's only when it is hashed in it.
  const isOwn = ({ cap, url, method }: Named): boolean => method !== null && capId(method, url, "") === cap;
  const found = topic === "observations.free" ? all.filter(isOwn) : all;
  if (found.length === 0) return;
  const rows = found.map((named) => {
    const at = hostOf(named.url);
    return { ...named, method: methodOf(named), ...at, ours: at.host !== null && ownHosts.has(at.host) };
  });
  await tx.run(sql("staging/endpoints:added"), { endpoints: JSON.stringify(rows), topic });
}

/**
 * Rows of every partition but these leave the lake, all in one transaction: their owner has them now, from the chain.
 * Costs one look when there is nothing to do. @param partitions of the log
 */
export async function evictPartitions(lake: Lake, held: readonly number[], partitions: number): Promise<void> {
  const known = await lake.all<{ part: number }>("SELECT DISTINCT part FROM positions UNION SELECT part FROM loaded");
  const evicted = known.map(({ part }) => part).filter((part) => !held.includes(part));
  if (evicted.length === 0) return;
  const shift = 6 - Math.log2(partitions);
  await lake.transaction(async (tx) => {
    await tx.run(sql("staging/evict:rows"), { evicted: JSON.stringify(evicted), shift });
    await tx.run(sql("staging/evict:asks"));
    await tx.run(sql("staging/asks"));
    await tx.run(sql("staging/evict:endpoints"), { held: JSON.stringify(held), shift });
  });
}

export type Positions = Record<string, Record<string, number>>;

/** How far the lake has loaded: {topic: {partition: next offset}}. */
export async function lakePositions(lake: Pick<Statements, "all">): Promise<Positions> {
  const rows = await lake.all<{ topic: string; part: number; next: bigint }>("FROM positions ORDER BY topic, part");
  const positions: Positions = {};
  for (const { topic, part, next } of rows) {
    positions[topic] ??= {};
    positions[topic][String(part)] = Number(next);
  }
  return positions;
}

/** What the lake has of a partition: keys of its files, and the position behind them, null before the first look. */
export async function lakeHas(
  lake: Lake,
  topic: string,
  partition: number,
): Promise<{ files: Set<string>; next: number | null }> {
  const has = sql("queries/loaded:has");
  const rows = await lake.all<{ file: string | null; next: bigint | null }>(has, { topic, part: partition });
  const next = rows[0]?.next ?? null;
  const files = rows.flatMap(({ file }) => (file === null ? [] : [file]));
  return { files: new Set(files), next: next === null ? null : Number(next) };
}
