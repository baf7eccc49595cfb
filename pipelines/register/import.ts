import { createWriteStream, rmSync } from "node:fs";
import { open, rename, stat, symlink } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { crc32 } from "node:zlib";
import { type Entry, openPromise as openZip, type ZipFile } from "yauzl";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { type Lake, openLake, type Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { openProcessLock } from "../../infra/store/lock.ts";

/**
 * Version of the register's tables and macros. A register of another version is not opened; it has to be imported
 * again.
 */
export const REGISTER_FORM = 3;

/** The register's file in a data folder. */
export const registerPath = (dataDir: string): string => join(dataDir, "register.duckdb");

type RefusalReason =
  | ("no_row" | "no_lei" | "check_digits" | "no_name" | "again")
  | ("no_domain" | "no_company")
  | ("other_kind" | "ended" | "itself" | "no_reason");

/** Rows that were not stored, for one reason. */
export interface RefusedRows {
  reason: RefusalReason;
  rows: number;
  /** The first few of these rows. */
  examples: string[];
}

/** Result of reading a file that supplements the golden copy, GLEIF's file of all companies with a LEI. */
export interface AdditionalFileResult {
  rows_read: number;
  /** Number of rows that were stored. */
  kept: number;
  refused: RefusedRows[];
}

/** What an import read and stored. */
export interface ImportResult {
  /** Path of the register. */
  register: string;
  /** File name of the golden copy. */
  source: string;
  /** Number of rows of the golden copy. */
  rows_read: number;
  /** Number of companies that were stored. */
  rows_kept: number;
  refused: RefusedRows[];
  /** Number of names of the stored companies. */
  names: number;
  /** Result of reading the file of domains. null: no file of domains was given. */
  domains: AdditionalFileResult | null;
  /** Result of reading GLEIF's file of reported parent companies; null: the file was not given. */
  relationships: AdditionalFileResult | null;
  /** Result of reading GLEIF's file of the reasons why a parent is not reported; null: the file was not given. */
  exceptions: AdditionalFileResult | null;
  /** Newest time at which GLEIF updated one of the companies, RFC 3339; null if no row has a time. */
  newest_update: string | null;
  /** Size of the register's file, bytes. */
  bytes: number;
  took_s: number;
}

export interface ImportOptions {
  /** Path of GLEIF's golden copy. */
  source: string;
  /** Path of a file with pairs `lei,domain`, which GLEIF does not publish. */
  domains?: string | undefined;
  /** Path of GLEIF's file of relationship records (level 2), which name parent companies. */
  relationships?: string | undefined;
  /** Path of GLEIF's file of reporting exceptions (level 2), the reasons why a parent is not reported. */
  exceptions?: string | undefined;
  /** Path of the register; an older one is replaced when the new one is complete. */
  to: string;
  clock: Clock;
  progress?: (says: string) => void;
}

const thousands = (n: number): string => n.toLocaleString("en");

const readRefused = async (tx: Statements, query: string): Promise<RefusedRows[]> =>
  (await tx.all<Omit<RefusedRows, "rows"> & { rows: bigint }>(query)).map((row) => ({
    ...row,
    rows: Number(row.rows),
  }));

const countRows = async (tx: Statements, table: string): Promise<number> =>
  Number((await tx.all<{ n: bigint }>(`SELECT count(*) AS n FROM ${table}`))[0]!.n);

const countRefused = (refused: readonly RefusedRows[], onlyReason?: RefusedRows["reason"]): number =>
  refused
    .filter(({ reason }) => onlyReason === undefined || reason === onlyReason)
    .reduce((sum, { rows }) => sum + rows, 0);

/** Runs queries on the connection that writes, since temporary tables are visible only there. */
const runOnWriter = <T>(lake: Lake, work: (tx: Statements) => Promise<T>): Promise<T> => lake.transaction(work);

/** Reads the names of a file's columns; none when the engine cannot read the file as a table. */
async function columnsOf(lake: Lake, file: string): Promise<string[]> {
  try {
    return (await lake.all<{ name: string }>(sql("register/made:columns"), { file })).map(({ name }) => name);
  } catch (error) {
    if (!/sniffing|CSV/i.test((error as Error).message)) throw error;
    return [];
  }
}

/** Reads the rows of the golden copy, and finds those that must be refused. @throws Failure `unreadable` */
async function readRows(lake: Lake, file: string, source: string): Promise<{ read: number; refused: RefusedRows[] }> {
  checkColumns(source, GOLDEN_COPY, await columnsOf(lake, file));
  await lake.run(sql("register/rows:read"), { file });
  await lake.run(sql("register/rows:refuse"));
  const [rows, refused] = await runOnWriter(lake, async (tx) => [
    await countRows(tx, "row_read"),
    await readRefused(tx, sql("register/rows:counted")),
  ]);
  const rowsRead = rows + countRefused(refused, "no_row");
  if (rowsRead > countRefused(refused)) return { read: rowsRead, refused };
  const firstExample = refused[0] ? `: ${refused[0].reason}, ${refused[0].examples[0]}` : "";
  throw new Failure("unreadable", `no row of ${source} can be kept${firstExample}`);
}

/**
 * Reads one of GLEIF's two files about parent companies (level 2) and stores its valid rows in a temporary table;
 * null when that file was not given.
 * @throws Failure `unreadable`
 */
async function readLevel2(
  lake: Lake,
  { rowsName, table, form }: Level2File,
  source: string | undefined,
  progress: (says: string) => void,
): Promise<AdditionalFileResult | null> {
  if (source === undefined) return null;
  const file = await toReadableFile(source, rowsName, lake.workDir, progress);
  checkColumns(source, form, await columnsOf(lake, file));
  progress(`reading ${rowsName}`);
  await lake.run(sql(`register/parents:read_${rowsName}`), { file });
  await lake.run(sql(`register/parents:refuse_${rowsName}`));
  const counts = await runOnWriter(lake, async (tx) => {
    const refused = await readRefused(tx, sql(`register/parents:counted_${rowsName}`));
    return { rows: (await countRows(tx, `${table}_read`)) + countRefused(refused, "no_row"), refused };
  });
  await lake.run(sql(`register/parents:keep_${rowsName}`));
  rmSync(file);
  return { rows_read: counts.rows, kept: counts.rows - countRefused(counts.refused), refused: counts.refused };
}

async function readDomains(lake: Lake, path: string, file: string): Promise<AdditionalFileResult> {
  const columns = await columnsOf(lake, file);
  if (!["lei", "domain"].every((wanted) => columns.includes(wanted))) {
    throw new Failure(
      "unreadable",
      `${path} is no file of domains: its first line must name the columns lei and domain`,
    );
  }
  await lake.run(sql("register/domains:read"), { file });
  await lake.run(sql("register/domains:keep"));
  await lake.run(sql("register/domains:refuse"));
  return runOnWriter(lake, async (tx) => {
    const refused = await readRefused(tx, sql("register/domains:counted"));
    const rows = (await countRows(tx, "domain_read")) + countRefused(refused, "no_row");
    return { rows_read: rows, kept: await countRows(tx, "domain"), refused };
  });
}

/** Makes the table of companies from the golden copy and up to two files of level 2. */
async function makeCompanies(lake: Lake, options: ImportOptions, progress: (says: string) => void) {
  const file = await toReadableFile(options.source, "rows", lake.workDir, progress);
  progress("reading rows");
  const { read, refused } = await readRows(lake, file, options.source);
  rmSync(file);
  await lake.run(sql("register/parents:none"));
  const relationships = await readLevel2(lake, RELATIONSHIPS, options.relationships, progress);
  const exceptions = await readLevel2(lake, EXCEPTIONS, options.exceptions, progress);
  progress(`keeping ${thousands(read - countRefused(refused))} of ${thousands(read)} rows`);
  await lake.run(sql("register/rows:keep"));
  return { read, refused, relationships, exceptions };
}

/** Makes all tables. The row that marks the file as a register is written last. */
async function makeTables(lake: Lake, options: ImportOptions): Promise<Omit<ImportResult, "bytes" | "took_s">> {
  const progress = options.progress ?? (() => {});
  await lake.run(sql("register/macros"));
  const domainsFile = options.domains && (await toReadableFile(options.domains, "domains", lake.workDir, progress));
  const { read, refused, relationships, exceptions } = await makeCompanies(lake, options, progress);
  progress("names");
  await lake.run(sql("register/words:names"));
  progress("words");
  await lake.run(sql("register/words:postings"));
  await lake.run(sql("register/words:grams"));
  await lake.run(sql("register/words:numbers"));
  await lake.run(sql("register/domains:table"));
  const domainsResult = domainsFile ? await readDomains(lake, options.domains!, domainsFile) : null;
  const source = basename(options.source);
  const facts = {
    ...{ form: REGISTER_FORM, source, imported_at: options.clock.now().toISOString(), rows_read: read },
    ...{ relations: relationships?.kept ?? null, exceptions: exceptions?.kept ?? null },
  };
  await lake.run(sql("register/made:write"), facts);
  const [madeRow] = await lake.all<{ companies: number; names: number; newest_update: string | null }>(
    sql("register/made:read"),
  );
  await lake.run("CHECKPOINT");
  return {
    ...{ register: options.to, source, rows_read: read, rows_kept: madeRow!.companies, refused, names: madeRow!.names },
    ...{ domains: domainsResult, relationships, exceptions, newest_update: madeRow!.newest_update },
  };
}

async function syncFile(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes the register in the temporary file and closes it. On failure it deletes the file. */
async function makeRegisterFile(
  temporaryFile: string,
  options: ImportOptions,
): Promise<Awaited<ReturnType<typeof makeTables>>> {
  // Above this limit the engine spills to disk.
  const lake = await openLake(temporaryFile, { memoryLimit: "1GB", threads: 2, init: [] });
  let isComplete = false;
  try {
    // Deletes the file of an import that was killed, complete or not.
    await lake.replace(null);
    for (const suffix of ["", ".wal", ".txt"]) rmSync(`${temporaryFile}.damaged${suffix}`, { force: true });
    const result = await makeTables(lake, options);
    isComplete = true;
    return result;
  } finally {
    await lake.close();
    if (!isComplete) for (const suffix of ["", ".wal"]) rmSync(`${temporaryFile}${suffix}`, { force: true });
  }
}

/**
 * Makes a register from GLEIF's golden copy in a file beside the old one, and renames it over the old one when it is
 * complete. A run that fails or is killed leaves the old file as it was; what a killed run left is deleted by the
 * next run.
 * @throws Failure `unreadable` for a file of another form; `busy` while another import runs
 */
export async function importRegister(options: ImportOptions): Promise<ImportResult> {
  const startedAt = options.clock.monotonic();
  const temporaryFile = `${options.to}.next`;
  // The engine's own lock ends when it closes the file, before the rename. Without this lock another import could use
  // the file then.
  const importLock = openProcessLock(`${options.to}.lock`);
  try {
    if (!importLock.tryAcquire()) throw new Failure("busy", "another import of the register goes on");
    const result = await makeRegisterFile(temporaryFile, options);
    await syncFile(temporaryFile);
    await rename(temporaryFile, options.to);
    await syncFile(dirname(options.to));
    const { size } = await stat(options.to);
    return { ...result, bytes: size, took_s: Math.round((options.clock.monotonic() - startedAt) / 100) / 10 };
  } finally {
    importLock.close();
  }
}

/** What distinguishes one of GLEIF's files, as CSV, from the others. */
interface Form {
  description: string;
  /** Columns that are read; a file may have others. */
  columns: readonly string[];
}

/**
 * The required columns, with the names of LEI-CDF 3.1 as CSV. Of columns that are numbered, such as a company's other
 * names, the first is required; the others are read if they are there.
 */
const GOLDEN_COPY: Form = {
  description: "golden copy of level 1",
  columns: [
    "LEI",
    "Entity.LegalName",
    "Entity.OtherEntityNames.OtherEntityName.1",
    "Entity.LegalJurisdiction",
    "Entity.LegalForm.EntityLegalFormCode",
    "Entity.LegalForm.OtherLegalForm",
    "Entity.RegistrationAuthority.RegistrationAuthorityID",
    "Entity.RegistrationAuthority.RegistrationAuthorityEntityID",
    "Entity.LegalAddress.FirstAddressLine",
    "Entity.LegalAddress.AdditionalAddressLine.1",
    "Entity.LegalAddress.Country",
    "Entity.LegalAddress.City",
    "Entity.LegalAddress.PostalCode",
    "Entity.HeadquartersAddress.FirstAddressLine",
    "Entity.HeadquartersAddress.AdditionalAddressLine.1",
    "Entity.HeadquartersAddress.Country",
    "Entity.HeadquartersAddress.City",
    "Entity.HeadquartersAddress.PostalCode",
    "Entity.EntityStatus",
    "Entity.EntityExpirationDate",
    "Entity.EntityExpirationReason",
    "Entity.SuccessorEntity.1.SuccessorLEI",
    "Entity.SuccessorEntity.1.SuccessorEntityName",
    "Registration.RegistrationStatus",
    "Registration.LastUpdateDate",
  ],
};

/**
 * A file of level 2. `rowsName`: name of its rows, as the queries of register/parents have it at the end of their names;
 * `table`: its rows are read into the temporary table `<table>_read`.
 */
interface Level2File {
  rowsName: string;
  table: string;
  form: Form;
}

const RELATIONSHIPS: Level2File = {
  rowsName: "relations",
  table: "relation",
  form: {
    description: "file of relationship records (level 2, rr)",
    columns: [
      "Relationship.StartNode.NodeID",
      "Relationship.EndNode.NodeID",
      "Relationship.EndNode.NodeIDType",
      "Relationship.RelationshipType",
      "Relationship.RelationshipStatus",
      "Relationship.Period.1.startDate",
      "Relationship.Period.1.periodType",
      "Registration.RegistrationStatus",
      "Registration.LastUpdateDate",
    ],
  },
};

const EXCEPTIONS: Level2File = {
  rowsName: "exceptions",
  table: "exception",
  form: {
    description: "file of reporting exceptions (level 2, repex)",
    columns: ["LEI", "Exception.Category", "Exception.Reason.1"],
  },
};

const FORMS: readonly Form[] = [GOLDEN_COPY, RELATIONSHIPS.form, EXCEPTIONS.form];

/** Detects the format of a file from its first bytes, since its name may be wrong. */
async function detectFormat(path: string): Promise<"zip" | "gz" | "zst" | "plain"> {
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    throw new Failure("unreadable", `${path}: ${error.code === "ENOENT" ? "there is no such file" : error.message}`);
  });
  try {
    if (!(await file.stat()).isFile()) throw new Failure("unreadable", `${path}: this is not a file`);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(64), 0, 64, 0);
    const firstBytes = buffer.subarray(0, bytesRead);
    if (firstBytes.subarray(0, 4).equals(Buffer.from("PK\x03\x04"))) return "zip";
    if (firstBytes[0] === 0x1f && firstBytes[1] === 0x8b) return "gz";
    if (firstBytes.subarray(0, 4).equals(Buffer.from([0x28, 0xb5, 0x2f, 0xfd]))) return "zst";
    const text = firstBytes
      .toString("utf8")
      .replace(/^\uFEFF/, "")
      .trimStart();
    if (text.startsWith("<")) throw new Failure("unreadable", `${path} is XML: take the golden copy as CSV`);
    if (/^[{[]/.test(text)) throw new Failure("unreadable", `${path} is JSON: take the golden copy as CSV`);
    return "plain";
  } finally {
    await file.close();
  }
}

/** Returns the entries of a ZIP's directory whose names end in .csv. */
async function findCsvEntries(zip: ZipFile): Promise<Entry[]> {
  const csvEntries: Entry[] = [];
  for await (const entry of zip.eachEntry()) if (/\.csv$/i.test(entry.fileName)) csvEntries.push(entry);
  return csvEntries;
}

/**
 * Unpacks the only CSV of a ZIP into a file: the engine (DuckDB) does not read ZIPs, and reads a plain file with all
 * threads. The ZIP library compares the size with that in the ZIP's directory; the checksum is compared here.
 */
async function unpackZip(path: string, targetFile: string, progress: (says: string) => void): Promise<void> {
  const zip = await openZip(path, { autoClose: false });
  try {
    const csvEntries = await findCsvEntries(zip);
    if (csvEntries.length !== 1)
      throw new Failure("unreadable", `${path} holds ${csvEntries.length} CSV files: the golden copy is one`);
    const entry = csvEntries[0]!;
    let [unpackedBytes, reportedPercent, checksum] = [0, -1, 0];
    await pipeline(
      await zip.openReadStreamPromise(entry),
      async function* (chunks: AsyncIterable<Buffer>) {
        for await (const chunk of chunks) {
          unpackedBytes += chunk.length;
          checksum = crc32(chunk, checksum);
          const percent = Math.floor((100 * unpackedBytes) / entry.uncompressedSize);
          if (percent > reportedPercent) progress(`unpacking ${basename(entry.fileName)}: ${percent} %`);
          reportedPercent = percent;
          yield chunk;
        }
      },
      createWriteStream(targetFile, { flags: "wx" }),
    );
    if (checksum !== entry.crc32)
      throw new Failure("unreadable", `${path}: ${entry.fileName} in this ZIP is damaged: it has another checksum`);
  } finally {
    zip.close();
  }
}

/**
 * Returns whether an error shows a damaged ZIP: it has no code, or one of zlib (`Z_`). Errors of the disk have other
 * codes.
 */
const isZipError = ({ code }: NodeJS.ErrnoException): boolean => code === undefined || code.startsWith("Z_");

/**
 * Puts an operator's file into the work folder in a form that the engine reads. Its new path has no characters that
 * the engine would take for a pattern, and the extension of its format. A ZIP is unpacked, which takes as much disk
 * as its content; other files are linked.
 * @throws Failure `unreadable`
 */
async function toReadableFile(
  path: string,
  name: string,
  workDir: string,
  progress: (says: string) => void,
): Promise<string> {
  const format = await detectFormat(path);
  const targetFile = join(workDir, `${name}.csv${format === "gz" || format === "zst" ? `.${format}` : ""}`);
  if (format !== "zip") {
    await symlink(resolve(path), targetFile);
    return targetFile;
  }
  try {
    await unpackZip(path, targetFile, progress);
  } catch (error) {
    if (error instanceof Failure || !isZipError(error as Error)) throw error;
    throw new Failure("unreadable", `${path}: this ZIP is damaged or was cut off (${(error as Error).message})`);
  }
  return targetFile;
}

/**
 * Checks that a file has the columns of the expected form.
 * @throws Failure `unreadable` for a file of another form; the message names that form if it is one of the known forms
 */
function checkColumns(path: string, expectedForm: Form, columns: readonly string[]): void {
  const mismatchText = `${path} is not GLEIF's ${expectedForm.description} as CSV`;
  if (columns.length === 0) throw new Failure("unreadable", `${mismatchText}: no table can be read of it`);
  const missingColumns = expectedForm.columns.filter((column) => !columns.includes(column));
  if (missingColumns.length === 0) return;
  const recognisedForm = FORMS.find(
    (form) => form !== expectedForm && form.columns.slice(0, 2).every((one) => columns.includes(one)),
  );
  const missingText = `${missingColumns.slice(0, 3).join(", ")}${missingColumns.length > 3 ? ` and ${missingColumns.length - 3} more` : ""}`;
  throw new Failure(
    "unreadable",
    `${mismatchText} but ${recognisedForm ? `its ${recognisedForm.description}` : "something else"}: it has no column ${missingText}`,
  );
}
