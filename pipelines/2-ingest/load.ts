import { rm } from "node:fs/promises";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import { Failure } from "../../infra/errors.ts";
import type { Lake, Params, Staging, Statements } from "../../infra/lake/duckdb.ts";
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
import { BATCH_ROWS } from "./batch.ts";
import { openDaySegments } from "./day-segments.ts";

/**
 * Version of the tables of the lake (the database that is loaded from segments) and of the rows that are loaded.
 * Raise it when the SQL of either changes (test/pipelines/roles/forms.test.ts compares this number with the SQL). A
 * lake of an older version is made again from the segments.
 */
export const LAKE_FORM = 7;

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

/**
 * SQL files that run in this order after segments were read into the temporary table `stage`. A step runs only if a
 * segment of one of its topics is among them.
 */
const STEPS: readonly { topics: readonly IngestedTopic[]; files: readonly string[] }[] = [
  { topics: ["listings"], files: ["staging/records:listings"] },
  { topics: ["observations.free", "observations.mcp"], files: ["staging/probes", "samples/seen"] },
  { topics: ["observations.paid"], files: ["staging/paid", "samples/paid", "samples/published", "samples/seen"] },
  { topics: ["asks"], files: ["staging/records:asks"] },
  { topics: ["corrections"], files: ["staging/records:corrections"] },
];
/** Parameters of the SQL files in STEPS, by file. */
const FILE_PARAMETERS: Readonly<Record<string, Params>> = {
  "samples/paid": { shown_again_ms: REPEATED_PROOF_WINDOW_MS },
  "samples/seen": { kept: MAX_PAY_TOS },
};
/** Topics whose records become segments and rows. Records of the other topics stay in the log. */
export const INGESTED: readonly IngestedTopic[] = STEPS.flatMap(({ topics }) => topics);

/** One live segment of a chain, with its file on this machine. */
export interface Loadable extends SegmentRef {
  topic: string;
  partition: number;
  path: string;
  /** Offset after the segment's last record. Once the segment is loaded, the partition is loaded up to here. */
  next: number;
}

export interface LoadParts {
  lake: Lake;
  privateStore: Store;
  log: Pick<Log, "id">;
  /** Hosts (with port) of our own service, whose endpoints are never graded. */
  ownHosts: ReadonlySet<string>;
}

/**
 * Number of full batches in a full group (segments that are loaded in one transaction). The facts about an endpoint are
 * updated once for each group, so a row costs less in a larger group, and less if the batches of a group are of one
 * partition, where they have the same endpoints.
 * A still larger group would be loaded later, and less of its loading would run while batches are read.
 */
export const GROUP_BATCHES = 3;
/**
 * Number of rows from which on a group of segments is loaded; its last segment may exceed the number. It is half a
 * batch below the rows of a full group, since a batch with rejected records has fewer rows.
 */
const MAX_GROUP_ROWS = (GROUP_BATCHES - 0.5) * BATCH_ROWS;
/** Number of bytes of files from which on a group of segments is loaded, even if it has fewer rows. */
const MAX_GROUP_BYTES = 48 * 1024 * 1024;

/**
 * Loads segments of any partitions and topics into the lake, in groups: a transaction of a hundred rows costs as much
 * as one of ten thousand, and a running service has a small segment of each partition in each pass. A full group is
 * loaded while the caller continues. Two groups are under way at most: the second one is parsed while the first one is
 * written.
 */
export class SegmentLoader {
  #group: Loadable[] = [];
  /** The group that began last, and the one before it. */
  #running: Promise<void> = Promise.resolve();
  #previous: Promise<void> = Promise.resolve();
  /** Number of loaded records that the lake did not have before. */
  newRecords = 0;

  /** @param onLoaded called with segments that are now in the lake */
  constructor(
    private readonly parts: LoadParts,
    private readonly onLoaded: (segments: readonly Loadable[]) => void | Promise<void> = () => {},
  ) {}

