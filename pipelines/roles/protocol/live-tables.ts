import type { Lake } from "../../../infra/lake/duckdb.ts";
import { knownCaps, takeStaleCaps, volatileRows } from "../../2-ingest/volatile.ts";
import { LiveFiles } from "../../4-publish/live-files.ts";
import { readUnpublished } from "../../corrections/endpoint-record.ts";
import { headlineBasisOf, type PublishedFold } from "../../published/fold.ts";
import type { VolatileRow } from "../../record/volatile.ts";
import { encodeVolatile } from "../../record/volatile-arrow.ts";

export interface LiveTablesParts {
  lake: Lake;
  /** Returns the table of an endpoint: its partition, or one table for all. */
  tableOf: (cap: string) => number;
  /**
   * Writes one file of a table.
   * @returns the file's key
   */
  write: (table: number, bytes: Uint8Array) => Promise<string>;
  /** Returns the record's time. Files that no view names are deleted an hour later by this time. */
  now: () => Date;
  /** Most rows of a file (default 16,384). Each column of a file is encoded without a pause. */
  fileRows?: number;
  /** Most endpoints in one query (default 65,536). */
  queryCaps?: number;
}

/**
 * Time after which files that no view has named may have been deleted as garbage, ms. Then all rows are written again.
 */
const MAX_UNNAMED_MS = 1_800_000;

/**
 * Writes the volatile tables as files. Each call of {@link writeChanges} writes the rows of endpoints that changed
 * since the last call: by new records, which the lake lists, and by new cards and corrections, which the fold reports.
 * A row never changes by time alone. Changed endpoints are remembered until their rows are written, so a failed call is
 * made up by the next. The first call in a process, and the first for a table that was taken over, writes all rows.
 * Rows that leave the lake for the archive are older than every window and change nothing. Calls run one at a time.
 */
export class LiveTables {
  readonly #files = new Map<number, LiveFiles>();
  readonly #changedCaps = new Set<string>();
  #fold: PublishedFold | null = null;
  #lastNamedAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly parts: LiveTablesParts) {}

  /** Returns the keys of a table's files, oldest first; none before the table's first rows are written. */
  keysOf(table: number): string[] {
    return this.#files.get(table)?.keys ?? [];
  }

  /**
   * Notes that a view names the files; must be called then. A table whose files were not named for half an hour is
   * written again.
   */
  markNamed(): void {
    this.#lastNamedAt = this.parts.now().getTime();
  }

  /**
   * Writes rows that changed in lake or fold since the last call into files of these tables.
   * @param fold the published leaves; one object for all calls, since the tables listen to it
   * @throws errors of lake and store; the next call continues
   */
  async writeChanges(fold: PublishedFold, tables: readonly number[]): Promise<void> {
    await this.#collectChanges(fold, tables);
    const { tableOf, queryCaps = 65_536 } = this.parts;
    const heldTables = new Set(tables);
    for (const cap of this.#changedCaps) if (!heldTables.has(tableOf(cap))) this.#changedCaps.delete(cap);
    for (const files of this.#files.values()) for (const cap of files.capsToRewrite()) this.#changedCaps.add(cap);
    const caps = [...this.#changedCaps];
    const shrunkTables = new Set<number>();
    for (let from = 0; from < caps.length; from += queryCaps) {
      for (const table of await this.#write(fold, caps.slice(from, from + queryCaps))) shrunkTables.add(table);
    }
    if (shrunkTables.size === 0) return;
    // An endpoint has left the lake, so the files of its table are wrong, and the table is written again.
    for (const table of shrunkTables) this.#files.delete(table);
    await this.writeChanges(fold, tables);
  }

  async #collectChanges(fold: PublishedFold, tables: readonly number[]): Promise<void> {
    const { lake, tableOf, now } = this.parts;
    if (this.#fold !== fold) {
      fold.onChange((cap) => this.#changedCaps.add(cap));
      this.#fold = fold;
      this.#files.clear();
    }
    if (now().getTime() - this.#lastNamedAt > MAX_UNNAMED_MS) this.#files.clear();
    for (const cap of await takeStaleCaps(lake)) this.#changedCaps.add(cap);
    for (const table of [...this.#files.keys()]) if (!tables.includes(table)) this.#files.delete(table);
    const newTables = new Set(tables.filter((table) => !this.#files.has(table)));
    if (newTables.size === 0) return;
    for (const cap of await knownCaps(lake)) if (newTables.has(tableOf(cap))) this.#changedCaps.add(cap);
    for (const table of newTables) this.#files.set(table, new LiveFiles(this.#fileRows));
  }

  /**
   * Writes the current rows of these endpoints into further files of their tables.
   * @returns the tables that lost a row
   */
  async #write(fold: PublishedFold, caps: readonly string[]): Promise<number[]> {
    const { lake, tableOf, write } = this.parts;
    // An endpoint that changes after this moment is marked again, since its row is newer than the row that is written
    // now.
    for (const cap of caps) this.#changedCaps.delete(cap);
    const capsWithoutRow = new Set(caps);
    try {
      const published = { get: (cap: string) => headlineBasisOf(fold, cap) };
      const rows = await volatileRows(lake, published, await readUnpublished(lake, fold, capsWithoutRow), caps);
      for (const [table, tableRows] of groupByTable(rows, tableOf)) {
        for (let from = 0; from < tableRows.length; from += this.#fileRows) {
          const batch = tableRows.slice(from, from + this.#fileRows);
          this.#files.get(table)!.add(await write(table, await encodeVolatile(batch)), capIdsOf(fold, batch));
        }
      }
      for (const { capability_id: cap } of rows) capsWithoutRow.delete(cap);
      return [...capsWithoutRow].filter((cap) => this.#files.get(tableOf(cap))?.has(cap)).map(tableOf);
    } catch (error) {
      for (const cap of caps) this.#changedCaps.add(cap);
      throw error;
    }
  }

  get #fileRows(): number {
    return this.parts.fileRows ?? 16_384;
  }
}

function groupByTable(rows: readonly VolatileRow[], tableOf: (cap: string) => number): Map<number, VolatileRow[]> {
  const tables = new Map<number, VolatileRow[]>();
  for (const row of rows) {
    const table = tableOf(row.capability_id);
    const tableRows = tables.get(table);
    if (tableRows) tableRows.push(row);
    else tables.set(table, [row]);
  }
  return tables;
}

/**
 * Returns the ids of the rows' endpoints. The fold's strings are used if possible, so that a million ids are in memory
 * only once.
 */
const capIdsOf = (fold: PublishedFold, rows: readonly VolatileRow[]): string[] =>
  rows.map(({ capability_id: cap }) => fold.caps.get(cap)?.cap ?? cap);
