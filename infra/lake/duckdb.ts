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
import { isDamage, isDamagedOnOpen, isLocked, LakeBusy, messageOf, type SetAside, setAside } from "./damage.ts";

/** Values of `$name` in a statement. A list goes in as JSON text: `from_json($rows, '["VARCHAR"]')`. */
export type Params = Record<string, string | number | bigint | boolean | null>;

/** Runs statements: the lake itself, or one open transaction of it. */
export interface Statements {
  /** Run one or several statements, each with the parameters that it names. Nothing is given back. */
  run(text: string, params?: Params): Promise<void>;
  /**
   * All rows of the last statement as plain objects: BIGINT as bigint, TIMESTAMP as Date, lists as arrays. Bounded results only:
   * it takes 2.7 s of the event loop for half a million rows.
   */
  all<T>(text: string, params?: Params): Promise<T[]>;
  /**
   * One query in the engine's own batches of columns (2,048 rows), for millions of rows of numbers: no object is made of
   * a row. Nothing else may run on these statements until the last batch: the engine drops what it has not handed out. And
   * what it handed out is gone when the next batch is asked for: texts and bytes lie in its own memory until they are copied.
   */
  batches(text: string, params?: Params): AsyncGenerator<DuckDBDataChunk>;
}

export interface LakeSettings {
  /** As DuckDB writes sizes: "2GB". Past it, it spills to the work folder. */
  memoryLimit: string;
  threads: number;
  /** Statements that make settings and tables; run at every open and after every replacement, so they repeat safely. */
  init: readonly string[];
  /** Number of the form that `init` makes: a file that holds tables of another one is refused (default: none is asked). */
  form?: number;
  /** Connections for queries beside the writer (default 2). Each running query takes a thread of libuv's pool of four. */
  readers?: number;
}

/**
 * A DuckDB file as a cache that can be rebuilt. One writer connection behind a mutex, some readers; a reader sees the last
 * committed state. One process holds the file at a time (LakeBusy), and one handle of it.
 *
 * A file that cannot be opened is set aside and replaced by an empty one. `aside` tells, and the owner of the rows
 * loads them again. Durability: a committed transaction survives kill -9; a torn file is found at the next open.
 */
export interface Lake extends Statements {
  readonly path: string;
  /** Folder for files on their way in or out; emptied at every open. */
  readonly workDir: string;
  /** The newest file that was set aside by this handle, or null. */
  readonly aside: SetAside | null;
  /** One query on a reader connection, batch by batch; the connection is held until the last batch or an early return. */
  stream<T>(text: string, params?: Params): AsyncGenerator<T[]>;
  /** All or nothing on the writer. A throw rolls back. Not to be nested: a second one inside the first waits for ever. */
  transaction<T>(work: (tx: Statements) => Promise<T>): Promise<T>;
  /**
   * Gives every statement of this lake one thread as long as `work` runs, also those of others; calls may overlap. Work that
   * has threads of its own beside the engine needs less CPU so: with more threads, the one that waits for the last task of a
   * statement does not sleep but asks for tasks in a loop.
   */
  onOneThread<T>(work: () => Promise<T>): Promise<T>;
  /** Replace the file by an empty one. With a reason the old one is set aside, else it is deleted. Waits for all users. */
  replace(reason: string | null): Promise<void>;
  close(): Promise<void>;
}

/** The file holds tables of another form than those that are read here. Nothing was changed in it. */
export class LakeForm extends Failure {
  constructor(
    readonly path: string,
    /** Null: it names none, as files from before forms had numbers. */
    readonly found: number | null,
    readonly form: number,
  ) {
    const isNewer = found !== null && found > form;
    super(
      "record",
      isNewer
        ? `lake ${path}: a newer release made it (form ${found}, this one has ${form}): go on with that release, or make it anew: touchstone rebuild`
        : `lake ${path}: an older release made it (form ${found ?? "0"}, this one has ${form}): touchstone migrate makes it anew from the segments`,
    );
  }
}

/** Form of the files that are made; those from before keep theirs. */
const STORAGE_VERSION = "v1.4.0";

/** DuckDB's `create()` on a file that this process has open loses rows silently; so a second handle is refused here. */
const open = new Set<string>();

/**
 * @throws LakeBusy when another process or handle has the file; LakeForm when it holds tables of another form; the
 * machine's own errors (disk, rights) as they are
 */
export async function openLake(path: string, settings: LakeSettings): Promise<Lake> {
  const file = resolve(path);
  if (open.has(file)) throw new LakeBusy(file);
  const lake = new DuckLake(file, settings);
  open.add(file);
  try {
    await lake.start();
  } catch (error) {
    open.delete(file);
    throw isLocked(error) ? new LakeBusy(file, error) : error;
  }
  return lake;
}

