import type { DuckDBBlobVector, DuckDBDataChunk, DuckDBVector } from "@duckdb/node-api";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Positions } from "../2-ingest/load.ts";
import { ArchiveUnproven } from "./errors.ts";
import { xorOf } from "./id-digest.ts";
import { LineDay } from "./line-day.ts";
import { LineTemplates, NOBODY, PAYEE } from "./line-templates.ts";
import { LineFiles, type PlacedFile, ROWS_A_FILE } from "./pack-lines.ts";
import { ProbeLines } from "./probe-lines.ts";
import { ProbeRecords, RecordRoom } from "./probe-records.ts";
import { type Place, PROBES, type ProbeSubject } from "./subjects.ts";
import { removeFiles } from "./work-files.ts";

/** Rows of one subject and day, filed. */
export interface ProbeFiles {
  files: PlacedFile[];
  rows: number;
  /** Of their ids, knowing no order: by it lakes compare what they have of a day. Null where none was asked for. */
  digest: string | null;
  /** A checksum of the same. */
  look: string;
}

/**
 * Rows of one subject and UTC day below the frozen positions as packed files, in the order of (capability, record); none
 * when there is no row. One transaction: lines, counts and digests are of one moment.
 * @param rowsAFile see {@link LineFiles}
 * @param isDigested see {@link ProbeFiles}: it takes more CPU than all else that is counted
 * @throws ArchiveUnproven when the lines are not those of the rows
 */
export function packedProbes(
  lake: Lake,
  subject: ProbeSubject,
  day: string,
  ends: Positions,
  rowsAFile?: number,
  isDigested = true,
): Promise<ProbeFiles> {
  return lake.transaction(async (tx) => {
    await nameSource(tx, subject, day, ends);
    const made = await writeFiles(tx, lake, { subject, day }, rowsAFile, isDigested);
    try {
      await holdRows(tx, ends, made);
      return made;
    } catch (error) {
      await removeFiles(made.files);
      throw error;
    }
  });
}

/** Endpoints that are read at once, and what their lines have to be. */
interface Stretch {
  first: string;
  last: string;
  rows: number;
  digest: string | null;
  look: string;
}

/**
 * Rows and bytes of body that are read at once. Each reading goes over all bodies of the day, but the engine cannot put
 * aside what it gathers, an endpoint's records and then a bundle's: a sixth of the memory that it may have is room enough
 * where every body is one of its own kind.
 */
const ROWS_AT_ONCE = 1_048_576;
const BYTES_AT_ONCE = 512 * 1024 * 1024;
const SHARE_OF_MEMORY = 6;
/** Characters of a capability that its bundle goes by: its kind and two of 32, a thousand bundles a day. */
const BUNDLED_BY = 6;
/** What is read of a record whose body was cut, in bytes. */
const CUT_BYTES = 192;

