import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { DuckDBBlobVector, DuckDBVector } from "@duckdb/node-api";
import { canonicalText } from "../../infra/canonical.ts";
import { createYielder } from "../../infra/concurrency.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import { ZstdPacking } from "../../infra/zstd.ts";
import { openSegments } from "../2-ingest/day-segments.ts";
import type { ArchiveFold, LeafSpan } from "../published/fold.ts";
import type { RecordReader } from "../published/reader.ts";
import type { BodyOf } from "../record/bodies.ts";
import { rfc3339 } from "../record/time.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { type MadeFile, madeFile, PROBES, type ProbeSubject, removeFiles } from "./read-back.ts";

/** The engine that prints lines, with a work folder of its own. None of its tables are used. */
export type Printer = Pick<Lake, "batches" | "workDir">;

/** The rows of one partition from offset `first` to before `next`. */
export interface PartRows {
  part: number;
  first: number;
  next: number;
  /** First and last offsets of the segments that have records of the day; neighbouring segments are one span. */
  spans: readonly (readonly [first: number, last: number])[];
}

export interface ProbeFiles {
  files: MadeFile[];
  /** Lines of each partition. */
  rows: Map<number, number>;
}

/** Rows of one file; a day with more gets several. Bounds the packed bytes in memory. */
const ROWS_A_FILE = 1_000_000;
/** First byte of rows that the engine does not print as lines, and that are printed here. */
const ODD = 0x1e;

/**
 * Makes packed files of the rows of one subject and UTC day, read from the segments, in the order of (capability,
 * record); none when there is no row.
 * @param others paths of NDJSON files; rows in them are left out
 * @throws DamagedChain, and what store and engine throw
 */
export async function probeFiles(
  from: { printer: Printer; privateStore: Store; logId: string },
  { subject, day, parts }: { subject: ProbeSubject; day: string; parts: readonly PartRows[] },
  { rowsAFile = ROWS_A_FILE, others = [] }: { rowsAFile?: number; others?: readonly string[] } = {},
): Promise<ProbeFiles> {
  const { printer, privateStore, logId } = from;
  const { topic, type } = PROBES[subject];
  const segments = await openSegments(
    { workDir: printer.workDir, privateStore, logId },
    parts.map(({ part: partition, next, spans }) => ({
      ...{ topic, partition },
      wants: (ref) => ref.first < next && spans.some(([first, last]) => ref.first <= last && ref.last >= first),
    })),
  );
  const into = new LineFiles(printer, type === "mcp.probe", rowsAFile);
  try {
    if (segments.files === null) return { files: [], rows: new Map() };
    // The engine does not read an empty list of files.
    const none = join(segments.folder, "none.ndjson");
    await writeFile(none, "");
    const bounds = JSON.stringify(parts.map(({ part, first, next }) => ({ part, first, next })));
    const params = { files: segments.files, others: JSON.stringify([none, ...others]), type, day, bounds };
    for await (const batch of printer.batches(sql("archive/lines"), params)) {
      const of = batch.getColumnVector(0) as DuckDBVector<number>;
      const lines = batch.getColumnVector(1) as DuckDBBlobVector;
      for (let row = 0; row < batch.rowCount; row++) {
        if (into.add(of.getItem(row)!, lines.getItemBytes(row)!)) await into.close();
      }
      await into.flush();
    }
    await into.close();
    return into;
  } catch (error) {
    await removeFiles(into.files);
    throw error;
  } finally {
    await segments.close();
  }
}

/**
 * Spans of offsets with the records of a day. Neighbours are one span, so that segments that are merged later are found
 * too.
 */
export async function spansOf(
  lake: Pick<Lake, "all">,
  subject: ProbeSubject,
  day: string,
  part: number,
): Promise<[number, number][]> {
  const spans: [number, number][] = [];
  const { topic } = PROBES[subject];
  for (const { first, last } of await lake.all<{ first: number; last: number }>(sql("staging/loaded:day"), {
    topic,
    part,
    day,
  })) {
    const before = spans.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else spans.push([first, last]);
  }
  return spans;
}

/** Packs and hashes lines as they come. No unpacked text is written to a disk. */
class LineFiles {
  readonly rows = new Map<number, number>();
  readonly files: MadeFile[] = [];
  #packing = new ZstdPacking(true);
  #lines: Uint8Array[] = [];
  #count = 0;