class DuckLake implements Lake {
  readonly path: string;
  readonly workDir: string;
  aside: SetAside | null = null;
  readonly #settings: LakeSettings;
  readonly #writing = new Semaphore(1);
  readonly #reading: Semaphore;
  #instance: DuckDBInstance | undefined;
  #writer: DuckDBConnection | undefined;
  #readers: DuckDBConnection[] = [];
  /** Calls of `onOneThread` under way. */
  #onOneThread = 0;

  constructor(path: string, settings: LakeSettings) {
    this.path = path;
    this.#settings = settings;
    this.#reading = new Semaphore(settings.readers ?? 2);
    this.workDir = `${path}.work`;
  }

  /**
   * Open, or set the file aside and open an empty one. Once: a file that was just made is not at fault. Nor is one that
   * the engine took when a statement of `init` fails, unless it says that the file has gone bad.
   */
  async start(): Promise<void> {
    let isFault = isDamagedOnOpen;
    try {
      try {
        await this.#take();
        isFault = isDamage;
        await this.#refuseOtherForm();
        await this.#prepare();
      } catch (error) {
        if (!isFault(error)) throw error;
        this.#drop();
        this.aside = setAside(this.path, messageOf(error));
        await this.#open();
      }
    } catch (error) {
      this.#drop();
      throw error;
    }
  }

  async run(text: string, params?: Params): Promise<void> {
    const done = await this.#writing.take();
    try {
      await execute(this.#connection(), text, params);
    } finally {
      done();
    }
  }

  async all<T>(text: string, params?: Params): Promise<T[]> {
    const { reader, done } = await this.#reader();
    try {
      return await query<T>(reader, text, params);
    } finally {
      done();
    }
  }

  async *batches(text: string, params?: Params): AsyncGenerator<DuckDBDataChunk> {
    const { reader, done } = await this.#reader();
    try {
      yield* batchesOf(reader, text, params);
    } finally {
      done();
    }
  }

  async *stream<T>(text: string, params?: Params): AsyncGenerator<T[]> {
    const { reader, done } = await this.#reader();
    try {
      const result = await named(text, () => reader.stream(text, params));
      for await (const rows of result.yieldRowObjectJs()) yield rows as T[];
    } finally {
      done();
    }
  }

  async transaction<T>(work: (tx: Statements) => Promise<T>): Promise<T> {
    const done = await this.#writing.take();
    try {
      const writer = this.#connection();
      await writer.run("BEGIN TRANSACTION");
      try {
        const result = await work(statementsOn(writer));
        await execute(writer, "COMMIT");
        return result;
      } catch (error) {
        // After a failed COMMIT there is nothing left to roll back; the first error is the one that counts.
        await writer.run("ROLLBACK").catch(() => {});
        throw error;
      }
    } finally {
      done();
    }
  }

  async onOneThread<T>(work: () => Promise<T>): Promise<T> {
    if (this.#onOneThread++ === 0) await this.run("SET threads = 1");
    try {
      return await work();
    } finally {
      // A lake that fails here is replaced or closed, and the next file is opened with its setting.
      if (--this.#onOneThread === 0) await this.run(`SET threads = ${this.#settings.threads}`).catch(() => undefined);
    }
  }

  async replace(reason: string | null): Promise<void> {
    const done = await this.#alone();
    try {
      this.#drop();
      if (reason !== null) this.aside = setAside(this.path, reason);
      else for (const end of ["", ".wal"]) rmSync(`${this.path}${end}`, { force: true });
      await this.#open();
    } finally {
      done();
    }
  }

  async close(): Promise<void> {
    const done = await this.#alone();
    this.#drop();
    rmSync(this.workDir, { recursive: true, force: true });
    open.delete(this.path);
    done();
  }

  /** Every turn there is, so that nobody is inside. */
  async #alone(): Promise<() => void> {
    const turns = [await this.#writing.take()];
    for (let i = 0; i < this.#reading.width; i++) turns.push(await this.#reading.take());
    return () => {
      for (const done of turns) done();
    };
  }

  async #open(): Promise<void> {
    await this.#take();
    await this.#prepare();
  }

  /** The engine takes the file, or makes one. */
  async #take(): Promise<void> {
    mkdirSync(dirname(this.path), { recursive: true });
    rmSync(this.workDir, { recursive: true, force: true });
    mkdirSync(this.workDir, { recursive: true });
    this.#instance = await DuckDBInstance.fromCache(this.path, {
      memory_limit: this.#settings.memoryLimit,
      threads: String(this.#settings.threads),
      // Of a file that is made now. Strings are packed twice as quickly as in the form that any engine reads: this one is
      // ours alone, and is made anew from the segments where it does not fit.
      storage_compatibility_version: STORAGE_VERSION,
      temp_directory: `${this.workDir}/spill`,
      // Everything needed is built in; an extension is never fetched from a network.
      autoinstall_known_extensions: "false",
    });
    this.#writer = await this.#instance.connect();
  }

  /** @throws LakeForm */
  async #refuseOtherForm(): Promise<void> {
    const { form } = this.#settings;
    if (form === undefined) return;
    const writer = this.#connection();
    const tables = await query<{ name: string }>(writer, "SELECT table_name AS name FROM duckdb_tables()");
    if (tables.length === 0) return;
    const [stamp] = tables.some(({ name }) => name === "lake_form")
      ? await query<{ form: number }>(writer, "SELECT form FROM lake_form")
      : [];
    if (stamp?.form !== form) throw new LakeForm(this.path, stamp?.form ?? null, form);
  }

