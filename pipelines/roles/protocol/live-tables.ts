import type { Lake } from "../../../infra/lake/duckdb.ts";
import { knownCaps, takeStale, volatileRows } from "../../2-ingest/volatile.ts";
import { LiveFiles } from "../../4-publish/live-files.ts";
import { readUnpublished } from "../../corrections/endpoint-record.ts";
import { headlineBasisOf, type PublishedFold } from "../../published/fold.ts";
import type { VolatileRow } from "../../record/volatile.ts";
import { encodeVolatile } from "../../record/volatile-arrow.ts";

export interface LiveTablesParts {
  lake: Lake;
  /** The table of an endpoint: its partition, or one for all. */
  tableOf: (cap: string) => number;
  /** Writes one file of a table. @returns its key */
  write: (table: number, bytes: Uint8Array) => Promise<string>;
  /** Record time, by which files that nobody names are deleted after an hour. */
  now: () => Date;
  /** Rows of a full file (default 16,384); each column of it is encoded without a pause. */
  fileRows?: number;
  /** Endpoints that one query asks for (default 65,536). */
  queryCaps?: number;
}

/** Files that no view has named for this long, ms, may have been deleted as garbage: then all rows are written again. */
const MAX_UNNAMED_MS = 1_800_000;

/**
 * Writes the volatile tables as files. A turn writes the rows of endpoints that were touched since the last one: by new
 * records, which the lake lists, and by new cards and corrections, which the fold reports. A row never changes by time
 * alone. Touched endpoints are remembered until their rows are written, so a turn that failed is made up by the next. The
 * first turn of a process, and of a table that was taken over, writes all rows. Rows that leave the lake for the archive
 * are older than every window and touch nothing. Turns run one at a time.
 */
export class LiveTables {
  readonly #files = new Map<number, LiveFiles>();
  readonly #stale = new Set<string>();
  #fold: PublishedFold | null = null;
  #namedAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly parts: LiveTablesParts) {}

  /** Names of a table's files, oldest first; none before its first turn. */
  keysOf(table: number): string[] {
    return this.#files.get(table)?.keys ?? [];
  }

  /** Must be called when a view names the files. A table whose files were not named for half an hour is written again. */
  markNamed(): void {
    this.#namedAt = this.parts.now().getTime();
  }

  /**
   * Writes rows that changed in lake or fold since the last turn into files of these tables.
   * @param fold what is published; one object for all turns, since the tables listen to it
   * @throws what lake and store throw; the next turn goes on
   */
  async turn(fold: PublishedFold, tables: readonly number[]): Promise<void> {
    await this.#collectChanges(fold, tables);
    const { tableOf, queryCaps = 65_536 } = this.parts;
    const held = new Set(tables);
    for (const cap of this.#stale) if (!held.has(tableOf(cap))) this.#stale.delete(cap);
    for (const files of this.#files.values()) for (const cap of files.toRewrite()) this.#stale.add(cap);
    const caps = [...this.#stale];
    const gone = new Set<number>();
    for (let from = 0; from < caps.length; from += queryCaps) {
      for (const table of await this.#write(fold, caps.slice(from, from + queryCaps))) gone.add(table);
    }
    if (gone.size === 0) return;
    // An endpoint has left the lake: the files of its table no longer agree with it, so the table is written again.
    for (const table of gone) this.#files.delete(table);
    await this.turn(fold, tables);
  }

  async #collectChanges(fold: PublishedFold, tables: readonly number[]): Promise<void> {
    const { lake, tableOf, now } = this.parts;
    if (this.#fold !== fold) {
      fold.onChange((cap) => this.#stale.add(cap));
      this.#fold = fold;
      this.#files.clear();
    }
    if (now().getTime() - this.#namedAt > MAX_UNNAMED_MS) this.#files.clear();
    for (const cap of await takeStale(lake)) this.#stale.add(cap);
    for (const table of [...this.#files.keys()]) if (!tables.includes(table)) this.#files.delete(table);
    const fresh = new Set(tables.filter((table) => !this.#files.has(table)));
    if (fresh.size === 0) return;
    for (const cap of await knownCaps(lake)) if (fresh.has(tableOf(cap))) this.#stale.add(cap);
    for (const table of fresh) this.#files.set(table, new LiveFiles(this.#fileRows));
  }

  /** Writes the present rows of these endpoints into further files of their tables. @returns tables that lost a row */
  async #write(fold: PublishedFold, caps: readonly string[]): Promise<number[]> {
    const { lake, tableOf, write } = this.parts;
    // Endpoints that are touched from here on have newer rows than these.
    for (const cap of caps) this.#stale.delete(cap);
    const asked = new Set(caps);
    try {
      const published = { get: (cap: string) => headlineBasisOf(fold, cap) };
      const rows = await volatileRows(lake, published, await readUnpublished(lake, fold, asked), caps);
      for (const [table, own] of groupByTable(rows, tableOf)) {
        for (let from = 0; from < own.length; from += this.#fileRows) {
          const some = own.slice(from, from + this.#fileRows);
          this.#files.get(table)!.add(await write(table, await encodeVolatile(some)), namesOf(fold, some));
        }
      }
      for (const { capability_id: cap } of rows) asked.delete(cap);
      return [...asked].filter((cap) => this.#files.get(tableOf(cap))?.has(cap)).map(tableOf);
    } catch (error) {
      for (const cap of caps) this.#stale.add(cap);
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
    const own = tables.get(table);
    if (own) own.push(row);
    else tables.set(table, [row]);
  }
  return tables;
}

/** Ids of the rows' endpoints. The fold's own strings are used where possible, so that a million ids are in memory once. */
const namesOf = (fold: PublishedFold, rows: readonly VolatileRow[]): string[] =>
  rows.map(({ capability_id: cap }) => fold.caps.get(cap)?.cap ?? cap);