/** Files over what `archive_source` names. */
export async function writeFiles(
  tx: Statements,
  lake: Pick<Lake, "workDir">,
  { subject, day }: { subject: ProbeSubject; day: string },
  rowsAFile = ROWS_A_FILE,
  isDigested = false,
): Promise<ProbeFiles> {
  const isTool = subject === "mcp_probes";
  await tx.run("SET VARIABLE archive_tool = $isTool", { isTool });
  await tx.run(sql("64_archive_shapes"));
  await tx.run("SET VARIABLE archive_cut = $cut", { cut: CUT_BYTES });
  await tx.run("SET VARIABLE archive_bundled = $bundled", { bundled: BUNDLED_BY });
  await tx.run("SET VARIABLE archive_digested = $isDigested", { isDigested });
  await tx.run("SET VARIABLE archive_varying = $varying", { varying: PAYEE.source });
  await tx.run("SET VARIABLE archive_blank = $blank", { blank: NOBODY });
  await tx.run(sql("64_archive_alike"));
  const bytes = Math.min(BYTES_AT_ONCE, Math.floor((await memoryOf(tx)) / SHARE_OF_MEMORY));
  const most = Math.min(ROWS_AT_ONCE, rowsAFile);
  const stretches = await tx.all<Stretch>(sql("64_archive_ranges"), { rows: most, bytes });
  const rows = stretches.reduce((sum, stretch) => sum + stretch.rows, 0);
  const into = new LineFiles(lake, rows, rowsAFile);
  const room = new RecordRoom();
  try {
    for await (const [stretch, { texts, bundles }] of readingsOf(tx, stretches)) {
      const lines = new ProbeLines(new LineTemplates(isTool, new LineDay(day), texts));
      const seen = { count: 0, lookHigh: 0, lookLow: 0 };
      for await (const { bytes, count, lookHigh, lookLow } of bundles) {
        seen.count += count;
        seen.lookHigh ^= lookHigh;
        seen.lookLow ^= lookLow;
        await addLines(into, new ProbeRecords(bytes, count, room), lines);
      }
      sameRows(subject, stretch, seen);
    }
    const files = await into.end();
    const digest = isDigested ? xorOf(stretches.map((stretch) => stretch.digest!)) : null;
    return { files, rows, digest, look: xorOf(stretches.map(({ look }) => look)) };
  } catch (error) {
    await into.drop();
    throw error;
  }
}

/** Bytes that the engine may hold, as it prints them: "488.2 MiB". */
async function memoryOf(tx: Statements): Promise<number> {
  const [row] = await tx.all<{ limit: string }>(`SELECT current_setting('memory_limit') AS "limit"`);
  const [amount = "", unit = ""] = row!.limit.split(" ");
  return Number(amount) * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB"].indexOf(unit);
}

/** What rows come to. */
interface Counted {
  count: number;
  /** Checksum of their ids, upper and lower 32 bits. */
  lookHigh: number;
  lookLow: number;
}

/** Records of some endpoints. */
interface Bundle extends Counted {
  /** A copy: what the engine handed out is gone when it is asked for more. */
  bytes: Uint8Array;
}

/** What is read at once. */
interface Reading {
  /** Texts of cut bodies, by the number of their form. */
  texts: Map<number, string>;
  bundles: Iterable<Bundle> | AsyncIterable<Bundle>;
}

/** The next stretch is being read while this one is used. The last one is copied as it is used: most days have no other. */
async function* readingsOf(tx: Statements, stretches: readonly Stretch[]): AsyncGenerator<[Stretch, Reading]> {
  const read = async (n: number): Promise<Reading> => {
    const stretch = stretches[n];
    const texts = new Map<number, string>();
    if (!stretch) return { texts, bundles: [] };
    const { first, last } = stretch;
    await tx.run(sql("65_archive_forms"), { first, last });
    for await (const batch of tx.batches(sql("65_archive_texts"))) readTexts(batch, texts);
    const bundles = bundlesIn(tx.batches(sql("65_archive_bundles"), { first, last }));
    return { texts, bundles: n === stretches.length - 1 ? bundles : await gathered(bundles) };
  };
  let coming = read(0);
  try {
    for (const [n, stretch] of stretches.entries()) {
      const reading = await coming;
      coming = read(n + 1);
      // Awaited above or below; until then its failure is not an unhandled one.
      coming.catch(() => undefined);
      yield [stretch, reading];
    }
  } finally {
    // Nothing else may run on these statements before.
    await coming.catch(() => undefined);
  }
}

async function gathered<T>(all: AsyncIterable<T>): Promise<T[]> {
  const some: T[] = [];
  for await (const one of all) some.push(one);
  return some;
}

const columnOf = <T extends string | number>(batch: DuckDBDataChunk, index: number) =>
  batch.getColumnVector(index) as DuckDBVector<T>;

