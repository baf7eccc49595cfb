import { writeFile } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { ArchiveUnproven } from "./errors.ts";
import { LineIds } from "./line-ids.ts";
import { LinePiece } from "./line-piece.ts";
import { Packing, probesLevel } from "./pack.ts";
import type { MadeFile, Place } from "./subjects.ts";
import { removeFiles, workPath } from "./work-files.ts";

/** Rows of one file; a day with more has several. Bounds what is held packed in memory. */
export const ROWS_A_FILE = 1_000_000;

/** What a line has at least, in bytes: by it a file that will be large is known before it is made. */
const LEAST_LINE_BYTES = 256;

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
  readonly #piece = new LinePiece();
  #first: Place = { cap: "", id: "" };
  #cap = "";
  /** Lines of this capability so far. */
  #own = 0;
  #rows = 0;
  #left: number;

  /** @param rows lines that will come */
  constructor(
    readonly lake: Pick<Lake, "workDir">,
    rows: number,
    readonly rowsAFile: number = ROWS_A_FILE,
  ) {
    this.#left = rows;
    // Its thread starts while the first lines are gathered.
    if (rows > 0) this.#packing = this.#newPacking();
  }

  /**
   * One more line. When `isDue` says so, `flush` before the next.
   * @param line with its newline; its bytes, a character each
   * @throws ArchiveUnproven when it does not stand behind the line before it
   */
  push(cap: string, id: string, line: string): void {
    if (cap !== this.#cap) this.begin(cap);
    this.#piece.add(id, line);
    this.wrote();
  }

  /** Lines of a capability come next. @throws ArchiveUnproven when it does not stand behind the one before */
  begin(cap: string): void {
    if (cap <= this.#cap) throw new ArchiveUnproven("lines of the archive", `one after ${this.#cap}`, cap);
    this.#cap = cap;
    this.#own = 0;
  }

  /** Where the next line of the capability that was begun is written, with its id; until `wrote` says that it is there. */
  get piece(): LinePiece {
    return this.#piece;
  }

  /** One line was written into `piece`. When `isDue` says so, `flush` before the next. @throws as {@link push} */
  wrote(): void {
    const piece = this.#piece;
    if (this.#own > 0 && !piece.isInOrder)
      throw new ArchiveUnproven("lines of the archive", `ids of ${this.#cap} in their order`, piece.lastId);
    if (this.#rows === 0) this.#first = { cap: this.#cap, id: piece.lastId };
    this.#own++;
    this.#rows++;
  }

  get isDue(): boolean {
    return this.#piece.isDue || this.#rows === this.rowsAFile;
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
    this.#packing ??= this.#newPacking();
    const { text, ids } = this.#piece;
    this.#told.add(ids);
    this.#piece.begin(this.#packing.spare());
    await this.#packing.write(text, true);
    await setImmediate();
  }

  #newPacking(): Packing {
    const bytes = Math.min(this.#left, this.rowsAFile) * LEAST_LINE_BYTES;
    return new Packing(bytes, probesLevel(bytes));
  }

  async #close(): Promise<void> {
    const path = workPath(this.lake);
    const { bytes, ...packed } = await this.#packing!.end();
    const told = this.#told.digest();
    const last = { cap: this.#cap, id: this.#piece.lastId };
    this.#files.push({ path, packed, told, rows: this.#rows, first: this.#first, last });
    await writeFile(path, bytes);
    this.#left -= this.#rows;
    [this.#packing, this.#told, this.#rows] = [null, new LineIds(), 0];
  }
}
