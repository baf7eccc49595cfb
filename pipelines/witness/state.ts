import { createPrivateKey, generateKeyPairSync } from "node:crypto";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import Database from "better-sqlite3";
import { Failure } from "../../infra/errors.ts";
import { createPrivateFolder } from "../../infra/keys/files.ts";
import { signerOf } from "../../infra/keys/signer.ts";
import { isErrno } from "../../infra/store/store.ts";
import type { NoteSigner } from "../../infra/tree/note.ts";

/** The checkpoint of one log that the witness cosigned last. */
export interface CosignedCheckpoint {
  size: number;
  root: Buffer;
  /** Time of the cosignature, whole seconds since 1970. */
  signedS: number;
  /** The checkpoint with the log's signatures and the witness's. */
  note: Buffer;
}

/** Moments of a change at which a test ends the process. */
export type ChangeStep = "begun" | "signed" | "written" | "committed";

/** Longest wait for another process with the same file, ms. */
const BUSY_TIMEOUT_MS = 5_000;

const SCHEMA = `
  CREATE TABLE witness (only_one INTEGER PRIMARY KEY CHECK (only_one = 1), name TEXT NOT NULL, private_key TEXT NOT NULL) STRICT;
  CREATE TABLE cosigned (origin TEXT PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL, signed_s INTEGER NOT NULL,
    note BLOB NOT NULL) STRICT;
  PRAGMA user_version = 1;
`;

/**
 * Key and memory of a witness in one SQLite file that only its owner may read. They are in one file, since a key without
 * its memory could sign a second history. Every commit is on the disk before it is acknowledged; several processes may
 * have the file open.
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
   * @param name the witness's name, a URL without scheme; a file that is there has to be of this name
   * @param onStep called at each step of a change, for tests
   * @throws Failure `record` for a file of another witness, or none of ours
   */
  static open(dir: string, name: string, onStep: (step: ChangeStep) => void = () => undefined): WitnessState {
    createPrivateFolder(dir);
    const path = join(dir, "witness.sqlite");
    // An empty file is an empty database; the files beside it get its mode.
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
   * Calls `decide` with the last checkpoint of this log and stores the checkpoint that it returns, in a transaction that
   * excludes all other processes with this file. A signature that `decide` made must not be sent before this returns.
   * @returns what `decide` returned
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

/** Reads the key in the file, or makes one where the file is empty. */
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
