import { rm } from "node:fs/promises";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import type { Lake, Params, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import { parseUrl } from "../../infra/url.ts";
import { REPEATED_PROOF_WINDOW_MS } from "../3-grade/params.ts";
import { capId } from "../record/ids.ts";
import type { IngestedTopic } from "../record/topics.ts";
import { platformOf, registrableDomain } from "../record/url.ts";
import { METHODS } from "../record/vocabulary.ts";
import { MAX_PAY_TOS, type Positions } from "../record/volatile.ts";
import { openDaySegments } from "./day-segments.ts";

/**
 * Form of the lake: of its tables and of the rows that are loaded. Raise it when the SQL of either changes; an older lake is
 * made anew from the segments (test/pipelines/roles/forms.test.ts holds it against the SQL).
 */
export const LAKE_FORM = 4;

/** Statements that make the lake's tables, for `openLake`; each may run again. */
export const INGEST_TABLES: readonly string[] = [
  "tables/settings",
  "tables/rules",
  "tables/record",
  "tables/samples",
  "tables/grade",
  "tables/asks",
  "tables/archive",
].map(sql);

/** Files of SQL that run after staging, in this order; a step runs when a staged segment is of one of its topics. */
const STEPS: readonly { topics: readonly IngestedTopic[]; files: readonly string[] }[] = [
  { topics: ["listings"], files: ["staging/records:listings"] },
  { topics: ["observations.free", "observations.mcp"], files: ["staging/probes", "samples/seen"] },
  { topics: ["observations.paid"], files: ["staging/paid", "samples/paid", "samples/published", "samples/seen"] },
  { topics: ["asks"], files: ["staging/records:asks"] },
  { topics: ["corrections"], files: ["staging/records:corrections"] },
];
/** Parameters of these files. */
const NUMBERS: Readonly<Record<string, Params>> = {
  "samples/paid": { shown_again_ms: REPEATED_PROOF_WINDOW_MS },
  "samples/seen": { kept: MAX_PAY_TOS },
};
/** Topics that become segments and rows; the others stay in the log. */
export const INGESTED: readonly IngestedTopic[] = STEPS.flatMap(({ topics }) => topics);

/** One live segment of a chain, with its file on this machine. */
export interface Loadable extends SegmentRef {
  topic: string;
  partition: number;
  path: string;
  /** Offset behind the segment: once it is loaded, the partition is loaded up to here. */
  next: number;
}

export interface LoadParts {
  lake: Lake;
  privateStore: Store;
  log: Pick<Log, "id">;
  /** Hosts (with port) that are ours: never graded. */
  ownHosts: ReadonlySet<string>;
}

/**
 * Rows, and bytes of the files, that are loaded at once; one segment alone may have more. What is known of an endpoint is
 * updated once a group, so a row of two full segments (batch.ts) costs less than a row of one. In larger groups a load
 * begins later, and less of it runs while batches are read.
 */
const GROUP_ROWS = 245_760;
const GROUP_BYTES = 48 * 1024 * 1024;

/**
 * Loads segments of any partitions and topics into the lake, in groups: a transaction of a hundred rows costs what one of
 * ten thousand does, and a service that is up has a small segment of each partition in a pass. A full group is loaded
 * while the caller goes on; at most one is under way.
 */
export class Loading {
  #group: Loadable[] = [];
  #running: Promise<void> = Promise.resolve();
  /** Records so far that the lake did not have. */
  fresh = 0;

  /** @param loaded is called with the segments that are in the lake now */
  constructor(
    private readonly parts: LoadParts,
    private readonly loaded: (segments: readonly Loadable[]) => void | Promise<void> = () => {},
  ) {}

  /**
   * Takes a segment, whose file is removed once it is loaded, or by {@link discard}.
   * @throws what the group before met
   */
  async add(segment: Loadable): Promise<void> {
    this.#group.push(segment);
    const sum = (of: "rows" | "bytes") => this.#group.reduce((all, one) => all + one[of], 0);
    if (sum("rows") >= GROUP_ROWS || sum("bytes") >= GROUP_BYTES) await this.#start();
  }

  /** Ends when all that was added is in the lake. */
  async load(): Promise<void> {
    await this.#start();
    await this.#running;
  }

  /** Ends when nothing is under way, and removes the files of what was not loaded; the segments are in the store. */
  async discard(): Promise<void> {
    await this.#running.catch(() => undefined);
    await removeFiles(this.#group.splice(0));
  }

  /** Waits for the group before, then begins with the next one. */
  async #start(): Promise<void> {
    await this.#running;
    const group = this.#group.splice(0);
    if (group.length === 0) return;
    this.#running = this.#loadGroup(group);
    // It is awaited later; until then a failure must not count as unhandled.
    this.#running.catch(() => undefined);
  }

  async #loadGroup(group: readonly Loadable[]): Promise<void> {
    try {
      this.fresh += await loadSegments(this.parts, group);
      await this.loaded(group);
    } finally {
      await removeFiles(group);
    }
  }
}