  /**
   * Adds a segment. Its file is removed once the load of its group has ended, also in failure, or by {@link discard}.
   * @throws the error with which loading an earlier group failed
   */
  async add(segment: Loadable): Promise<void> {
    this.#group.push(segment);
    const sum = (member: "rows" | "bytes") => this.#group.reduce((total, one) => total + one[member], 0);
    if (sum("rows") >= MAX_GROUP_ROWS || sum("bytes") >= MAX_GROUP_BYTES) await this.#startGroup();
  }

  /** Resolves when all segments that were added are in the lake. */
  async load(): Promise<void> {
    await this.#startGroup();
    await this.#running;
  }

  /**
   * Waits for a running load, then removes the files of segments that were not loaded. The store still has these
   * segments.
   */
  async discard(): Promise<void> {
    await this.#running.catch(() => undefined);
    await removeFiles(this.#group.splice(0));
  }

  /** Waits until at most one group is under way, then begins to load the current one. */
  async #startGroup(): Promise<void> {
    await this.#previous;
    const group = this.#group.splice(0);
    if (group.length === 0) return;
    this.#previous = this.#running;
    this.#running = this.#loadGroup(group, this.#previous);
    // The promise is awaited later. Until then a failure must not count as an unhandled rejection.
    this.#running.catch(() => undefined);
  }

  /** Loads a group once the group before it is loaded. If loading that one fails, this fails with its error. */
  async #loadGroup(group: readonly Loadable[], previous: Promise<void>): Promise<void> {
    try {
      const newRecords = await loadSegments(this.parts, group, previous);
      this.newRecords += newRecords;
      await this.onLoaded(group);
    } finally {
      await removeFiles(group);
    }
  }
}

async function removeFiles(segments: readonly Loadable[]): Promise<void> {
  for (const { path } of segments) await rm(path, { force: true });
}

/**
 * A UTC day of which rows were moved from the lake to the archive, and of which the staged segments have records. Only
 * the ids of the moved rows show which of these records are second copies. `known`: does the lake have those ids?
 */
interface NearDay {
  topic: string;
  part: number;
  type: string;
  day: string;
  known: boolean;
}

/**
 * Loads the new records of segments, the names of the segments' files (table `loaded`), and the positions, in one
 * transaction. Loading a segment again, or one that was joined from loaded segments, adds nothing twice.
 * @param previous resolves when the segments before these are loaded; until then these are only parsed
 * @returns number of records that the lake did not have
 * @throws Failure `busy` when rows of the same days are moved to the archive again and again meanwhile
 */
async function loadSegments(parts: LoadParts, segments: readonly Loadable[], previous: Promise<void>): Promise<number> {
  for (let fetches = 0; ; fetches++) {
    const { newRecords, nearDays } = await tryLoad(parts, segments, previous);
    if (nearDays === null) return newRecords;
    if (fetches === MAX_ID_FETCHES) {
      const days = [...new Set(nearDays.map(({ day }) => day))].join(", ");
      throw new Failure("busy", `rows of these days are moved to the archive while their copies are loaded: ${days}`);
    }
    await fetchArchivedIds(parts, nearDays);
  }
}

/**
 * Largest number of fetches of the ids of archived days for one load. When further rows of such a day are moved to the
 * archive, the day's ids are deleted from the lake. If that happens between fetching them and loading, they are fetched
 * again.
 */
const MAX_ID_FETCHES = 5;

/** Returns those of the segments that the lake has not loaded. */
async function selectNew(statements: Staging, segments: readonly Loadable[]): Promise<Loadable[]> {
  const files = JSON.stringify(segments.map(({ file }) => file));
  const knownRows = await statements.all<{ file: string }>(sql("staging/loaded:known"), { files });
  const loadedFiles = new Set(knownRows.map(({ file }) => file));
  return segments.filter(({ file }) => !loadedFiles.has(file));
}

/** Reads the files of segments into the temporary table `stage` of a connection. */
const parseSegments = (statements: Staging, segments: readonly Loadable[]): Promise<void> =>
  statements.run(sql("staging/stage:parsed"), { paths: JSON.stringify(segments.map(({ path }) => path)) });

