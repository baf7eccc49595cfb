import { createPrivateKey, generateKeyPairSync } from "node:crypto";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import Database from "better-sqlite3";
import { Failure } from "../../infra/errors.ts";
import { ensurePrivateFolder } from "../../infra/keys/files.ts";
import { signerOf } from "../../infra/keys/signer.ts";
import { isErrno } from "../../infra/store/store.ts";
import type { NoteSigner } from "../../infra/tree/note.ts";

/** The checkpoint that the witness cosigned last for one log. */
export interface CosignedCheckpoint {
  size: number;
  root: Buffer;
  /** Time of the cosignature, whole seconds since 1970. */
  signedS: number;
  /** The checkpoint with the log's signatures and the witness's. */
  note: Buffer;
}

/** Steps of {@link WitnessState.change} at which a test can end the process. */
export type ChangeStep = "begun" | "signed" | "written" | "committed";

/** Longest wait, ms, while another process has the file locked. */
const BUSY_TIMEOUT_MS = 5_000;

const SCHEMA = `
  CREATE TABLE witness (only_one INTEGER PRIMARY KEY CHECK (only_one = 1), name TEXT NOT NULL, private_key TEXT NOT NULL) STRICT;
  CREATE TABLE cosigned (origin TEXT PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL, signed_s INTEGER NOT NULL,
    note BLOB NOT NULL) STRICT;
  PRAGMA user_version = 1;
`;

/**
 * The key of a witness and the checkpoints that it cosigned last, in one SQLite file that only its owner may read.
 * They are in one file, since a key without these checkpoints could sign a second history of a log. Every commit is
 * on the disk before it is acknowledged; several processes may have the file open.
 */
export class WitnessState {
  readonly #db: Database.Database;
  readonly #onStep: (step: ChangeStep) => void;

  private constructor(
    db: Database.Database,
    readonly signer: NoteSigner,
    onStep: (step: ChangeStep) => void,
  ) {
    this.#db = db;
    this.#onStep = onStep;
  }

  /**
   * Opens `witness.sqlite` in `dir`, or makes it with a new Ed25519 key.
   * @param name the witness's name, a URL without scheme; an existing file must have this name in it
   * @param onStep called at each step of a change, for tests
   * @throws Failure `record` for a file of another witness, or a damaged or foreign file
   */
  static open(dir: string, name: string, onStep: (step: ChangeStep) => void = () => undefined): WitnessState {
    ensurePrivateFolder(dir);
    const path = join(dir, "witness.sqlite");
    // SQLite accepts an empty file as a database, and gives its journal files the mode of this file.
    closeSync(openSync(path, "a", 0o600));
    const db = new Database(path, { timeout: BUSY_TIMEOUT_MS });
    try {
      db.pragma("journal_mode = WAL");
      db.pragma("synchronous = FULL");
      return new WitnessState(db, db.transaction(() => readOrMakeSigner(db, path, name)).immediate(), onStep);
    } catch (error) {
      db.close();
      if (!isErrno(error, "SQLITE_NOTADB", "SQLITE_CORRUPT")) throw error;
      throw new Failure("record", `${path} is damaged or no witness: start a new one under another name`, {
        cause: error,
      });
    }
  }

  /** Returns the last cosigned checkpoint of the log with this origin, or null. */
  lastCosigned(origin: string): CosignedCheckpoint | null {
    const row = this.#db
      .prepare<[string], CosignedCheckpoint>(
        "SELECT size, root, signed_s AS signedS, note FROM cosigned WHERE origin = ?",
      )
      .get(origin);
    return row ?? null;
  }

  /**
   * Calls `next` with the checkpoint of this log that was cosigned last, and stores the checkpoint that `next`
   * returns, in a transaction that excludes all other processes with this file. A signature that `next` made must not
   * be sent before this method returns.
   * @returns what `next` returned
   */
  change<T extends { next?: CosignedCheckpoint }>(origin: string, next: (last: CosignedCheckpoint | null) => T): T {
    const decision = this.#db
      .transaction(() => {
        this.#onStep("begun");
        const answer = next(this.lastCosigned(origin));
        if (!answer.next) return answer;
        this.#onStep("signed");
        const { size, root, signedS, note } = answer.next;
        this.#db
          .prepare("INSERT OR REPLACE INTO cosigned (origin, size, root, signed_s, note) VALUES (?, ?, ?, ?, ?)")
          .run(origin, size, root, signedS, note);
        this.#onStep("written");
        return answer;
      })
      .immediate();
    if (decision.next) this.#onStep("committed");
    return decision;
  }

  close(): void {
    this.#db.close();
  }
}

/** Reads the key in the file, or makes one if the file is empty. */
function readOrMakeSigner(db: Database.Database, path: string, name: string): NoteSigner {
  if (db.pragma("user_version", { simple: true }) === 0) {
    const { privateKey } = generateKeyPairSync("ed25519");
    db.exec(SCHEMA);
    db.prepare("INSERT INTO witness (only_one, name, private_key) VALUES (1, ?, ?)").run(
      name,
      privateKey.export({ type: "pkcs8", format: "pem" }),
    );
  }
  const row = db
    .prepare<[], { name: string; pem: string }>("SELECT name, private_key AS pem FROM witness WHERE only_one = 1")
    .get();
  if (!row) throw new Failure("record", `${path} holds no key`);
  if (row.name !== name) throw new Failure("record", `${path} is of the witness ${row.name}, not of ${name}`);
  const { publicKey, sign } = signerOf(createPrivateKey(row.pem), "witness");
  return { name, publicKey, sign };
}