async function removeFiles(segments: readonly Loadable[]): Promise<void> {
  for (const { path } of segments) await rm(path, { force: true });
}

/** A filed day whose ids are needed to load the staged segments; `known`: they are in the lake. */
interface NearDay {
  topic: string;
  part: number;
  type: string;
  day: string;
  known: boolean;
}

/**
 * Loads the new records of segments, with their `loaded` rows and the positions: one transaction, all or nothing. Loading
 * one again, or a compacted one, adds nothing twice.
 * @returns how many records the lake did not have
 */
async function loadSegments(parts: LoadParts, segments: readonly Loadable[]): Promise<number> {
  const { fresh, near } = await tryLoad(parts, segments, true);
  if (near === null) return fresh;
  await fetchLeftIds(parts, near);
  return (await tryLoad(parts, segments, false)).fresh;
}

/** @returns in `near`, with nothing loaded, the filed days that are near when ids of one are missing and have to be here */
async function tryLoad(
  { lake, ownHosts }: LoadParts,
  segments: readonly Loadable[],
  needsIds: boolean,
): Promise<{ fresh: number; near: readonly NearDay[] | null }> {
  return lake.transaction(async (tx) => {
    const files = JSON.stringify(segments.map(({ file }) => file));
    const known = new Set(
      (await tx.all<{ file: string }>(sql("staging/loaded:known"), { files })).map(({ file }) => file),
    );
    const news = segments.filter(({ file }) => !known.has(file));
    let fresh = 0;
    if (news.length > 0) {
      await tx.run(sql("staging/stage:parsed"), { paths: JSON.stringify(news.map(({ path }) => path)) });
      const near = await tx.all<NearDay>(sql("archive/copies:days"));
      if (needsIds && near.some(({ known }) => !known)) return { fresh, near };
      fresh = await fold(tx, news, ownHosts);
    }
    await tx.run(sql("staging/loaded:positions"), {
      ends: JSON.stringify(segments.map(({ topic, partition: part, next }) => ({ topic, part, next }))),
    });
    return { fresh, near: null };
  });
}

/** Moves a partition's position where there is nothing to load, and deletes files that were replaced from `loaded`. */
export async function advanceLake(
  lake: Lake,
  { topic, partition: part, next }: { topic: string; partition: number; next: number },
  gone: readonly string[],
): Promise<void> {
  await lake.transaction(async (tx) => {
    await tx.run(sql("staging/loaded:gone"), { topic, part, gone: JSON.stringify(gone) });
    await tx.run(sql("staging/loaded:positions"), { ends: JSON.stringify([{ topic, part, next }]) });
  });
}

async function fold(tx: Statements, segments: readonly Loadable[], ownHosts: ReadonlySet<string>): Promise<number> {
  const rows = segments.map(({ partition: part, ...one }) => ({ part, ...one }));
  await tx.run(sql("staging/stage:fresh"), { segments: JSON.stringify(rows) });
  for (const { topics, files } of STEPS)
    if (rows.some(({ topic }) => topics.includes(topic as IngestedTopic)))
      for (const file of files) await tx.run(sql(file), NUMBERS[file]);
  await tx.run(sql("samples/touched:withdrawn"));
  await addEndpoints(tx, ownHosts);
  await tx.run(sql("samples/touched:site"));
  const [staged] = await tx.all<{ fresh: bigint }>("SELECT count(*) AS fresh FROM stage");
  return Number(staged?.fresh ?? 0n);
}

/**
 * Fetches the ids of filed days that left the lake, so that a copy of such a record is known as one. They are read from the
 * segments that are loaded, which is slow and rare: a record that comes months late. A log that is loaded in its order needs
 * next to none. Ids of other days are dropped.
 * @throws DamagedChain, and what lake and store throw
 */
async function fetchLeftIds({ lake, privateStore, log }: LoadParts, near: readonly NearDay[]): Promise<void> {
  const unknown = near.filter(({ known }) => !known);
  for (const { topic, part } of new Map(unknown.map((one) => [`${one.topic}/${one.part}`, one])).values()) {
    const ofPart = (one: { topic: string; part: number }) => one.topic === topic && one.part === part;
    const days = JSON.stringify([...new Set(near.filter(ofPart).map(({ day }) => day))]);
    const types = JSON.stringify([...new Set(near.filter(ofPart).map(({ type }) => type))]);
    const { next } = await lakeHas(lake, topic, part);
    await lake.run(sql("archive/copies:forget"), { part, types, days });
    for (const { type, day } of unknown.filter(ofPart)) {
      const left = await openDaySegments(
        { lake, privateStore, logId: log.id },
        { partition: part, day, below: { [topic]: next ?? 0 } },
      );
      try {
        const { files } = left;
        await lake.transaction(async (tx) => {
          if (files !== null) await tx.run(sql("archive/copies:ids"), { files, type, day, part });
          await tx.run("INSERT INTO left_day VALUES ($type, $day::DATE, $part)", { type, day, part });
        });
      } finally {
        await left.close();
      }
    }
  }
}

