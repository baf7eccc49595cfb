/** One written file of rows, and for how many of them it is the newest. */
interface LiveFile {
  key: string;
  caps: readonly string[];
  live: number;
}

/** Files that a table may have beside those that its rows fill; more are joined. */
const MAX_SMALL = 16;
/** Of them, how many of the smallest are joined at once: a row is written again about once a factor of that. */
const JOINED = 8;
/** Rows below which a table is not searched for rows that newer files replace. */
const MIN_DEAD = 4_096;

/**
 * Which rows of a table lie in which of its files, in the order they were written: the newest row of an endpoint counts.
 * A base is only the files that were written first. A file leaves the list when newer ones have all of its rows; what a
 * reader has to read at its start stays below one and a half times the rows, in a bounded number of files, because some
 * rows are written again with the touched ones. Pure bookkeeping: it writes and reads nothing.
 */
export class LiveFiles {
  readonly #newest = new Map<string, LiveFile>();
  #files: LiveFile[] = [];
  #written = 0;

  /** @param fileRows rows of a full file */
  constructor(private readonly fileRows: number) {}

  /** Names for the view, oldest first. */
  get keys(): string[] {
    return this.#files.map(({ key }) => key);
  }

  /** Rows of the table. */
  get rows(): number {
    return this.#newest.size;
  }

  has(cap: string): boolean {
    return this.#newest.has(cap);
  }

  /** A file was written with the rows of these endpoints as they are now. */
  add(key: string, caps: readonly string[]): void {
    const file = { key, caps, live: caps.length };
    for (const cap of caps) {
      const before = this.#newest.get(cap);
      if (before) before.live--;
      this.#newest.set(cap, file);
    }
    this.#files = [...this.#files, file].filter(({ live }) => live > 0);
    this.#written = this.#files.reduce((sum, { caps: all }) => sum + all.length, 0);
  }

  /**
   * Endpoints whose rows should be written once more with the next file, so that older ones can go: about one full file at a
   * time, so that no turn pays for all of it.
   */
  toRewrite(): string[] {
    const full = Math.ceil((2 * this.rows) / this.fileRows);
    if (this.#files.length > MAX_SMALL + full) {
      return this.#liveIn([...this.#files].sort((a, b) => a.live - b.live).slice(0, JOINED));
    }
    if (this.#written - this.rows <= Math.max(MIN_DEAD, this.rows / 2)) return [];
    return this.#liveIn([...this.#files].sort((a, b) => a.live / a.caps.length - b.live / b.caps.length));
  }

  /** What these files hold alone, of the first ones in whole files, up to the rows of a full one. */
  #liveIn(files: readonly LiveFile[]): string[] {
    const caps: string[] = [];
    for (const file of files) {
      if (caps.length > 0 && caps.length + file.live > this.fileRows) break;
      for (const cap of file.caps) if (this.#newest.get(cap) === file) caps.push(cap);
    }
    return caps;
  }
}
