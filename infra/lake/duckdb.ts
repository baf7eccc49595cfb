import { mkdirSync, rmSync } from "node:fs";
import { dirname, resolve } from "node:path";
import {
  type DuckDBConnection,
  type DuckDBDataChunk,
  DuckDBInstance,
  type DuckDBMaterializedResult,
} from "@duckdb/node-api";
import { Semaphore } from "../concurrency.ts";
import { Failure } from "../errors.ts";
import { type DamagedFile, isDamage, isDamagedOnOpen, isLocked, LakeBusy, messageOf, setAside } from "./damage.ts";

/**
 * Values for the parameters `$name` of a statement. A list is passed as JSON text: `from_json($rows, '["VARCHAR"]')`.
 */
export type Params = Record<string, string | number | bigint | boolean | null>;

/** Runs SQL statements: on the {@link Lake} itself, or in one open transaction of it. */
export interface Statements {
  /** Runs one or several statements, each with the parameters that it names. Returns no rows. */
  run(text: string, params?: Params): Promise<void>;
  /**
   * Returns all rows of the last statement as plain objects: BIGINT as bigint, TIMESTAMP as Date, lists as arrays. Use
   * it only for bounded results, since half a million rows block the event loop for 2.7 s.
   */
  all<T>(text: string, params?: Params): Promise<T[]>;
  /**
   * Runs one query and yields DuckDB's own column batches (2,048 rows), for millions of rows of numbers; no object is
   * made for a row. In a transaction, no other statement may run until the last batch was read, since DuckDB drops
   * unread results of its connection. Each batch becomes invalid when the next one is requested: copy texts and bytes
   * before that.
   */
  batches(text: string, params?: Params): AsyncGenerator<DuckDBDataChunk>;
}

/** Runs the statements of a stage: work that a transaction does before it begins ({@link Lake.transaction}). */
export type Staging = Pick<Statements, "run" | "all">;

export interface LakeSettings {
  /** Memory limit in DuckDB's notation, such as "2GB". Above it, DuckDB spills to the work folder. */
  memoryLimit: string;
  /** Number of threads of DuckDB. */
  threads: number;
  /**
   * Statements that create settings and tables. They run at every open and after every replacement, so they must be
   * repeatable.
   */
  init: readonly string[];
  /**
   * Version number of the tables that `init` creates. A file with tables of another version is refused; by default
   * nothing is checked.
   */
  form?: number;
  /**
   * Number of connections for queries beside the writer (default 2). Each running query occupies one of libuv's four
   * pool threads.
   */
  readers?: number;
}

/**
 * A DuckDB file that serves as a rebuildable cache. One writer connection is guarded by a mutex; readers see the last
 * committed state. Only one process, with one handle, may open the file (LakeBusy).
 * A file that cannot be opened is set aside and replaced by an empty one; `aside` then names it, and the caller loads
 * its rows again. A committed transaction survives kill -9; a torn file is detected at the next open.
 */
export interface Lake extends Statements {
  readonly path: string;
  /** Folder for temporary files of imports and exports; emptied at every open. */
  readonly workDir: string;
  /** The damaged file that this handle set aside (renamed) last, or null. */
  readonly aside: DamagedFile | null;
  /**
   * Runs one query on a reader connection and yields its rows batch by batch. The connection is held until the last
   * batch or an early return.
   */
  stream<T>(text: string, params?: Params): AsyncGenerator<T[]>;
  /**
   * Runs `work` in a transaction; an exception rolls it back. Do not nest: a transaction inside another one waits for
   * ever.
   * @param stage runs before the transaction begins, on the same connection. Another transaction may be open meanwhile,
   * so `stage` must write nothing but temporary tables, which `work` then sees. At most two calls with a stage run at
   * once; the others wait. Each statement of a stage takes the place of a reader.
   */
  transaction<T>(work: (tx: Statements) => Promise<T>, stage?: (connection: Staging) => Promise<void>): Promise<T>;
  /**
   * While `work` runs, every statement of this lake uses one thread, also the statements of other callers. Calls may
   * overlap. This saves processor time when the work has threads of its own: with several engine threads, the thread
   * that waits for the last task of a statement polls for tasks in a loop instead of sleeping. If a reader is running
   * a query when `work` begins, the number of threads does not change.
   */
  onOneThread<T>(work: () => Promise<T>): Promise<T>;
  /**
   * Replaces the file by an empty one, after all users have finished. With a reason the old file is set aside,
   * otherwise deleted.
   */
  replace(reason: string | null): Promise<void>;
  close(): Promise<void>;
}