/**
 * Loads segments, unless the lake lacks record ids of archived days that are needed to find second copies.
 * @returns `nearDays`: null if the segments were loaded; otherwise the days whose ids are needed, and nothing was
 * loaded
 */
async function tryLoad(
  { lake, ownHosts }: LoadParts,
  segments: readonly Loadable[],
  previous: Promise<void>,
): Promise<{ newRecords: number; nearDays: readonly NearDay[] | null }> {
  let stagedCount = 0;
  const stage = async (connection: Staging): Promise<void> => {
    const stagedSegments = await selectNew(connection, segments);
    if (stagedSegments.length > 0) await parseSegments(connection, stagedSegments);
    stagedCount = stagedSegments.length;
    await previous;
  };
  return lake.transaction(async (tx) => {
    const newSegments = await selectNew(tx, segments);
    let newRecords = 0;
    if (newSegments.length > 0) {
      // Another caller may have loaded some of them since they were parsed.
      if (newSegments.length !== stagedCount) await parseSegments(tx, newSegments);
      const nearDays = await tx.all<NearDay>(sql("archive/copies:days"));
      if (nearDays.some(({ known }) => !known)) return { newRecords, nearDays };
      newRecords = await foldSegments(tx, newSegments, ownHosts);
    }
    await tx.run(sql("staging/loaded:positions"), {
      ends: JSON.stringify(segments.map(({ topic, partition: part, next }) => ({ topic, part, next }))),
    });
    return { newRecords, nearDays: null };
  }, stage);
}

/**
 * Sets the position of a partition that has no segment to load, and deletes from the table `loaded` the files that
 * are no longer live.
 */
export async function advanceLake(
  lake: Lake,
  { topic, partition: part, next }: { topic: string; partition: number; next: number },
  removedFiles: readonly string[],
): Promise<void> {
  await lake.transaction(async (tx) => {
    await tx.run(sql("staging/loaded:gone"), { topic, part, gone: JSON.stringify(removedFiles) });
    await tx.run(sql("staging/loaded:positions"), { ends: JSON.stringify([{ topic, part, next }]) });
  });
}

async function foldSegments(
  tx: Statements,
  segments: readonly Loadable[],
  ownHosts: ReadonlySet<string>,
): Promise<number> {
  const rows = segments.map(({ partition: part, ...one }) => ({ part, ...one }));
  await tx.run(sql("staging/stage:fresh"), { segments: JSON.stringify(rows) });
  for (const { topics, files } of STEPS)
    if (rows.some(({ topic }) => topics.includes(topic as IngestedTopic)))
      for (const file of files) await tx.run(sql(file), FILE_PARAMETERS[file]);
  await tx.run(sql("samples/touched:withdrawn"));
  await addEndpoints(tx, ownHosts);
  await tx.run(sql("samples/touched:site"));
  const [staged] = await tx.all<{ fresh: bigint }>("SELECT count(*) AS fresh FROM stage");
  await tx.run("DROP TABLE stage");
  return Number(staged?.fresh ?? 0n);
}

/**
 * Fetches the record ids of archived days, so that a second copy of an archived record is recognised. The ids are read
 * from the segments that were loaded. That is slow and rare: it is needed for a record that arrives months late, and
 * almost never when a log is loaded in its order. Ids of days that are not among `nearDays` are deleted.
 * @throws DamagedChain, and what lake and store throw
 */
