import type { Lake } from "../../../infra/lake/duckdb.ts";
import { knownCaps, takeStaleCaps, volatileRows } from "../../2-ingest/volatile.ts";
import { LiveFiles } from "../../4-publish/live-files.ts";
import { readUnpublishedCorrections } from "../../corrections/endpoint-record.ts";
import { headlineBasisOf, type PublishedFold } from "../../published/fold.ts";
import type { VolatileRow } from "../../record/volatile.ts";
import { encodeVolatile } from "../../record/volatile-arrow.ts";

export interface LiveTablesParts {
  lake: Lake;
  /** Returns the number of the table that has an endpoint's row: the endpoint's partition, or one number for all. */
  tableOf: (cap: string) => number;
  /**
   * Writes one file of a table.
   * @returns the file's key
   */
  write: (table: number, bytes: Uint8Array) => Promise<string>;
  /** Returns the record's time, by which the age of files that nothing names is measured before they are deleted. */
  now: () => Date;
  /**
   * Largest number of rows of a file (default 16,384). The number bounds how long other work waits, since a column of a
   * file is encoded without a pause.
   */
  fileRows?: number;
  /** Largest number of endpoints in one query (default 65,536). */
  queryCaps?: number;
}

/**
 * Time without a call of {@link LiveTables.markNamed} after which all rows are written again, ms. Files that nothing
 * names may be deleted as garbage an hour after they were written.
 */
const MAX_UNNAMED_MS = 1_800_000;

/**
 * Writes the volatile tables (one row for each endpoint, with the facts that change more often than its card) as
 * files. Each call of {@link writeChanges} writes the rows of endpoints that changed since the last call: by new
 * records, which the lake (the database of the log's rows) lists, and by new cards and corrections, which the fold
 * (the state of the public log) reports. A row never changes by time alone, nor by the removal of archived records
 * from the lake, which are too old to count. Changed endpoints are remembered until their rows are written, so after
 * a failed call the next one writes them. The first call in a process, and the first for a table that was taken over,
 * writes all rows. The caller must not make two calls at the same time.
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
   * Notes that the files of all tables are now named, by a view or by an object of the partition's owner, so that
   * they are not deleted as garbage. If this was not called for half an hour, all rows are written again.
   */
  markNamed(): void {
    this.#lastNamedAt = this.parts.now().getTime();
  }

  /**
   * Writes the rows that changed since the last call into further files of these tables.
   * @param fold state of the public log; all calls should pass one object, since another one means that all rows are
   * written again
   * @throws errors of lake and store; the next call continues
   */
  async writeChanges(fold: PublishedFold, tables: readonly number[]): Promise<void> {
    await this.#collectChanges(fold, tables);
    const { tableOf, queryCaps = 65_536 } = this.parts;
    const heldTables = new Set(tables);
    for (const cap of this.#changedCaps) if (!heldTables.has(tableOf(cap))) this.#changedCaps.delete(cap);
    for (const files of this.#files.values()) for (const cap of files.findCapsToRewrite()) this.#changedCaps.add(cap);
    const caps = [...this.#changedCaps];
    const shrunkTables = new Set<number>();
    for (let from = 0; from < caps.length; from += queryCaps) {
      for (const table of await this.#write(fold, caps.slice(from, from + queryCaps))) shrunkTables.add(table);
    }
    if (shrunkTables.size === 0) return;
    // An endpoint is no longer in the lake, but its row is still in the files, so its table is written again.
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
   * @returns the tables whose files have a row of an endpoint that has none any more
   */
  async #write(fold: PublishedFold, caps: readonly string[]): Promise<number[]> {
    const { lake, tableOf, write } = this.parts;
    // The endpoints are unmarked before their rows are read, so that an endpoint that changes meanwhile stays marked.
    for (const cap of caps) this.#changedCaps.delete(cap);
    const capsWithoutRow = new Set(caps);
    try {
      const published = { get: (cap: string) => headlineBasisOf(fold, cap) };
      const rows = await volatileRows(
        lake,
        published,
        await readUnpublishedCorrections(lake, fold, capsWithoutRow),
        caps,
      );
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
 * Returns the ids of the rows' endpoints. The strings of the fold are used if possible, so that a million ids are in
 * memory only once.
 */
const capIdsOf = (fold: PublishedFold, rows: readonly VolatileRow[]): string[] =>
  rows.map(({ capability_id: cap }) => fold.caps.get(cap)?.cap ?? cap);