/** Thrown when the file holds tables of another version than this code reads. The file is not changed. */
export class LakeForm extends Failure {
  constructor(
    readonly path: string,
    /** Version in the file; null when it has none, as files from before versions were numbered. */
    readonly foundForm: number | null,
    readonly form: number,
  ) {
    const isNewer = foundForm !== null && foundForm > form;
    super(
      "record",
      isNewer
        ? `lake ${path}: a newer release made it (form ${foundForm}, this one has ${form}): go on with that release, or make it anew: touchstone rebuild`
        : `lake ${path}: an older release made it (form ${foundForm ?? "0"}, this one has ${form}): touchstone migrate makes it anew from the segments`,
    );
  }
}

/** DuckDB storage version of new files. Existing files keep theirs. */
const STORAGE_VERSION = "v1.4.0";

/**
 * Paths that this process has open. DuckDB's `create()` silently loses rows when a file is opened twice in one process,
 * so a second handle is refused.
 */
const openPaths = new Set<string>();

/**
 * Opens a lake, or creates it.
 * @throws LakeBusy when another process or handle has the file; LakeForm when it holds tables of another version;
 * errors of the machine (disk, rights) unchanged
 */
export async function openLake(path: string, settings: LakeSettings): Promise<Lake> {
  const file = resolve(path);
  if (openPaths.has(file)) throw new LakeBusy(file);
  const lake = new DuckLake(file, settings);
  openPaths.add(file);
  try {
    await lake.start();
  } catch (error) {
    openPaths.delete(file);
    throw isLocked(error) ? new LakeBusy(file, error) : error;
  }
  return lake;
}

class DuckLake implements Lake {
  readonly path: string;
  readonly workDir: string;
  aside: DamagedFile | null = null;
  readonly #settings: LakeSettings;
  readonly #writerLock = new Semaphore(1);
  readonly #readerPlaces: Semaphore;
  readonly #stagerPlaces = new Semaphore(2);
  #instance: DuckDBInstance | undefined;
  #writer: DuckDBConnection | undefined;
  /** Free connections for queries. */
  #readers: DuckDBConnection[] = [];
  /** Free connections for transactions with a stage. */
  #stagers: DuckDBConnection[] = [];
  /** Number of running calls of `onOneThread`. */
  #oneThreadCalls = 0;

  constructor(path: string, settings: LakeSettings) {
    this.path = path;
    this.#settings = settings;
    this.#readerPlaces = new Semaphore(settings.readers ?? 2);
    this.workDir = `${path}.work`;
  }

  /**
   * Opens the file. A damaged file is set aside and an empty one is opened instead. If opening the empty one fails too,
   * the error is thrown, since a new file cannot be damaged. If DuckDB opened the file but a statement of `init` fails,
   * the file is kept, unless the error shows that the file is damaged.
   */
  async start(): Promise<void> {
    let isFileFault = isDamagedOnOpen;
    try {
      try {
        await this.#openFile();
        isFileFault = isDamage;
        await this.#refuseOtherForm();
        await this.#runInit();
      } catch (error) {
        if (!isFileFault(error)) throw error;
        this.#closeConnections();
        this.aside = setAside(this.path, messageOf(error));
        await this.#openNew();
      }
    } catch (error) {
      this.#closeConnections();
      throw error;
    }
  }

  async run(text: string, params?: Params): Promise<void> {
    const release = await this.#writerLock.take();
    try {
      await execute(this.#writerConnection(), text, params);
    } finally {
      release();
    }
  }

  async all<T>(text: string, params?: Params): Promise<T[]> {
    const { reader, done } = await this.#takeReader();
    try {
      return await query<T>(reader, text, params);
    } finally {
      done();
    }
  }

  async *batches(text: string, params?: Params): AsyncGenerator<DuckDBDataChunk> {
    const { reader, done } = await this.#takeReader();
    try {
      yield* batchesOf(reader, text, params);
    } finally {
      done();
    }
  }

  async *stream<T>(text: string, params?: Params): AsyncGenerator<T[]> {
    const { reader, done } = await this.#takeReader();
    try {
      const result = await withStatementInError(text, () => reader.stream(text, params));
      for await (const rows of result.yieldRowObjectJs()) yield rows as T[];
    } finally {
      done();
    }
  }

  async transaction<T>(
    work: (tx: Statements) => Promise<T>,
    stage?: (connection: Staging) => Promise<void>,
  ): Promise<T> {
    if (!stage) return this.#transactionOn(() => this.#writerConnection(), work);
    const release = await this.#stagerPlaces.take();
    const stager = this.#stagers.pop();
    try {
      if (!stager) throw new Error(`lake ${this.path}: closed`);
      await stage({
        run: (text, params) => this.#asReader(() => execute(stager, text, params)),
        all: (text, params) => this.#asReader(() => query(stager, text, params)),
      });
      return await this.#transactionOn(() => stager, work);
    } finally {
      if (stager) this.#stagers.push(stager);
      release();
    }
  }

  /** Runs a statement of a stage in the place of a reader, so that stages do not occupy further threads of libuv. */
  async #asReader<T>(work: () => Promise<T>): Promise<T> {
    const release = await this.#readerPlaces.take();
    try {
      return await work();
    } finally {
      release();
    }
  }