  constructor(
    private readonly at: Pick<Lake, "workDir">,
    private readonly isTool: boolean,
    private readonly rowsAFile: number,
  ) {}

  /**
   * Adds a line, which must stay valid in the engine's memory until {@link flush}.
   * @returns true when the file is full: call `close`
   */
  add(part: number, told: Uint8Array): boolean {
    this.#lines.push(told[0] === ODD ? this.#print(told) : told);
    this.rows.set(part, (this.rows.get(part) ?? 0) + 1);
    return ++this.#count === this.rowsAFile;
  }

  async flush(): Promise<void> {
    await this.#packing.add(Buffer.concat(this.#lines.splice(0)));
  }

  /** Ends the file, if it has a line. */
  async close(): Promise<void> {
    await this.flush();
    if (this.#count > 0) this.files.push(await madeFile(this.at, this.#packing, this.#count));
    [this.#packing, this.#count] = [new ZstdPacking(true), 0];
  }

  #print(told: Uint8Array): Buffer {
    const row = JSON.parse(Buffer.from(told.buffer, told.byteOffset + 1, told.length - 1).toString("utf8")) as ProbeRow;
    return Buffer.from(`${probeLine(row, this.isTool)}\n`);
  }
}

/** One probe, in the form of the lake. */
interface ProbeRow {
  event_id: string;
  cap: string;
  /** Unix ms. */
  t: number;
  /** JSON. */
  body: string;
}

/** The archive's line of a probe (records.md, Archive rows) in RFC 8785, without its newline. */
function probeLine({ event_id, cap, t, body }: ProbeRow, isTool: boolean): string {
  const { state, status, latency_ms, price, terms, ...seen } = JSON.parse(body) as BodyOf<"mcp.probe">;
  const offers = terms?.offers ?? [];
  const fault = seen.fault ?? (seen.wall ? "blocked" : null);
  const networks = [...new Set(offers.map((offer) => offer.network))];
  return canonicalText({
    amount: price ?? null,
    asset: offers.find((offer) => offer.payable)?.asset ?? offers[0]?.asset ?? null,
    capability_id: cap,
    counts: fault === null || fault === "blocked",
    fault,
    initialize_ms: isTool ? (seen.initialize_ms ?? null) : undefined,
    latency_ms: latency_ms ?? null,
    networks: networks.length > 1 ? networks.sort(bytewise) : networks,
    observed_at: rfc3339(new Date(t)),
    protocols: terms?.protocols ?? [],
    record_id: event_id,
    state: state ?? null,
    status: status ?? null,
    terms_sha256: terms?.sha256 ?? null,
    tool: isTool ? (seen.tool ?? null) : undefined,
    tool_present: isTool ? (seen.tool_present ?? null) : undefined,
  });
}

const bytewise = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));

const LF = Buffer.from("\n");
/** Leaves after which other work has its turn: a few milliseconds. */
const LEAVES_A_TURN = 64;
/** Most leaves of one file; a leaf has some two kilobytes. */
const LEAVES_A_FILE = 100_000;

/**
 * Makes files of the grade leaves of one UTC day (the leaf's `day`): the bytes of the log, one leaf a line, in its
 * order. Grades of MCP tools are a subject of their own.
 * @param span leaves that are read
 */
export async function gradeFiles(
  reader: RecordReader,
  lake: Pick<Lake, "workDir">,
  fold: Pick<ArchiveFold, "subjectOf">,
  { subject, day, span }: { subject: ArchiveSubject; day: string; span: LeafSpan },
  leavesAFile = LEAVES_A_FILE,
): Promise<MadeFile[]> {
  const files: MadeFile[] = [];
  let rows = 0;
  let packing: ZstdPacking | null = null;
  const close = async () => {
    if (!packing) return;
    files.push(await madeFile(lake, packing, rows));
    [rows, packing] = [0, null];
  };
  const giveTurn = createYielder(LEAVES_A_TURN);
  for await (const { bytes, leaf } of reader.leaves(span.first, span.end)) {
    await giveTurn();
    if (leaf.kind !== "grade" || leaf.day !== day || fold.subjectOf(leaf) !== subject) continue;
    rows++;
    packing ??= new ZstdPacking(true);
    await packing.add(Buffer.concat([bytes, LF]));
    if (rows === leavesAFile) await close();
  }
  await close();
  return files;
}
