/**
 * A file that was written, with one row of each of `caps`. `liveRows` counts those of its rows that no newer file
 * replaces.
 */
interface LiveFile {
  key: string;
  caps: readonly string[];
  liveRows: number;
}

/**
 * Number of files that a table may have in addition to those that twice its rows would fill. Above it, small files
 * are joined.
 */
const MAX_EXTRA_FILES = 16;
/** How many of the smallest files are joined at a time. */
const FILES_JOINED_AT_ONCE = 8;
/** Number of replaced rows in a table's files up to which the files are not rewritten, however small the table is. */
const TOLERATED_REPLACED_ROWS = 4_096;

/**
 * Records which rows of a table are in which of its files, in the order of writing. A table has one row for each
 * endpoint, and the row in the newest file counts. A file is dropped when newer files hold all of its rows. Some old
 * rows are written again with each new file, so that a reader has to read about one and a half times the rows at most
 * (of a small table, {@link TOLERATED_REPLACED_ROWS} rows more than it has), in a bounded number of files. This class
 * does no I/O.
 */
export class LiveFiles {
  readonly #newestFileByCap = new Map<string, LiveFile>();
  #files: LiveFile[] = [];
  #rowsInFiles = 0;

  /** @param fileRows number of rows of a full file */
  constructor(private readonly fileRows: number) {}

  /**
   * Keys of the files that the view (the object from which serving learns the files to load) has to name, oldest first.
   */
  get keys(): string[] {
    return this.#files.map(({ key }) => key);
  }

  /** Number of rows of the table, that is of endpoints. */
  get rowCount(): number {
    return this.#newestFileByCap.size;
  }

  has(cap: string): boolean {
    return this.#newestFileByCap.has(cap);
  }

  /** Records that a file with the present rows of these endpoints was written. */
  add(key: string, caps: readonly string[]): void {
    const file = { key, caps, liveRows: caps.length };
    for (const cap of caps) {
      const olderFile = this.#newestFileByCap.get(cap);
      if (olderFile) olderFile.liveRows--;
      this.#newestFileByCap.set(cap, file);
    }
    this.#files = [...this.#files, file].filter(({ liveRows }) => liveRows > 0);
    this.#rowsInFiles = this.#files.reduce((sum, { caps: all }) => sum + all.length, 0);
  }

  /**
   * Endpoints whose rows should be written again with the next file, so that older files can be dropped: about one full
   * file of rows at a time, to spread the cost.
   */
  findCapsToRewrite(): string[] {
    const fullFiles = Math.ceil((2 * this.rowCount) / this.fileRows);
    if (this.#files.length > MAX_EXTRA_FILES + fullFiles) {
      return this.#liveRowsOf([...this.#files].sort((a, b) => a.liveRows - b.liveRows).slice(0, FILES_JOINED_AT_ONCE));
    }
    if (this.#rowsInFiles - this.rowCount <= Math.max(TOLERATED_REPLACED_ROWS, this.rowCount / 2)) return [];
    return this.#liveRowsOf([...this.#files].sort((a, b) => a.liveRows / a.caps.length - b.liveRows / b.caps.length));
  }

  /** Endpoints whose newest row is in these files, file by file, up to the rows of a full file. */
  #liveRowsOf(files: readonly LiveFile[]): string[] {
    const caps: string[] = [];
    for (const file of files) {
      if (caps.length > 0 && caps.length + file.liveRows > this.fileRows) break;
      for (const cap of file.caps) if (this.#newestFileByCap.get(cap) === file) caps.push(cap);
    }
    return caps;
  }
}