interface Named {
  topic: string;
  cap: string;
  url: string;
  method: string | null;
  tool: string | null;
}

/** The HTTP method that the capability's hash was made with: a listing may name none, and the observer then chose one. */
function methodOf({ cap, url, method, tool }: Named): string {
  const order = method === null ? METHODS : [method, ...METHODS];
  return order.find((name) => capId(name, url, tool ?? "") === cap) ?? method ?? "GET";
}

/** Host (with port), registrable domain and platform of a url; null for a listed text that is no url. */
function placeOf(url: string): { host: string | null; domain: string | null; platform: string | null } {
  const parsed = parseUrl(url);
  if (!parsed) return { host: null, domain: null, platform: null };
  return { host: parsed.host, domain: registrableDomain(url), platform: platformOf(url) };
}

/** Adds rows of `endpoint` for the new capabilities of the staged records, and marks these as touched. */
async function addEndpoints(tx: Statements, ownHosts: ReadonlySet<string>): Promise<void> {
  const all = await tx.all<Named>(sql("staging/endpoints:named"));
  // A template is probed under a concrete url, so a probe's url is the capability's only if the hash was made of it.
  const isOwn = ({ topic, cap, url, method }: Named): boolean =>
    topic !== "observations.free" || (method !== null && capId(method, url, "") === cap);
  const first = new Map<string, Named>();
  for (const named of all) if (!first.has(named.cap) && isOwn(named)) first.set(named.cap, named);
  if (first.size === 0) return;
  const rows = [...first.values()].map((named) => {
    const at = placeOf(named.url);
    return { ...named, method: methodOf(named), ...at, ours: at.host !== null && ownHosts.has(at.host) };
  });
  await tx.run(sql("staging/endpoints:added"), { endpoints: JSON.stringify(rows) });
}

/**
 * Deletes the rows of every partition but these from the lake, in one transaction: their new owner loads them from the chain.
 * @param partitions number of partitions of the log
 */
export async function evictPartitions(lake: Lake, held: readonly number[], partitions: number): Promise<void> {
  const known = await lake.all<{ part: number }>("SELECT DISTINCT part FROM positions UNION SELECT part FROM loaded");
  const evicted = known.map(({ part }) => part).filter((part) => !held.includes(part));
  if (evicted.length === 0) return;
  const shift = 6 - Math.log2(partitions);
  await lake.transaction(async (tx) => {
    await tx.run(sql("staging/evict:parts"), { evicted: JSON.stringify(evicted), shift });
    for (const { statement } of await tx.all<{ statement: string }>(sql("staging/evict:statements")))
      await tx.run(statement);
    await tx.run(sql("staging/evict:asks"));
    await tx.run(sql("staging/records:asks"));
    await tx.run(sql("staging/evict:endpoints"), { held: JSON.stringify(held), shift });
  });
}

/** Positions of one partition: {topic: next offset}. */
export const positionsOf = (
  positions: Positions,
  partition: number,
  topics: readonly string[] = Object.keys(positions),
): Record<string, number> =>
  Object.fromEntries(
    topics.flatMap((topic): [string, number][] => {
      const next = positions[topic]?.[String(partition)];
      return next === undefined ? [] : [[topic, next]];
    }),
  );

/** Positions up to which the lake has loaded: {topic: {partition: next offset}}. */
export async function lakePositions(lake: Pick<Statements, "all">): Promise<Positions> {
  const rows = await lake.all<{ topic: string; part: number; next: bigint }>("FROM positions ORDER BY topic, part");
  const positions: Positions = {};
  for (const { topic, part, next } of rows) {
    positions[topic] ??= {};
    positions[topic][String(part)] = Number(next);
  }
  return positions;
}

/** Keys of a partition's loaded files, and its position; null if none was ever set. */
export async function lakeHas(
  lake: Lake,
  topic: string,
  partition: number,
): Promise<{ files: Set<string>; next: number | null }> {
  const has = sql("staging/loaded:has");
  const rows = await lake.all<{ file: string | null; next: bigint | null }>(has, { topic, part: partition });
  const next = rows[0]?.next ?? null;
  const files = rows.flatMap(({ file }) => (file === null ? [] : [file]));
  return { files: new Set(files), next: next === null ? null : Number(next) };
}