  /** One transaction: some fifty statements would each wait for the disk. */
  async #prepare(): Promise<void> {
    const writer = this.#connection();
    await writer.run("BEGIN TRANSACTION");
    for (const text of this.#settings.init) await execute(writer, text);
    const { form } = this.#settings;
    if (form !== undefined)
      await execute(writer, `CREATE TABLE IF NOT EXISTS lake_form AS SELECT ${form}::INTEGER AS form`);
    await execute(writer, "COMMIT");
    for (let i = 0; i < this.#reading.width; i++) this.#readers.push(await this.#instance!.connect());
  }

  #drop(): void {
    for (const connection of [...this.#readers, this.#writer]) connection?.closeSync();
    this.#instance?.closeSync();
    this.#readers = [];
    this.#writer = undefined;
    this.#instance = undefined;
  }

  async #reader(): Promise<{ reader: DuckDBConnection; done: () => void }> {
    const done = await this.#reading.take();
    const reader = this.#readers.pop();
    if (!reader) {
      done();
      throw new Error(`lake ${this.path}: closed`);
    }
    return {
      reader,
      done: () => {
        this.#readers.push(reader);
        done();
      },
    };
  }

  #connection(): DuckDBConnection {
    if (!this.#writer) throw new Error(`lake ${this.path}: closed`);
    return this.#writer;
  }
}

/**
 * Statements one after the other. The engine binds parameters to one statement at a time and refuses those that it does not
 * name. @returns the result of the last @throws Error also for a parameter that no statement names
 */
async function runAll(connection: DuckDBConnection, text: string, params?: Params): Promise<DuckDBMaterializedResult> {
  if (!params) return connection.run(text);
  const statements = await connection.extractStatements(text);
  const unused = new Set(Object.keys(params));
  let result: DuckDBMaterializedResult | undefined;
  for (let at = 0; at < statements.count; at++) {
    // Prepared in its turn: it may speak of a table that the one before it makes.
    const statement = await statements.prepare(at);
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
  await named(text, () => runAll(connection, text, params));
}

/** The engine's rows become objects batch by batch (2,048 rows), and others have their turn before each. */
async function query<T>(connection: DuckDBConnection, text: string, params?: Params): Promise<T[]> {
  return named(text, async () => {
    const rows: T[] = [];
    for await (const some of (await runAll(connection, text, params)).yieldRowObjectJs())
      for (const row of some) rows.push(row as T);
    return rows;
  });
}

async function* batchesOf(
  connection: DuckDBConnection,
  text: string,
  params?: Params,
): AsyncGenerator<DuckDBDataChunk> {
  const result = await named(text, () => connection.stream(text, params));
  for (;;) {
    const batch = await named(text, () => result.fetchChunk());
    if (!batch || batch.rowCount === 0) return;
    yield batch;
  }
}

/** Statements on a bare connection, which nobody else may use meanwhile. */
export const statementsOn = (connection: DuckDBConnection): Statements => ({
  run: (text, params) => execute(connection, text, params),
  all: (text, params) => query(connection, text, params),
  batches: (text, params) => batchesOf(connection, text, params),
});

/** The engine's own words, with the statement they speak of. */
async function named<T>(text: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const statement = text.trim().replace(/\s+/g, " ").slice(0, 120);
    throw new Error(`lake: ${(error as Error).message} (in: ${statement})`, { cause: error });
  }
}
