import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { readDirectoryStore } from "../infra/store/directory.ts";
import { exportIndex, hintedIndex, openMirrored, type ProvenIndex } from "../pipelines/mirror/export-index.ts";
import {
  GRADE_COLUMNS,
  gradeRows,
  type RecordToRead,
  SAMPLE_COLUMNS,
  sampleRows,
} from "../pipelines/mirror/export-record.ts";
import { openSource, recordFolder } from "../pipelines/published/open-source.ts";
import { writeParquet } from "../pipelines/published/parquet-table.ts";
import { openSourceTreeHead } from "../pipelines/published/trust.ts";
import { ProgressLine, print, say } from "./printer.ts";

export interface ExportOptions {
  what: "index" | "grades" | "samples";
  logKey?: string;
  witnessKey?: string;
  json?: boolean;
  /** Settings with the credentials of a bucket. */
  settings?: () => Pick<Config, "stores">;
}

const NOUN = { index: "endpoints", grades: "cards", samples: "samples" };

/** A table of a record, as it is written: what it is of, and the work. */
interface Table {
  origin: string;
  tree_size: number;
  at: string | null;
  write(path: string, onProgress: (rows: number) => void): Promise<number>;
}

/** @throws what opens a record, and Failure `usage` for one without an index */
async function tableOf(from: string, what: ExportOptions["what"], options: ExportOptions): Promise<Table> {
  const folder = await recordFolder(from);
  const stores = folder && { open: readDirectoryStore(folder.publicDir), state: readDirectoryStore(folder.stateDir) };
  const isMirror = stores !== null && !options.logKey && (await stores.state.head("trusted.json")) !== null;
  const record = isMirror ? await openMirrored(stores.open, stores.state) : await opened(from, options);
  if (what === "index") return indexTable(await hintedIndex(record));
  const [columns, rows] = what === "grades" ? [GRADE_COLUMNS, gradeRows] : [SAMPLE_COLUMNS, sampleRows];
  const { origin, head, asOf } = record;
  const facts = { origin, tree_size: String(head.size), ...(asOf ? { as_of: asOf } : {}) };
  return {
    ...{ origin, tree_size: head.size, at: asOf },
    write: (path, onProgress) => writeParquet(path, columns, facts, rows(record), onProgress),
  };
}

const indexTable = (index: ProvenIndex): Table => ({
  ...{ origin: index.origin, tree_size: index.treeSize, at: index.computedAt },
  write: (path, onProgress) => exportIndex(index, path, onProgress),
});

/** A record that is no mirror's: its checkpoint is believed by the keys given, or those that it shows, said aloud. */
async function opened(from: string, { logKey, witnessKey, settings }: ExportOptions): Promise<RecordToRead> {
  const source = await openSource(from, systemClock, settings);
  const head = await openSourceTreeHead(source, { log: logKey, witness: witnessKey }, say, systemClock);
  return { source, head, origin: head.origin, asOf: head.cosignedAt?.toISOString() ?? null };
}

/** `touchstone export`: a table of a record as one Parquet file; docs/analysts.md. Nothing of the record is written to. */
export async function exportCommand(from: string, file: string, options: ExportOptions): Promise<void> {
  const { what, json } = options;
  const table = await tableOf(from, what, options);
  const line = new ProgressLine();
  const rows = await table.write(file, (done) => line.show(`export: ${done} ${NOUN[what]}`));
  line.end();
  const { origin, tree_size, at } = table;
  print({ json }, { origin, what, tree_size, as_of: at, rows, file }, [
    `${rows} ${NOUN[what]} of ${origin} at ${tree_size} leaves (${at ?? "no time"}) are in ${file}`,
    "queries to begin with: docs/analysts.md",
  ]);
}
