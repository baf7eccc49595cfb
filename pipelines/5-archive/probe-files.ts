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
import { type MadeFile, PROBE_SUBJECTS, type ProbeSubject, removeFiles, writeMadeFile } from "./read-back.ts";

/** A DuckDB instance that formats lines, and its work folder. None of its tables are used. */
export type LinePrinter = Pick<Lake, "batches" | "workDir">;

/** The rows of one partition with offsets from `first` to `next` - 1. */
export interface PartRows {
  part: number;
  first: number;
  next: number;
  /** Offsets of the segments that have records of the day. Neighbouring segments are joined to one span. */
  spans: readonly (readonly [first: number, last: number])[];
}

export interface ProbeFiles {
  files: MadeFile[];
  /** Number of lines of each partition. */
  rows: Map<number, number>;
}

/**
 * Largest number of rows of one file, which bounds the packed bytes in memory. A day with more rows gets several files.
 */
const ROWS_PER_FILE = 1_000_000;
/** First byte of a row that DuckDB cannot format as RFC 8785. {@link probeLine} formats these rows. */
const UNPRINTED_MARK = 0x1e;

/**
 * Makes compressed files of the rows of one subject (kind of row) and UTC day, read from the segment files of the
 * event log, ordered by capability and record id. Without rows there is no file.
 * @param others paths of NDJSON files; rows that they contain are left out
 * @throws DamagedChain, and errors of the store and of DuckDB
 */
export async function makeProbeFiles(
  sources: { printer: LinePrinter; privateStore: Store; logId: string },
  { subject, day, parts }: { subject: ProbeSubject; day: string; parts: readonly PartRows[] },
  { rowsAFile = ROWS_PER_FILE, others = [] }: { rowsAFile?: number; others?: readonly string[] } = {},
): Promise<ProbeFiles> {
  const { printer, privateStore, logId } = sources;
  const { topic, type } = PROBE_SUBJECTS[subject];
  const segments = await openSegments(
    { workDir: printer.workDir, privateStore, logId },
    parts.map(({ part: partition, next, spans }) => ({
      ...{ topic, partition },
      wants: (ref) => ref.first < next && spans.some(([first, last]) => ref.first <= last && ref.last >= first),
    })),
  );
  const output = new LineFiles(printer, type === "mcp.probe", rowsAFile);
  try {
    if (segments.files === null) return { files: [], rows: new Map() };
    // DuckDB cannot read an empty list of files, so the list always has this empty file.
    const emptyFile = join(segments.folder, "none.ndjson");
    await writeFile(emptyFile, "");
    const bounds = JSON.stringify(parts.map(({ part, first, next }) => ({ part, first, next })));
    const params = { files: segments.files, others: JSON.stringify([emptyFile, ...others]), type, day, bounds };
    for await (const batch of printer.batches(sql("archive/lines"), params)) {
      const partitionColumn = batch.getColumnVector(0) as DuckDBVector<number>;
      const lineColumn = batch.getColumnVector(1) as DuckDBBlobVector;
      for (let row = 0; row < batch.rowCount; row++) {
        if (output.add(partitionColumn.getItem(row)!, lineColumn.getItemBytes(row)!)) await output.close();
      }
      await output.flush();
    }
    await output.close();
    return output;
  } catch (error) {
    await removeFiles(output.files);
    throw error;
  } finally {
    await segments.close();
  }
}

/**
 * Reads the spans of offsets that contain the records of a day. Adjacent spans are joined, so that a span still fits
 * the segments after two segments were merged.
 */
export async function readDaySpans(
  lake: Pick<Lake, "all">,
  subject: ProbeSubject,
  day: string,
  part: number,
): Promise<[number, number][]> {
  const spans: [number, number][] = [];
  const { topic } = PROBE_SUBJECTS[subject];
  for (const { first, last } of await lake.all<{ first: number; last: number }>(sql("staging/loaded:day"), {
    topic,
    part,
    day,
  })) {
    const previousSpan = spans.at(-1);
    if (previousSpan && first <= previousSpan[1] + 1) previousSpan[1] = Math.max(previousSpan[1], last);
    else spans.push([first, last]);
  }
  return spans;
}

/**
 * Compresses and hashes lines as they arrive. No uncompressed text is written to disk. `isTool`: the lines are probes
 * of MCP tools, which have further members.
 */
class LineFiles {
  readonly rows = new Map<number, number>();
  readonly files: MadeFile[] = [];
  #packing = new ZstdPacking(true);
  #lines: Uint8Array[] = [];
  #rowCount = 0;

  constructor(
    private readonly lake: Pick<Lake, "workDir">,
    private readonly isTool: boolean,
    private readonly rowsAFile: number,
  ) {}