  /** Runs `work` in a transaction on a connection, while no other connection writes. */
  async #transactionOn<T>(connection: () => DuckDBConnection, work: (tx: Statements) => Promise<T>): Promise<T> {
    const release = await this.#writerLock.take();
    try {
      const writer = connection();
      await writer.run("BEGIN TRANSACTION");
      try {
        const result = await work(toStatements(writer));
        await execute(writer, "COMMIT");
        return result;
      } catch (error) {
        // After a failed COMMIT there is nothing left to roll back, so a failing ROLLBACK is ignored and the first
        // error is thrown.
        await writer.run("ROLLBACK").catch(() => {});
        throw error;
      }
    } finally {
      release();
    }
  }

  async onOneThread<T>(work: () => Promise<T>): Promise<T> {
    const isFirst = this.#oneThreadCalls++ === 0;
    try {
      if (isFirst) await this.#setThreads(1);
      return await work();
    } finally {
      // An error is ignored: the lake is then replaced or closed, and the next file is opened with the configured number
      // of threads.
      if (--this.#oneThreadCalls === 0) await this.#setThreads(this.#settings.threads).catch(() => undefined);
    }
  }

  /**
   * Sets the number of threads of the engine. Threads are removed only while no reader is in use: the engine waits
   * until each removed thread has ended, and a thread that works on a query ends only after that query. Meanwhile
   * every writer would wait.
   */
  async #setThreads(threads: number): Promise<void> {
    const release = await this.#writerLock.take();
    try {
      const isReaderBusy = this.#readers.length < this.#readerPlaces.width;
      if (threads > 1 || !isReaderBusy) await execute(this.#writerConnection(), `SET threads = ${threads}`);
    } finally {
      release();
    }
  }

  async replace(reason: string | null): Promise<void> {
    const release = await this.#lockAll();
    try {
      this.#closeConnections();
      if (reason !== null) this.aside = setAside(this.path, reason);
      else for (const suffix of ["", ".wal"]) rmSync(`${this.path}${suffix}`, { force: true });
      await this.#openNew();
    } finally {
      release();
    }
  }

  async close(): Promise<void> {
    const release = await this.#lockAll();
    this.#closeConnections();
    rmSync(this.workDir, { recursive: true, force: true });
    openPaths.delete(this.path);
    release();
  }

  /** Waits until no other caller uses the file. @returns the function that releases the file to other callers */
  async #lockAll(): Promise<() => void> {
    // The locks are taken in the order in which a transaction with a stage takes them, so that the two cannot wait for
    // each other.
    const releases: (() => void)[] = [];
    for (let i = 0; i < this.#stagerPlaces.width; i++) releases.push(await this.#stagerPlaces.take());
    releases.push(await this.#writerLock.take());
    for (let i = 0; i < this.#readerPlaces.width; i++) releases.push(await this.#readerPlaces.take());
    return () => {
      for (const release of releases) release();
    };
  }

  async #openNew(): Promise<void> {
    await this.#openFile();
    await this.#runInit();
  }

  /** Lets DuckDB open the file, or create it. */
  async #openFile(): Promise<void> {
    mkdirSync(dirname(this.path), { recursive: true });
    rmSync(this.workDir, { recursive: true, force: true });
    mkdirSync(this.workDir, { recursive: true });
    this.#instance = await DuckDBInstance.fromCache(this.path, {
      memory_limit: this.#settings.memoryLimit,
      threads: String(this.#settings.threads),
      // Storage version of a new file. It packs strings twice as fast as DuckDB's default, which is an old version that
      // every release of DuckDB can read. That is not needed here: only this program opens the file, and a file that
      // it cannot read is rebuilt from the segments (the Parquet files that hold the log's records).
      storage_compatibility_version: STORAGE_VERSION,
      temp_directory: `${this.workDir}/spill`,
      // All needed extensions are built in. DuckDB must not download any.
      autoinstall_known_extensions: "false",
    });
    this.#writer = await this.#instance.connect();
  }

  /** Checks that the tables in the file have the version of the settings. @throws LakeForm for another version */
  async #refuseOtherForm(): Promise<void> {
    const { form } = this.#settings;
    if (form === undefined) return;
    const writer = this.#writerConnection();
    const tables = await query<{ name: string }>(writer, "SELECT table_name AS name FROM duckdb_tables()");
    if (tables.length === 0) return;
    const [formRow] = tables.some(({ name }) => name === "lake_form")
      ? await query<{ form: number }>(writer, "SELECT form FROM lake_form")
      : [];
    if (formRow?.form !== form) throw new LakeForm(this.path, formRow?.form ?? null, form);
  }

  /** Runs `init` in one transaction, since about fifty separate statements would each wait for the disk. */
  async #runInit(): Promise<void> {
    const writer = this.#writerConnection();
    await writer.run("BEGIN TRANSACTION");
    for (const text of this.#settings.init) await execute(writer, text);
    const { form } = this.#settings;
    if (form !== undefined)
      await execute(writer, `CREATE TABLE IF NOT EXISTS lake_form AS SELECT ${form}::INTEGER AS form`);
    await execute(writer, "COMMIT");
    for (let i = 0; i < this.#readerPlaces.width; i++) this.#readers.push(await this.#instance!.connect());
    for (let i = 0; i < this.#stagerPlaces.width; i++) this.#stagers.push(await this.#instance!.connect());
  }

  #closeConnections(): void {
    for (const connection of [...this.#readers, ...this.#stagers, this.#writer]) connection?.closeSync();
    this.#instance?.closeSync();
    this.#readers = [];
    this.#stagers = [];
    this.#writer = undefined;
    this.#instance = undefined;
  }

  async #takeReader(): Promise<{ reader: DuckDBConnection; done: () => void }> {
    const release = await this.#readerPlaces.take();
    const reader = this.#readers.pop();
    if (!reader) {
      release();
      throw new Error(`lake ${this.path}: closed`);
    }
    return {
      reader,
      done: () => {
        this.#readers.push(reader);
        release();
      },
    };
  }

  #writerConnection(): DuckDBConnection {
    if (!this.#writer) throw new Error(`lake ${this.path}: closed`);
    return this.#writer;
  }
}

/**
 * Runs statements one after the other. DuckDB binds parameters to one statement at a time and refuses those that the
 * statement does not name.
 * @returns the result of the last statement @throws Error also for a parameter that no statement names
 */
async function runAll(connection: DuckDBConnection, text: string, params?: Params): Promise<DuckDBMaterializedResult> {
  if (!params) return connection.run(text);
  const statements = await connection.extractStatements(text);
  const unused = new Set(Object.keys(params));
  let result: DuckDBMaterializedResult | undefined;
  for (let index = 0; index < statements.count; index++) {
    // Prepared only now, since it may use a table that the previous statement created.
    const statement = await statements.prepare(index);
    try {
      const names = Array.from({ length: statement.parameterCount }, (_, i) => statement.parameterName(i + 1));
      statement.bind(Object.fromEntries(names.flatMap((name) => (name in params ? [[name, params[name]!]] : []))));
      for (const name of names) unused.delete(name);
      result = await statement.run();
    } finally {
      statement.destroySync();
    }
  }
  if (!result || unused.size > 0) throw new Error(`no statement names ${[...unused].join(", ") || "anything"}`);
  return result;
}

async function execute(connection: DuckDBConnection, text: string, params?: Params): Promise<void> {
  await withStatementInError(text, () => runAll(connection, text, params));
}

/**
 * Collects the rows of a query as objects. DuckDB gives them in batches of 2,048, and the event loop runs between
 * batches.
 */
async function query<T>(connection: DuckDBConnection, text: string, params?: Params): Promise<T[]> {
  return withStatementInError(text, async () => {
    const rows: T[] = [];
    for await (const batchRows of (await runAll(connection, text, params)).yieldRowObjectJs())
      for (const row of batchRows) rows.push(row as T);
    return rows;
  });
}

async function* batchesOf(
  connection: DuckDBConnection,
  text: string,
  params?: Params,
): AsyncGenerator<DuckDBDataChunk> {
  const result = await withStatementInError(text, () => connection.stream(text, params));
  for (;;) {
    const batch = await withStatementInError(text, () => result.fetchChunk());
    if (!batch || batch.rowCount === 0) return;
    yield batch;
  }
}

/** Returns statements on a bare connection, which nobody else may use meanwhile. */
export const toStatements = (connection: DuckDBConnection): Statements => ({
  run: (text, params) => execute(connection, text, params),
  all: (text, params) => query(connection, text, params),
  batches: (text, params) => batchesOf(connection, text, params),
});

/** Runs `work`; an error of DuckDB is thrown again with the beginning of its statement. */
async function withStatementInError<T>(text: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const statement = text.trim().replace(/\s+/g, " ").slice(0, 120);
    throw new Error(`lake: ${(error as Error).message} (in: ${statement})`, { cause: error });
  }
}