async function fetchArchivedIds({ lake, privateStore, log }: LoadParts, nearDays: readonly NearDay[]): Promise<void> {
  const unknownDays = nearDays.filter(({ known }) => !known);
  for (const { topic, part } of new Map(unknownDays.map((one) => [`${one.topic}/${one.part}`, one])).values()) {
    const isOfPart = (one: { topic: string; part: number }) => one.topic === topic && one.part === part;
    const days = JSON.stringify([...new Set(nearDays.filter(isOfPart).map(({ day }) => day))]);
    const types = JSON.stringify([...new Set(nearDays.filter(isOfPart).map(({ type }) => type))]);
    const { next } = await readLoadedFiles(lake, topic, part);
    await lake.run(sql("archive/copies:forget"), { part, types, days });
    for (const { type, day } of unknownDays.filter(isOfPart)) {
      const daySegments = await openDaySegments(
        { lake, privateStore, logId: log.id },
        { partition: part, day, below: { [topic]: next ?? 0 } },
      );
      try {
        const { files } = daySegments;
        await lake.transaction(async (tx) => {
          if (files !== null) await tx.run(sql("archive/copies:ids"), { files, type, day, part });
          await tx.run("INSERT INTO left_day VALUES ($type, $day::DATE, $part)", { type, day, part });
        });
      } finally {
        await daySegments.close();
      }
    }
  }
}

interface NamedEndpoint {
  topic: string;
  cap: string;
  url: string;
  method: string | null;
  tool: string | null;
}

/**
 * Finds the HTTP method from which the capability id was made. If the listing names no method, the observer chose
 * one.
 */
function methodOf({ cap, url, method, tool }: NamedEndpoint): string {
  const order = method === null ? METHODS : [method, ...METHODS];
  return order.find((name) => capId(name, url, tool ?? "") === cap) ?? method ?? "GET";
}

/**
 * Adds rows of the table `endpoint` for the new capabilities (endpoints) of the staged records. It also adds these
 * capabilities to the temporary table `touched`, from which their rows of `site` are made.
 */
async function addEndpoints(tx: Statements, ownHosts: ReadonlySet<string>): Promise<void> {
  const namedEndpoints = await tx.all<NamedEndpoint>(sql("staging/endpoints:named"));
  // A url template is probed at a concrete url, so the url of a probe is the capability's only if the id was made from
  // it.
  const hasOwnUrl = ({ topic, cap, url, method }: NamedEndpoint): boolean =>
    topic !== "observations.free" || (method !== null && capId(method, url, "") === cap);
  const firstByCap = new Map<string, NamedEndpoint>();
  for (const endpoint of namedEndpoints)
    if (!firstByCap.has(endpoint.cap) && hasOwnUrl(endpoint)) firstByCap.set(endpoint.cap, endpoint);
  if (firstByCap.size === 0) return;
  const rows = [...firstByCap.values()].map((endpoint) => {
    const { url } = endpoint;
    // A listing may name a text that is no url.
    const host = parseUrl(url)?.host ?? null;
    const names = host === null ? null : { domain: registrableDomain(url), platform: platformOf(url) };
    return { ...endpoint, method: methodOf(endpoint), host, ...names, ours: host !== null && ownHosts.has(host) };
  });
  await tx.run(sql("staging/endpoints:added"), { endpoints: JSON.stringify(rows) });
}

/**
 * Deletes from the lake, in one transaction, the rows of all partitions but the held ones. The new owner of a partition
 * loads its rows from the chain.
 * @param partitions number of partitions of the log
 */
export async function evictPartitions(lake: Lake, held: readonly number[], partitions: number): Promise<void> {
  const knownPartitions = await lake.all<{ part: number }>(
    "SELECT DISTINCT part FROM positions UNION SELECT part FROM loaded",
  );
  const evicted = knownPartitions.map(({ part }) => part).filter((part) => !held.includes(part));
  if (evicted.length === 0) return;
  // A bucket's number has 6 bits, the first of which are the number of its partition.
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

/** Selects the positions of one partition: {topic: next offset}. */
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

/** Reads the names of a partition's loaded files, and the partition's position (null if none was ever set). */
export async function readLoadedFiles(
  lake: Lake,
  topic: string,
  partition: number,
): Promise<{ files: Set<string>; next: number | null }> {
  const statement = sql("staging/loaded:has");
  const rows = await lake.all<{ file: string | null; next: bigint | null }>(statement, { topic, part: partition });
  const next = rows[0]?.next ?? null;
  const files = rows.flatMap(({ file }) => (file === null ? [] : [file]));
  return { files: new Set(files), next: next === null ? null : Number(next) };
}
