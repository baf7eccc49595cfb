import type { DuckDBBlobVector, DuckDBDataChunk, DuckDBVector } from "@duckdb/node-api";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Positions } from "../2-ingest/load.ts";
import { ArchiveUnproven } from "./errors.ts";
import { xorOf } from "./id-digest.ts";
import { LineDay } from "./line-day.ts";
import { LineTemplates, NOBODY, PAYEE } from "./line-templates.ts";
import { LineFiles, type PlacedFile, ROWS_A_FILE } from "./pack-lines.ts";
import { type Group, ProbeRecords, RecordRoom } from "./probe-records.ts";
import { ProbeShape } from "./probe-shape.ts";
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
 * aside what it gathers: a quarter of the memory that it may have is room enough where every body is one of its own kind.
 */
const ROWS_AT_ONCE = 1_048_576;
const BYTES_AT_ONCE = 512 * 1024 * 1024;
const SHARE_OF_MEMORY = 4;
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
  await tx.run("SET VARIABLE archive_digested = $isDigested", { isDigested });
  await tx.run("SET VARIABLE archive_varying = $varying", { varying: PAYEE.source });
  await tx.run("SET VARIABLE archive_blank = $blank", { blank: NOBODY });
  await tx.run(sql("64_archive_alike"));
  const bytes = Math.min(BYTES_AT_ONCE, Math.floor((await memoryOf(tx)) / SHARE_OF_MEMORY));
  const most = Math.min(ROWS_AT_ONCE, rowsAFile);
  const stretches = await tx.all<Stretch>(sql("64_archive_ranges"), { rows: most, bytes });
  const rows = stretches.reduce((sum, stretch) => sum + stretch.rows, 0);
  const into = new LineFiles(lake, rows, rowsAFile);
  const how = { templates: new LineTemplates(isTool, new LineDay(day)), room: new RecordRoom() };
  try {
    for await (const [stretch, groups] of groupsOf(tx, stretches)) {
      sameRows(subject, stretch, groups);
      for (const own of byCap(groups)) await addLines(into, own, how);
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

/** What cut bodies share: by the number of a form its text, by that of a shape its form and hash. */
interface Texts {
  forms: Map<number, string>;
  shapes: Map<number, Pick<Group, "sha"> & { form: number }>;
}

/** The next stretch is being read while this one is used. */
async function* groupsOf(tx: Statements, stretches: readonly Stretch[]): AsyncGenerator<[Stretch, Group[]]> {
  const read = async (n: number): Promise<Group[]> => {
    const groups: Group[] = [];
    const { first, last } = stretches[n] ?? {};
    if (first === undefined || last === undefined) return groups;
    const texts: Texts = { forms: new Map(), shapes: new Map() };
    for await (const batch of tx.batches(sql("65_archive_texts"), { first, last })) readTexts(batch, texts);
    for await (const batch of tx.batches(sql("65_archive_groups"), { first, last }))
      groups.push(...groupsIn(batch, texts));
    return groups;
  };
  let coming = read(0);
  try {
    for (const [n, stretch] of stretches.entries()) {
      const groups = await coming;
      coming = read(n + 1);
      // Awaited above or below; until then its failure is not an unhandled one.
      coming.catch(() => undefined);
      yield [stretch, groups];
    }
  } finally {
    // Nothing else may run on these statements before.
    await coming.catch(() => undefined);
  }
}

const columnOf = <T extends string | number>(batch: DuckDBDataChunk, index: number) =>
  batch.getColumnVector(index) as DuckDBVector<T>;

function readTexts(batch: DuckDBDataChunk, { forms, shapes }: Texts): void {
  const [ids, formIds] = [columnOf<number>(batch, 0), columnOf<number>(batch, 1)];
  const [texts, shas] = [columnOf<string>(batch, 2), columnOf<string>(batch, 3)];
  for (let row = 0; row < batch.rowCount; row++) {
    const [form, text] = [formIds.getItem(row)!, texts.getItem(row)];
    if (text !== null) forms.set(form, text);
    shapes.set(ids.getItem(row)!, { form, sha: shas.getItem(row) });
  }
}

/** @throws ArchiveUnproven when the text of a shape is not there */
function* groupsIn(batch: DuckDBDataChunk, { forms, shapes }: Texts): Generator<Group> {
  const [caps, owns, ids] = [columnOf<string>(batch, 0), columnOf<string>(batch, 1), columnOf<number>(batch, 2)];
  const [counts, highs, lows] = [columnOf<number>(batch, 3), columnOf<number>(batch, 4), columnOf<number>(batch, 5)];
  const records = batch.getColumnVector(6) as DuckDBBlobVector;
  for (let row = 0; row < batch.rowCount; row++) {
    const [cap, id, own] = [caps.getItem(row)!, ids.getItem(row), owns.getItem(row)];
    const { form, sha } = (own === null && shapes.get(id!)) || { form: null, sha: null };
    const shape = form === null ? own : forms.get(form);
    if (shape == null) throw new ArchiveUnproven(`lines of ${cap}`, `shape ${id}`, "no such shape");
    const [count, lookHigh, lookLow] = [counts.getItem(row)!, highs.getItem(row)!, lows.getItem(row)!];
    yield { cap, form, shape, sha, count, lookHigh, lookLow, records: records.getItemBytes(row)! };
  }
}

/** @throws ArchiveUnproven when they are not those that were counted */
function sameRows(subject: ProbeSubject, { rows, look }: Stretch, groups: readonly Group[]): void {
  let [count, high, low] = [0, 0, 0];
  for (const group of groups) {
    count += group.count;
    high ^= group.lookHigh;
    low ^= group.lookLow;
  }
  const looks = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
  const [want, got] = [`${rows} rows of ids ${look}`, `${count} rows of ids ${looks}`];
  if (want !== got) throw new ArchiveUnproven(`rows of ${subject}`, want, got);
}

/** Groups of one endpoint after those of another. */
function* byCap(groups: readonly Group[]): Generator<Group[]> {
  let own: Group[] = [];
  for (const group of groups) {
    if (own.length > 0 && own[0]!.cap !== group.cap) {
      yield own;
      own = [];
    }
    own.push(group);
  }
  if (own.length > 0) yield own;
}

/**
 * Lines of one endpoint, in their order.
 * @throws ArchiveUnproven when one is missing, there twice or of another day
 */
async function addLines(
  into: LineFiles,
  own: readonly Group[],
  { templates, room }: { templates: LineTemplates; room: RecordRoom },
): Promise<void> {
  const { cap } = own[0]!;
  const shapes = own.map((group) => new ProbeShape(group, templates));
  const records = new ProbeRecords(own, room);
  into.begin(cap);
  // A million rows: neither an iterator's answer nor a function is made for each.
  for (let i = 0, order = records.inOrder(); i < order.length; i++) {
    const n = order[i]!;
    shapes[records.group[n]!]!.write(records, n, into.piece);
    into.wrote();
    if (into.isDue) await into.flush();
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