function readTexts(batch: DuckDBDataChunk, into: Map<number, string>): void {
  const [forms, texts] = [columnOf<number>(batch, 0), columnOf<string>(batch, 1)];
  for (let row = 0; row < batch.rowCount; row++) into.set(forms.getItem(row)!, texts.getItem(row)!);
}

async function* bundlesIn(batches: AsyncIterable<DuckDBDataChunk>): AsyncGenerator<Bundle> {
  for await (const batch of batches) {
    const [counts, highs, lows] = [columnOf<number>(batch, 0), columnOf<number>(batch, 1), columnOf<number>(batch, 2)];
    const bundles = batch.getColumnVector(3) as DuckDBBlobVector;
    for (let row = 0; row < batch.rowCount; row++) {
      const [count, lookHigh, lookLow] = [counts.getItem(row)!, highs.getItem(row)!, lows.getItem(row)!];
      yield { count, lookHigh, lookLow, bytes: bundles.getItemBytes(row)! };
    }
  }
}

/** @throws ArchiveUnproven when they are not those that were counted */
function sameRows(subject: ProbeSubject, { rows, look }: Stretch, { count, lookHigh, lookLow }: Counted): void {
  const looks = (BigInt(lookHigh >>> 0) << 32n) | BigInt(lookLow >>> 0);
  const [want, got] = [`${rows} rows of ids ${look}`, `${count} rows of ids ${looks}`];
  if (want !== got) throw new ArchiveUnproven(`rows of ${subject}`, want, got);
}

/**
 * Lines of a bundle's endpoints, in their order.
 * @throws ArchiveUnproven when one is missing, there twice or of another day
 */
async function addLines(into: LineFiles, records: ProbeRecords, lines: ProbeLines): Promise<void> {
  for (const own of records.endpoints()) {
    into.begin(own[0]!.cap);
    // A million rows: neither an iterator's answer nor a function is made for each.
    const count = records.inOrder(own);
    for (let i = 0; i < count; i++) {
      lines.write(records, records.order[i]!, into.piece);
      into.wrote();
      if (into.isDue) await into.flush();
    }
  }
}

/** Before and behind all places: the only file of a day has every row, and no place is compared. */
const EVERYWHERE = { first: { cap: "", id: "" }, last: { cap: "~", id: "" } };

/** Where the rows of each file stand, for the moment when they leave. @throws ArchiveUnproven */
async function holdRows(tx: Statements, ends: Positions, made: ProbeFiles): Promise<void> {
  const { files } = made;
  for (const file of files) {
    const { rows } = file;
    const isOnly = files.length === 1;
    const { first, last } = isOnly ? EVERYWHERE : file;
    const there = isOnly ? made : await lookAt(tx, first, last);
    if (there.rows !== rows) throw new ArchiveUnproven("rows of a file", `${rows}`, `${there.rows}`);
    file.held = { ends, first, last, rows, look: there.look };
  }
}

async function lookAt(tx: Statements, first: Place, last: Place): Promise<{ rows: number; look: string }> {
  const [row] = await tx.all<{ rows: number; look: string }>(sql("66_archive_look"), between({ first, last }));
  return row!;
}

/** As statements name them. */
export const between = ({ first, last }: { first: Place; last: Place }) => ({
  ...{ first_cap: first.cap, first_id: first.id },
  ...{ last_cap: last.cap, last_id: last.id },
});

/** What `archive_source` reads: rows of one subject and UTC day below these positions. */
export async function nameSource(tx: Statements, subject: ProbeSubject, day: string, ends: Positions): Promise<void> {
  const { type, topic } = PROBES[subject];
  const list = Object.entries(ends[topic] ?? {}).map(([part, next]) => ({ part: Number(part), next }));
  await tx.run("SET VARIABLE archive_type = $type", { type });
  await tx.run("SET VARIABLE archive_day = $day", { day });
  await tx.run("SET VARIABLE archive_ends = $ends", { ends: JSON.stringify(list) });
  await tx.run(sql("63_archive_source"));
}
