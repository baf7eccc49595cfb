import { writeFile } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { ArchiveUnproven } from "./errors.ts";
import { LineIds } from "./line-ids.ts";
import { Packing } from "./pack.ts";
import type { MadeFile } from "./subjects.ts";
import { removeFiles, workPath } from "./work-files.ts";

/** Rows of one file; a day with more has several. Bounds what is held packed in memory. */
export const ROWS_A_FILE = 1_000_000;

/** Lines that are hashed and packed at once: a megabyte or two, and some milliseconds between two looks at what else waits. */
const LINES_AT_ONCE = 4_096;

/** What a line has at least, in bytes: by it a file that will be large is known before it is made. */
const LEAST_LINE_BYTES = 256;

/** Where a line stands: capability, then record. Both are ASCII: their order as strings is that of their bytes. */
export interface Place {
  cap: string;
  id: string;
}

/** One file, and where it begins and ends. */
export interface PlacedFile extends MadeFile {
  first: Place;
  last: Place;
}

/** Lines of one subject and day on their way into files, packed and hashed as they come; no text is written to a disk. */
export class LineFiles {
  readonly #files: PlacedFile[] = [];
  #packing: Packing | null = null;
  #told = new LineIds();
  #ids: string[] = [];
  #lines: string[] = [];
  #first: Place = { cap: "", id: "" };
  readonly #last: Place = { cap: "", id: "" };
  #rows = 0;
  #left: number;

  /** @param rows lines that will come */
  constructor(
    readonly lake: Pick<Lake, "workDir">,
    rows: number,
    readonly rowsAFile: number = ROWS_A_FILE,
  ) {
    this.#left = rows;
  }

  /**
   * One more line. When `isDue` says so, `flush` before the next.
   * @param line with its newline; its bytes, a character each
   * @throws ArchiveUnproven when it does not stand behind the line before it
   */
  push(cap: string, id: string, line: string): void {
    const last = this.#last;
    if (!(last.cap < cap || (last.cap === cap && last.id < id))) {
      throw new ArchiveUnproven("lines of the archive", `one after ${last.cap} ${last.id}`, `${cap} ${id}`);
    }
    if (this.#rows === 0) this.#first = { cap, id };
    last.cap = cap;
    last.id = id;
    this.#lines.push(line);
    this.#ids.push(id);
    this.#rows++;
  }

  get isDue(): boolean {
    return this.#lines.length === LINES_AT_ONCE || this.#rows === this.rowsAFile;
  }

  async flush(): Promise<void> {
    await this.#pack();
    if (this.#rows === this.rowsAFile) await this.#close();
  }

  /** @returns the files; whoever asked for them removes them */
  async end(): Promise<PlacedFile[]> {
    if (this.#rows > 0) {
      await this.#pack();
      await this.#close();
    }
    return this.#files;
  }

  /** What was made is not wanted: something failed. */
  async drop(): Promise<void> {
    this.#packing?.drop();
    await removeFiles(this.#files);
  }

  async #pack(): Promise<void> {
    this.#packing ??= new Packing(Math.min(this.#left, this.rowsAFile) * LEAST_LINE_BYTES);
    await this.#packing.write(Buffer.from(this.#lines.join(""), "latin1"));
    this.#told.add(this.#ids);
    [this.#lines, this.#ids] = [[], []];
    await setImmediate();
  }

  async #close(): Promise<void> {
    const path = workPath(this.lake);
    const { bytes, ...packed } = await this.#packing!.end();
    const told = this.#told.digest();
    this.#files.push({ path, packed, told, rows: this.#rows, first: this.#first, last: { ...this.#last } });
    await writeFile(path, bytes);
    this.#left -= this.#rows;
    [this.#packing, this.#told, this.#rows] = [null, new LineIds(), 0];
  }
}