  /**
   * Adds a line. Its bytes are in DuckDB's memory and must stay valid until {@link flush}.
   * @returns true when the file is full; then the caller calls {@link close}
   */
  add(part: number, printedRow: Uint8Array): boolean {
    this.#lines.push(printedRow[0] === UNPRINTED_MARK ? this.#print(printedRow) : printedRow);
    this.rows.set(part, (this.rows.get(part) ?? 0) + 1);
    return ++this.#rowCount === this.rowsAFile;
  }

  async flush(): Promise<void> {
    await this.#packing.add(Buffer.concat(this.#lines.splice(0)));
  }

  /** Ends the current file, if it has a line, and begins the next. */
  async close(): Promise<void> {
    await this.flush();
    if (this.#rowCount > 0) this.files.push(await writeMadeFile(this.lake, this.#packing, this.#rowCount));
    [this.#packing, this.#rowCount] = [new ZstdPacking(true), 0];
  }

  #print(printedRow: Uint8Array): Buffer {
    const row = JSON.parse(
      Buffer.from(printedRow.buffer, printedRow.byteOffset + 1, printedRow.length - 1).toString("utf8"),
    ) as ProbeRow;
    return Buffer.from(`${probeLine(row, this.isTool)}\n`);
  }
}

/** One probe, as a row of the segment files. */
interface ProbeRow {
  event_id: string;
  cap: string;
  /** Unix ms. */
  t: number;
  /** JSON. */
  body: string;
}

/** Formats the archive's line of a probe (records.md, Archive rows) in RFC 8785 form, without its newline. */
function probeLine({ event_id, cap, t, body }: ProbeRow, isTool: boolean): string {
  const { state, status, latency_ms, price, terms, ...otherMembers } = JSON.parse(body) as BodyOf<"mcp.probe">;
  const offers = terms?.offers ?? [];
  const fault = otherMembers.fault ?? (otherMembers.wall ? "blocked" : null);
  const networks = [...new Set(offers.map((offer) => offer.network))];
  return canonicalText({
    amount: price ?? null,
    asset: offers.find((offer) => offer.payable)?.asset ?? offers[0]?.asset ?? null,
    capability_id: cap,
    counts: fault === null || fault === "blocked",
    fault,
    initialize_ms: isTool ? (otherMembers.initialize_ms ?? null) : undefined,
    latency_ms: latency_ms ?? null,
    networks: networks.length > 1 ? networks.sort(compareBytes) : networks,
    observed_at: rfc3339(new Date(t)),
    protocols: terms?.protocols ?? [],
    record_id: event_id,
    state: state ?? null,
    status: status ?? null,
    terms_sha256: terms?.sha256 ?? null,
    tool: isTool ? (otherMembers.tool ?? null) : undefined,
    tool_present: isTool ? (otherMembers.tool_present ?? null) : undefined,
  });
}

const compareBytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));

const LF = Buffer.from("\n");
/** Number of leaves after which the loop yields to other work of the process; they take a few milliseconds. */
const LEAVES_PER_TURN = 64;
/** Largest number of leaves of one file. A leaf has about two kilobytes. */
const LEAVES_PER_FILE = 100_000;

/** Selects the grade leaves of one subject (grades of MCP tools or all other grades) and UTC day. */
export interface GradeRows {
  subject: ArchiveSubject;
  day: string;
  /** Range of leaves to read. */
  span: LeafSpan;
  /** Indexes of leaves that are left out (default: none). */
  others?: ReadonlySet<number>;
}

/**
 * Makes files of the grade leaves of one UTC day (the leaf's `day`): the leaves' bytes in the order of the tree, one
 * leaf in each line.
 */
export async function makeGradeFiles(
  reader: RecordReader,
  lake: Pick<Lake, "workDir">,
  fold: Pick<ArchiveFold, "subjectOf">,
  { subject, day, span, others }: GradeRows,
  leavesPerFile = LEAVES_PER_FILE,
): Promise<MadeFile[]> {
  const files: MadeFile[] = [];
  let rows = 0;
  let packing: ZstdPacking | null = null;
  const closeFile = async () => {
    if (!packing) return;
    files.push(await writeMadeFile(lake, packing, rows));
    [rows, packing] = [0, null];
  };
  const yieldAfterLeaf = createYielder(LEAVES_PER_TURN);
  for await (const { bytes, leaf, index } of reader.leaves(span.first, span.end)) {
    await yieldAfterLeaf();
    if (others?.has(index)) continue;
    if (leaf.kind !== "grade" || leaf.day !== day || fold.subjectOf(leaf) !== subject) continue;
    rows++;
    packing ??= new ZstdPacking(true);
    await packing.add(Buffer.concat([bytes, LF]));
    if (rows === leavesPerFile) await closeFile();
  }
  await closeFile();
  return files;
}
