import { existsSync } from "node:fs";
import { stat } from "node:fs/promises";
import { type DuckDBConnection, DuckDBInstance } from "@duckdb/node-api";
import type { Clock } from "../../infra/clock.ts";
import { Semaphore } from "../../infra/concurrency.ts";
import { Failure } from "../../infra/errors.ts";
import { type Statements, toStatements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { REGISTER_FORM } from "./import.ts";

/** No register can be read now. The message is for the client. */
export class NoRegister extends Failure {
  constructor(why: string) {
    super("unreadable", why, { retriable: true });
  }
}

/** Facts of the files from which a register was made. */
export interface RegisterFacts {
  /** Version of the register file (REGISTER_FORM). */
  form: number;
  /** File name of the golden copy, GLEIF's file of all companies with a LEI. */
  source: string;
  /** When the register was imported, RFC 3339. */
  imported_at: string;
  /** Number of rows of the golden copy. */
  rows_read: number;
  /** Number of companies in the register. */
  companies: number;
  /** Number of names of these companies. */
  names: number;
  /** Number of pairs of company and domain. */
  domains: number;
  /** Number of reported parents; null: GLEIF's file of them was not imported. */
  relations: number | null;
  /** Number of reasons why a parent is not reported; null: GLEIF's file of them was not imported. */
  exceptions: number | null;
  /** Newest time at which GLEIF updated one of the companies, RFC 3339; null if no row has a time. */
  newest_update: string | null;
}

/** An open register: runs queries on it, and has the facts of its file in `made`. */
export interface OpenRegister extends Statements {
  readonly made: RegisterFacts;
}

export interface RegisterSettings {
  path: string;
  clock: Clock;
  /** Shortest pause between two checks whether the register's file was replaced, ms. */
  lookEvery_ms?: number;
  /** Most memory of the engine (default `512MB`). */
  memoryLimit?: string;
}

/**
 * Number of questions that are answered at once, each on its own connection. Each takes one of the four threads of
 * libuv's pool.
 */
const MAX_CONCURRENT_QUESTIONS = 2;
/** Largest number of questions that wait for their turn. Further ones are refused. */
const MAX_WAITING_QUESTIONS = 64;

/** An opened register file. After it was replaced, it is closed as soon as the last question to it has ended. */
class OpenedFile {
  readonly #turns = new Semaphore(MAX_CONCURRENT_QUESTIONS);
  /** Number of questions that wait for their turn. */
  #waiting = 0;
  /** Number of questions that wait or are being answered. */
  #users = 0;
  #isDropped = false;

  private constructor(
    /** Inode, size and mtime, which tell the file from others that were at this path. */
    readonly fileId: string,
    readonly made: RegisterFacts,
    private readonly instance: DuckDBInstance,
    private readonly connections: DuckDBConnection[],
  ) {}

  /** Opens a register file, with one connection for each concurrent question. @throws NoRegister for another version */
  static async open(path: string, fileId: string, memoryLimit: string): Promise<OpenedFile> {
    // `create` is called, not DuckDB's cache of instances by path, since an older file of this path may still be in
    // use. Two instances with one path would be a problem only if they wrote.
    const instance = await DuckDBInstance.create(path, {
      access_mode: "READ_ONLY",
      ...{ memory_limit: memoryLimit, threads: "1", autoinstall_known_extensions: "false" },
    });
    const connections: DuckDBConnection[] = [];
    try {
      for (let i = 0; i < MAX_CONCURRENT_QUESTIONS; i++) connections.push(await instance.connect());
      const [made] = await toStatements(connections[0]!).all<RegisterFacts>(sql("register/made:read"));
      if (made?.form === REGISTER_FORM) return new OpenedFile(fileId, made, instance, connections);
      throw new NoRegister("the register is of another version of this service and has to be imported again");
    } catch (error) {
      for (const connection of connections) connection.closeSync();
      instance.closeSync();
      throw error;
    }
  }

  async use<T>(work: (register: OpenRegister) => Promise<T>): Promise<T> {
    if (this.#waiting >= MAX_WAITING_QUESTIONS) throw new NoRegister("too many questions are waiting for the register");
    this.#waiting++;
    this.#users++;
    const releaseTurn = await this.#turns.take().finally(() => this.#waiting--);
    const connection = this.connections.pop()!;
    try {
      return await work({ ...toStatements(connection), made: this.made });
    } finally {
      this.connections.push(connection);
      releaseTurn();
      this.#users--;
      this.#closeIfUnused();
    }
  }

  /** Closes the file as soon as the last question to it has been answered. */
  drop(): void {
    this.#isDropped = true;
    this.#closeIfUnused();
  }

  #closeIfUnused(): void {
    if (!this.#isDropped || this.#users > 0) return;
    for (const connection of this.connections.splice(0)) connection.closeSync();
    this.instance.closeSync();
  }
}

/**
 * The register of companies in a data folder, read-only. After an import has replaced the file, the next question
 * opens the new file; questions that are running end on the old one.
 */
export class Register {
  readonly #settings: RegisterSettings;
  #opened: OpenedFile | null = null;
  /** When the file was last checked, ms of the clock's `monotonic`. */
  #checkedAtMs = Number.NEGATIVE_INFINITY;
  /** The check that is running, which all questions that arrive meanwhile share. */
  #checking: Promise<void> | null = null;
  #unavailableReason = "there is no register of companies here yet";
  /** True after the present file could not be opened as a register of this version. */
  #isUnusable = false;
  #isClosed = false;

  constructor(settings: RegisterSettings) {
    this.#settings = settings;
  }

  /**
   * Runs `work` on the current register. If a new file cannot be opened, the one before it stays in use.
   * @throws NoRegister when there is none, or too many questions wait
   */
  async use<T>(work: (register: OpenRegister) => Promise<T>): Promise<T> {
    this.#checking ??= this.#checkFile().finally(() => {
      this.#checking = null;
    });
    await this.#checking;
    if (!this.#opened) throw new NoRegister(this.#unavailableReason);
    return this.#opened.use(work);
  }

  /**
   * Returns true if a register is open, and also if there is a file that was not found to be unusable. Returns false if
   * no question can be answered.
   */
  get isAvailable(): boolean {
    return this.#opened !== null || (!this.#isUnusable && existsSync(this.#settings.path));
  }

  close(): void {
    this.#isClosed = true;
    this.#opened?.drop();
    this.#opened = null;
  }

  async #checkFile(): Promise<void> {
    const { path, clock, lookEvery_ms: intervalMs = 1_000, memoryLimit = "512MB" } = this.#settings;
    if (this.#isClosed || clock.monotonic() - this.#checkedAtMs < intervalMs) return;
    this.#checkedAtMs = clock.monotonic();
    try {
      const { ino, size, mtimeNs } = await stat(path, { bigint: true });
      const fileId = `${ino} ${size} ${mtimeNs}`;
      if (fileId === this.#opened?.fileId) return;
      const opened = await OpenedFile.open(path, fileId, memoryLimit);
      this.#opened?.drop();
      this.#opened = opened;
      this.#isUnusable = false;
      if (this.#isClosed) this.close();
    } catch (error) {
      // The file was removed, or is not a register of this version. A file that is open stays in use: it is older but
      // complete.
      this.#isUnusable = (error as NodeJS.ErrnoException).code !== "ENOENT";
      if (error instanceof NoRegister) this.#unavailableReason = error.message;
      else if ((error as NodeJS.ErrnoException).code !== "ENOENT")
        this.#unavailableReason = "the register cannot be opened";
    }
  }
}
