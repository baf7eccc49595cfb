import { systemClock } from "../infra/clock.ts";
import { Failure } from "../infra/errors.ts";
import { readDirectoryStore } from "../infra/store/directory.ts";
import type { Store } from "../infra/store/store.ts";
import {
  exportIndex,
  openHintedIndex,
  openMirroredRecord,
  type ProvenIndex,
} from "../pipelines/mirror/export-index.ts";
import {
  GRADE_COLUMNS,
  gradeRows,
  type RecordToRead,
  SAMPLE_COLUMNS,
  sampleRows,
} from "../pipelines/mirror/export-record.ts";
import { checkAge, readMirrorCommit, readPins } from "../pipelines/mirror/state.ts";
import { findRecordFolder } from "../pipelines/published/open-source.ts";
import { writeParquet } from "../pipelines/published/parquet-table.ts";
import { openTreeHead, trustOfPins } from "../pipelines/published/trust.ts";
import { ProgressLine, print } from "./printer.ts";
import { keysOf, openRecord, type RecordOptions } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

type ExportOptions = OptionsOf<"export"> & RecordOptions;

/** What a row of each table is called in messages. */
const NOUN = { index: "endpoints", grades: "cards", samples: "samples" };

/** An opened table of a record. */
interface Table {
  origin: string;
  tree_size: number;
  /** Time of the exported state (RFC 3339); null if unknown. */
  at: string | null;
  /** Writes the table to a Parquet file. @returns the number of rows */
  write(path: string, onProgress: (rows: number) => void): Promise<number>;
}

/**
 * Opens the table that the options name.
 * @throws the errors of opening a record; Failure `usage` for a record without an index
 */
async function openTable(sourceAddress: string, options: ExportOptions): Promise<Table> {
  if (options.witnessKey !== undefined && options.logKey === undefined)
    throw new Failure("usage", "--witness-key needs the log key beside it: --log-key");
  const folder = await findRecordFolder(sourceAddress);
  const stores = folder && { open: readDirectoryStore(folder.publicDir), state: readDirectoryStore(folder.stateDir) };
  const isMirror = stores !== null && !options.logKey && (await stores.state.head("trusted.json")) !== null;
  if (isMirror) await checkAgainstPolicy(stores.state, options);
  const record = isMirror
    ? await openMirroredRecord(stores.open, stores.state)
    : await openOtherRecord(sourceAddress, options);
  if (options.what === "index") return indexTable(await openHintedIndex(record));
  const isGrades = options.what === "grades";
  const [columns, rows] = isGrades ? [GRADE_COLUMNS, gradeRows] : [SAMPLE_COLUMNS, sampleRows];
  const { origin, head, asOf } = record;
  const facts = { origin, tree_size: String(head.size), ...(asOf ? { as_of: asOf } : {}) };
  return {
    ...{ origin, tree_size: head.size, at: asOf },
    write: (path, onProgress) => writeParquet(path, columns, facts, rows(record), onProgress),
  };
}

/**
 * Checks the tree head that a mirror proved last against --witness-policy and --max-age, with the keys that the mirror
 * has stored. Without these options it checks nothing.
 * @throws Failure `unwitnessed`, `usage`, `unreadable`; Stale, Unproven
 */
async function checkAgainstPolicy(stateStore: Pick<Store, "get">, options: ExportOptions): Promise<void> {
  const { policy } = await keysOf(options);
  const [pins, trusted] = [await readPins(stateStore), await readMirrorCommit(stateStore)];
  if ((policy === undefined && options.maxAge === undefined) || !pins || !trusted) return;
  const head = openTreeHead(Buffer.from(trusted.head.note), { ...trustOfPins(pins), policy }, systemClock);
  if (options.maxAge !== undefined) checkAge(head, systemClock, options.maxAge);
}

const indexTable = (index: ProvenIndex): Table => ({
  ...{ origin: index.origin, tree_size: index.treeSize, at: index.computedAt },
  write: (path, onProgress) => exportIndex(index, path, onProgress),
});

/** Opens a record that is not the folder of a mirror. */
async function openOtherRecord(sourceAddress: string, options: RecordOptions): Promise<RecordToRead> {
  const { source, head } = await openRecord(sourceAddress, options);
  return { source, head, origin: head.origin, asOf: head.cosignedAt?.toISOString() ?? null };
}

/**
 * `touchstone export`: writes a table of a record to a Parquet file; docs/analysts.md. It changes nothing in the
 * record.
 */
export async function exportCommand(sourceAddress: string, file: string, options: ExportOptions): Promise<void> {
  const { what } = options;
  const { write, origin, tree_size, at } = await openTable(sourceAddress, options);
  const line = new ProgressLine();
  const rows = await write(file, (rowCount) => line.show(`export: ${rowCount} ${NOUN[what]}`));
  line.end();
  print(options, { origin, what, tree_size, as_of: at, rows, file }, [
    `wrote ${rows} ${NOUN[what]} of ${origin} at ${tree_size} leaves (${at ?? "time unknown"}) to ${file}`,
    "next: queries in docs/analysts.md",
  ]);
}
