import { rm } from "node:fs/promises";
import { type Clock, systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { keysDocument } from "../infra/keys/keys.ts";
import type { Lake } from "../infra/lake/duckdb.ts";
import { fixedPartitions } from "../infra/log/ownership.ts";
import type { Store } from "../infra/store/store.ts";
import { createPublisher, type Publisher } from "../pipelines/4-publish/publisher.ts";
import { emptyFile, type FilingParts, fileOne } from "../pipelines/5-archive/filing.ts";
import { followArchive } from "../pipelines/5-archive/follow.ts";
import { type ArchivePlace, archivePlace } from "../pipelines/5-archive/place.ts";
import { gradeFiles, probeFiles, spansOf } from "../pipelines/5-archive/probe-files.ts";
import {
  CannotSupersede,
  isProbes,
  type MadeFile,
  PROBES,
  type ProbeSubject,
  readNamed,
  removeFiles,
} from "../pipelines/5-archive/read-back.ts";
import type { ArchiveFold } from "../pipelines/published/fold.ts";
import { RecordReader, readCheckpoint } from "../pipelines/published/reader.ts";
import { type ArchiveManifest, dayOfManifest } from "../pipelines/record/archive.ts";
import { archiveId } from "../pipelines/record/ids.ts";
import type { ArchiveLeaf } from "../pipelines/record/leaf.ts";
import { openIngest, originOf } from "../pipelines/roles/assemble.ts";
import { type ArchiveReport, archiveDays, printerOf } from "../pipelines/roles/days.ts";
import { Owner } from "../pipelines/roles/owner.ts";
import { makeKeys, openParts, type Parts } from "../pipelines/roles/parts.ts";
import { Publishing } from "../pipelines/roles/publishing.ts";
import { withOpen } from "./files.ts";
import { type RoleOptions, repeat, report } from "./roles.ts";

/** Between two looks; a day comes of age once a day, and what comes late may wait as long. */
const EVERY_S = 3_600;

/** The archive of one machine, and nothing else of it. */
interface OpenArchive {
  parts: SupersedeParts;
  /** Files what is due. */
  archive(now: Date): Promise<ArchiveReport>;
  close(): Promise<void>;
}

/**
 * Log, lake and publisher for the archive alone: no money, no market. The lake has everything that the log holds.
 * @throws LakeBusy while a service owns the lake, and what ingest and publisher throw
 */
async function openArchive(parts: Parts, clock: Clock): Promise<OpenArchive> {
  const { config, log, privateStore, publicStore, keys, logger, metrics } = parts;
  const { lake, ingest } = await openIngest(parts, clock);
  try {
    await ingest.pass();
    const origin = originOf(config.base_url);
    const { partitions } = log;
    const stores = { privateStore, publicStore };
    const publisher = createPublisher({ ...stores, signers: keys, clock, origin, partitions, logger, metrics });
    await publisher.start();
    await publisher.publishKeys(keysDocument(keys.ring));
    const place = { ...archivePlace(publicStore, keys, origin, config.base_url), now: () => clock.now() };
    const ownership = fixedPartitions(Array.from({ length: partitions }, (_, partition) => partition));
    const common = { ...stores, log, clock, logger, metrics };
    const owner = new Owner({ ...common, lake, ingest, ownership, followed: publisher });
    const publishing = new Publishing({ ...common, publisher });
    const filing = { ...place, scratch: printerOf(lake) };
    return {
      parts: { ...place, lake, privateStore, publisher, logId: log.id },
      archive: (now) => archiveDays({ owner, publishing, filing }, now),
      close: () => lake.close(),
    };
  } catch (error) {
    await lake.close();
    throw error;
  }
}

/** Open everything for one command and close it again, whatever happens. The lake has one owner at a time. */
async function withArchive(config: Config, work: (opened: OpenArchive) => Promise<void>): Promise<void> {
  makeKeys(config.data_dir, systemClock.now());
  return withOpen(openParts(config, systemClock), async (parts) => {
    return withOpen(openArchive(parts, systemClock), async (opened) => {
      await work(opened);
    });
  });
}

const listAt = (config: Config): string => `${config.base_url.replace(/\/+$/, "")}/v1/archive`;

/** `touchstone archive`: days older than 110 days into signed files, and out of the lake. */
export const archive = (config: Config, options: RoleOptions): Promise<void> =>
  withArchive(config, (opened) =>
    repeat(options, EVERY_S, async () => {
      report(options, { ...(await opened.archive(systemClock.now())) }, listAt(config));
    }),
  );

/** `touchstone archive supersede`: a wrong file is replaced by one that is made again from the record. */
export const archiveSupersede = (
  config: Config,
  id: string,
  options: { reason: string; json?: boolean },
): Promise<void> =>
  withArchive(config, async ({ parts }) => {
    const { id: by, rows, content_hash, file } = await supersede(parts, id, options.reason);
    const next = `${listAt(config)}/${by}`;
    report(options, { superseded: id, by, rows, content_hash, file, reason: options.reason }, next);
  });

export interface SupersedeParts extends ArchivePlace, Pick<FilingParts, "now" | "onStep"> {
  /** Of every partition, with everything that the log holds. */
  lake: Lake;
  privateStore: Store;
  publisher: Publisher;
  /** Id of the event log. */
  logId: string;
}

/** A file that is made again is one file, however many rows it has. */
const ALL_ROWS = 1_000_000_000;

/**
 * Replace a wrong file, by an operator's word: its rows are made again from where they came (the commit chain's segments,
 * which keep every record; the log, for grades), and the new file's leaf says which one it replaces and why. The wrong one
 * stays in the store and in the log. Rows that only the wrong file had are in no standing file any more.
 * @throws CannotSupersede for an unknown id, one that was replaced already, a missing reason, or when the same bytes come
 * out; ArchiveUnproven, PublicConflict and what lake, stores and publisher throw
 */
export async function supersede(parts: SupersedeParts, id: string, reason: string): Promise<ArchiveManifest> {
  if (reason.trim() === "" || reason.length > 2_000)
    throw new CannotSupersede("the reason needs 1 to 2,000 characters");
  const { archive: fold } = await parts.publisher.current();
  const wrong = fold.files.get(id);
  if (!wrong) throw new CannotSupersede(`${id} is not in the archive`);
  const by = fold.superseded.get(id);
  if (by) throw new CannotSupersede(`${id} was replaced by ${by} already`);
  const { subject } = wrong.manifest;
  const day = dayOfManifest(wrong.manifest);
  const known = fold.filed(subject, day).length;
  const made = await madeAgain(parts, fold, wrong);
  const { contentHash } = made;
  if (fold.files.has(archiveId(subject, day, contentHash))) {
    await removeFiles([made]);
    throw new CannotSupersede(`nothing is wrong with ${id}: the same bytes come out (${contentHash})`);
  }
  const what = { subject, day, supersedes: id, reason, positions: wrong.positions };
  try {
    const draft = await fileOne(parts, made, what);
    const { manifest } = draft;
    const { leaves, refused } = await parts.publisher.publishFilings([{ subject, day, known, drafts: [draft] }]);
    if (refused[0]) throw refused[0];
    if (leaves === 0) throw new CannotSupersede(`somebody else filed ${subject} of ${day} meanwhile: look again`);
    await followArchive(parts.lake, (await parts.publisher.current()).archive);
    return manifest;
  } finally {
    await removeFiles([made]);
  }
}

async function madeAgain(parts: SupersedeParts, fold: ArchiveFold, wrong: ArchiveLeaf): Promise<MadeFile> {
  const { subject } = wrong.manifest;
  const day = dayOfManifest(wrong.manifest);
  const others = fold.standing(subject, day).filter(({ manifest }) => manifest.id !== wrong.manifest.id);
  const { lake, publicStore, trust } = parts;
  let made: MadeFile[];
  if (isProbes(subject)) made = await probesAgain(parts, subject, day, wrong, others);
  else {
    const end = wrong.positions.tree?.["0"] ?? 0;
    const below = others.map(({ positions }) => positions.tree?.["0"] ?? 0).filter((size) => size < end);
    const span = { first: Math.max(0, ...below), end };
    const reader = await RecordReader.open(publicStore, (await readCheckpoint(publicStore, trust))!);
    made = await gradeFiles(reader, lake, fold, { subject, day, span }, ALL_ROWS);
  }
  return made[0] ?? emptyFile(lake);
}

/** The rows from the segments, below the positions that the wrong file was made at, but for those of other standing files. */
async function probesAgain(
  { lake, publicStore, privateStore, logId }: SupersedeParts,
  subject: ProbeSubject,
  day: string,
  wrong: ArchiveLeaf,
  others: readonly ArchiveLeaf[],
): Promise<MadeFile[]> {
  const parts = await Promise.all(
    Object.entries(wrong.positions[PROBES[subject].topic] ?? {}).map(async ([name, next]) => {
      const part = Number(name);
      return { part, first: 0, next, spans: await spansOf(lake, subject, day, part) };
    }),
  );
  const texts: string[] = [];
  try {
    for (const other of others) texts.push(await readNamed(publicStore, lake, other));
    const from = { printer: lake, privateStore, logId };
    return (await probeFiles(from, { subject, day, parts }, { rowsAFile: ALL_ROWS, others: texts })).files;
  } finally {
    for (const text of texts) await rm(text, { force: true });
  }
}
