import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import Database from "better-sqlite3";
import { Failure } from "../../infra/errors.ts";
import { ensurePrivateFolder } from "../../infra/keys/files.ts";
import { isErrno } from "../../infra/store/store.ts";
import type { Pins } from "../published/trust.ts";

/**
 * Verdict on a checkpoint. proven: it is of the proven tree. unproven: nothing is proven yet. forked: it contradicts
 * another checkpoint.
 */
export const VERDICTS = ["proven", "unproven", "forked"] as const;
export type Verdict = (typeof VERDICTS)[number];

/** A checkpoint that the log signed. */
export interface KeptCheckpoint {
  /** Number in the order in which checkpoints were stored, from 1. */
  n: number;
  size: number;
  root: Buffer;
  /** The signed note as it was first received, or a later note of this text that enough witnesses cosigned. */
  note: Buffer;
  /** Name of the source or peer that sent it. */
  source: string;
  seenAt: string;
  verdict: Verdict;
  /** Why the last attempt to prove the checkpoint failed; null before that, and once it is proven or forked. */
  why: string | null;
}
export type SeenCheckpoint = Pick<KeptCheckpoint, "size" | "root" | "note" | "source" | "seenAt"> & {
  /** sha256 of the signed text. Of several notes with one text only one is stored. */
  digest: Buffer;
};

/** The keys that this monitor trusts. */
export interface TrustedKeys {
  pins: Pins;
  /** Every log key that was ever trusted. Peers send old checkpoints, which keys signed that have retired since. */
  ever: string[];
  /** The keys document with which later documents are verified; null if no source has proven one yet. */
  keys: { n: number; key: string; sha256: string; text: string } | null;
}

export type NameKind = "cap" | "pay_to" | "domain";
/** A capability id, payee address or domain that is watched. */
export interface WatchedName {
  kind: NameKind;
  value: string;
}

/** The stored state of a watched endpoint, as JSON. */
export interface WatchedRow {
  cap: string;
  /** Leaves below this position were applied to `state`. */
  next: number;
  state: string;
}

/** A notice that is not yet both printed and posted. */
export interface Notice {
  n: number;
  body: string;
  printed: boolean;
  posted: boolean;
}

/** The result of reading leaves for some names: what these leaves changed, and the notices about it. */
export interface ReadLeaves {
  names: readonly WatchedName[];
  /** Leaves below this position were read for the names. */
  next: number;
  rows: readonly WatchedRow[];
  /** JSON of each notice. */
  notices: readonly string[];
  /** Whether the notices must also be posted to a webhook. */
  post: boolean;
}

/** Steps of changes. Tests end the process at each. */
export type StateStep =
  | "seen"
  | "kept"
  | "proving"
  | "proven"
  | "evidence"
  | "forked"
  | "reading"
  | "read"
  | "printed"
  | "posted"
  | "told";

/**
 * Largest number of proven checkpoints that are stored: almost four years with one every ten minutes. The oldest are
 * dropped.
 */
const MAX_PROVEN = 200_000;
/**
 * Largest number of unproven checkpoints that are stored. If `peers` are stored, none from a peer is added, since peers
 * may send many; if `all` are stored, none is added.
 */
export const MAX_UNPROVEN = { peers: 1_000, all: 100_000 } as const;
/** Reason why a checkpoint that extends the proven head has not become the head. */
export const UNWITNESSED_REASON = "too few witnesses cosigned it";
/** How the reason begins if a checkpoint is unproven because every source that was asked was down or busy. */
export const UNREACHED_REASON = "no source answers";
/** Longest wait, ms, while another process has the file locked. */
const BUSY_TIMEOUT_MS = 5_000;

const SCHEMA = `
  CREATE TABLE monitor (only_one INTEGER PRIMARY KEY CHECK (only_one = 1), id TEXT NOT NULL, trusted TEXT, head INTEGER) STRICT;
  CREATE TABLE checkpoints (n INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
    root BLOB NOT NULL, note BLOB NOT NULL, source TEXT NOT NULL, seen_at TEXT NOT NULL, verdict TEXT NOT NULL,
    why TEXT, tries INTEGER NOT NULL DEFAULT 0) STRICT;
  CREATE INDEX checkpoints_by_size ON checkpoints (size);
  CREATE INDEX checkpoints_by_verdict ON checkpoints (verdict, tries);
  CREATE TABLE peers (url TEXT PRIMARY KEY, id TEXT NOT NULL, after INTEGER NOT NULL) STRICT;
  CREATE TABLE names (kind TEXT NOT NULL, value TEXT NOT NULL, next INTEGER NOT NULL, PRIMARY KEY (kind, value)) STRICT;
  CREATE TABLE watched (cap TEXT PRIMARY KEY, next INTEGER NOT NULL, state TEXT NOT NULL) STRICT;
  CREATE TABLE notices (n INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, printed INTEGER NOT NULL,
    posted INTEGER NOT NULL) STRICT;
  INSERT INTO monitor (only_one, id) VALUES (1, hex(randomblob(16)));
  PRAGMA user_version = 1;
`;
const CHECKPOINT_COLUMNS = "n, size, root, note, source, seen_at AS seenAt, verdict, why";

/**
 * Everything that a monitor stores, in one SQLite file: the checkpoints that it received, the proven tree head, the
 * states of watched endpoints, and undelivered notices. Every commit is on the disk before the call returns.
 */
export class MonitorState {
  readonly #db: Database.Database;

  private constructor(
    db: Database.Database,
    readonly onStep: (step: StateStep) => void,
  ) {
    this.#db = db;
  }

  /**
   * Opens `monitor.sqlite` in `dir`, or makes it.
   * @param onStep called at each step of a change, for tests
   * @throws Failure `record` for a file that is damaged or is no database
   */
  static open(dir: string, onStep: (step: StateStep) => void = () => undefined): MonitorState {
    ensurePrivateFolder(dir);
    const path = join(dir, "monitor.sqlite");
    closeSync(openSync(path, "a", 0o600));
    const db = new Database(path, { timeout: BUSY_TIMEOUT_MS });
    try {
      db.pragma("journal_mode = WAL");
      db.pragma("synchronous = FULL");
      db.transaction(() => db.pragma("user_version", { simple: true }) === 0 && db.exec(SCHEMA)).immediate();
      return new MonitorState(db, onStep);
    } catch (error) {
      db.close();
      if (!isErrno(error, "SQLITE_NOTADB", "SQLITE_CORRUPT")) throw error;
      throw new Failure("record", `${path} is damaged or of no monitor`, { cause: error });
    }
  }

  /**
   * Random id of this file, made with it. When a peer reads another id than before, it learns that this monitor has a
   * new file, in which the numbers of checkpoints begin at 1 again.
   */
  get id(): string {
    return this.#queryOne<{ id: string }>("SELECT id FROM monitor")!.id;
  }

  get trusted(): TrustedKeys | null {
    const { trusted } = this.#queryOne<{ trusted: string | null }>("SELECT trusted FROM monitor")!;
    return trusted === null ? null : (JSON.parse(trusted) as TrustedKeys);
  }

  saveTrusted(trusted: TrustedKeys): void {
    this.#db.prepare("UPDATE monitor SET trusted = ?").run(JSON.stringify(trusted));
  }

  /** The largest proven checkpoint, or null before the first. */
  readHead(): KeptCheckpoint | null {
    return (
      this.#queryOne<KeptCheckpoint>(
        `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE n = (SELECT head FROM monitor)`,
      ) ?? null
    );
  }

  /**
   * Stores a checkpoint as unproven, unless its text is stored already.
   * @param maxUnproven most unproven checkpoints that may be stored
   * @returns whether it is new
   * @throws Failure `failed` if `maxUnproven` are stored already
   */
  keep({ digest, size, root, note, source, seenAt }: SeenCheckpoint, maxUnproven: number): boolean {
    if (this.noteOf(digest)) return false;
    if (this.count("unproven") >= maxUnproven) {
      throw new Failure("failed", `${maxUnproven} checkpoints are kept without a proof: no further one is taken`);
    }
    this.onStep("seen");
    this.#db
      .transaction(() => {
        this.#db
          .prepare(
            "INSERT OR IGNORE INTO checkpoints (digest, size, root, note, source, seen_at, verdict) VALUES (?, ?, ?, ?, ?, ?, 'unproven')",
          )
          .run(digest, size, root, note, source, seenAt);
        const excess = this.count("proven") - MAX_PROVEN;
        if (excess <= 0) return;
        this.#db
          .prepare(
            "DELETE FROM checkpoints WHERE n IN (SELECT n FROM checkpoints WHERE verdict = 'proven' AND n <> (SELECT head FROM monitor) ORDER BY n LIMIT ?)",
          )
          .run(excess);
      })
      .immediate();
    this.onStep("kept");
    return true;
  }

  /** Returns the stored note of the text with this sha256, or null. */
  noteOf(digest: Buffer): Buffer | null {
    return this.#queryOne<{ note: Buffer }>("SELECT note FROM checkpoints WHERE digest = ?", digest)?.note ?? null;
  }

  /** Replaces the stored note of a text by one with further signatures. */
  replaceNote(digest: Buffer, note: Buffer): void {
    this.#db.prepare("UPDATE checkpoints SET note = ? WHERE digest = ?").run(note, digest);
  }

  /** Returns unproven checkpoints, those with the fewest attempts first. */
  listUnproven(limit: number): KeptCheckpoint[] {
    return this.#queryAll<KeptCheckpoint>(
      `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE verdict = 'unproven' ORDER BY tries, n LIMIT ?`,
      limit,
    );
  }

  /** Returns the checkpoint whose text has this sha256 if it is unproven, else null. */
  findUnproven(digest: Buffer): KeptCheckpoint | null {
    const sql = `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE digest = ? AND verdict = 'unproven'`;
    return this.#queryOne<KeptCheckpoint>(sql, digest) ?? null;
  }

  /**
   * Finds a checkpoint of equal size and another root that is proven, or that is unproven and was stored earlier than
   * the given one. Returns null when there is none, or when the given checkpoint is no longer unproven.
   */
  findConflicting({ n, size, root }: Pick<KeptCheckpoint, "n" | "size" | "root">): KeptCheckpoint | null {
    const isOpen = this.#queryOne("SELECT 1 FROM checkpoints WHERE n = ? AND verdict = 'unproven'", n);
    if (!isOpen) return null;
    const conflicting = this.#queryOne<KeptCheckpoint>(
      `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE size = ? AND root <> ?
        AND (verdict = 'proven' OR (verdict = 'unproven' AND n < ?)) ORDER BY verdict, n LIMIT 1`,
      ...[size, root, n],
    );
    return conflicting ?? null;
  }

  /**
   * Counts the unproven checkpoints that do not only lack witnesses, and returns the one that was stored first.
   * @param unreached true: those that no source could be asked about; false: the others
   */
  countUnexplained(unreached: boolean): { many: number; first: KeptCheckpoint | null } {
    const condition = "verdict = 'unproven' AND why IS NOT ? AND (ifnull(why, '') GLOB ?) = ?";
    const values = [UNWITNESSED_REASON, `${UNREACHED_REASON}*`, Number(unreached)];
    const { many } = this.#queryOne<{ many: number }>(
      `SELECT COUNT(*) AS many FROM checkpoints WHERE ${condition}`,
      ...values,
    )!;
    const first = this.#queryOne<KeptCheckpoint>(
      `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE ${condition} ORDER BY n LIMIT 1`,
      ...values,
    );
    return { many, first: first ?? null };
  }

  count(verdict: Verdict): number {
    return this.#queryOne<{ many: number }>("SELECT COUNT(*) AS many FROM checkpoints WHERE verdict = ?", verdict)!
      .many;
  }

  /** Records that a checkpoint is in the proven tree. @param becomesHead true: it becomes the proven head */
  prove(n: number, becomesHead: boolean): void {
    this.onStep("proving");
    this.#db
      .transaction(() => {
        this.#db.prepare("UPDATE checkpoints SET verdict = 'proven', why = NULL WHERE n = ?").run(n);
        if (becomesHead) this.#db.prepare("UPDATE monitor SET head = ?").run(n);
      })
      .immediate();
    this.onStep("proven");
  }

  /**
   * Records that an attempt to prove a checkpoint failed, and why. What the bytes of a source showed remains the
   * reason while no source answers: a log cannot hide it by an outage.
   */
  postpone(n: number, why: string): void {
    const unreached = `${UNREACHED_REASON}*`;
    this.#db
      .prepare(
        `UPDATE checkpoints SET tries = tries + 1,
          why = CASE WHEN ? GLOB ? AND why NOT GLOB ? AND why <> ? THEN why ELSE ? END WHERE n = ?`,
      )
      .run(why, unreached, unreached, UNWITNESSED_REASON, why, n);
  }

  /**
   * Records that a checkpoint contradicts another. Called after the equivocation file of both was written.
   * @param notice JSON, or null for none
   */
  markForked(n: number, notice: string | null, post: boolean): void {
    this.onStep("evidence");
    this.#db
      .transaction(() => {
        this.#db.prepare("UPDATE checkpoints SET verdict = 'forked', why = NULL WHERE n = ?").run(n);
        if (notice !== null) this.#addNotice(notice, post);
      })
      .immediate();
    this.onStep("forked");
  }

  /** Returns the checkpoints that were stored after number `after`, oldest first; for null the newest, newest first. */
  readPage(after: number | null, limit: number): KeptCheckpoint[] {
    return after === null
      ? this.#queryAll<KeptCheckpoint>(`SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints ORDER BY n DESC LIMIT ?`, limit)
      : this.#queryAll<KeptCheckpoint>(
          `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE n > ? ORDER BY n LIMIT ?`,
          after,
          limit,
        );
  }

  /** Returns the id of a peer's file and the number of the last checkpoint that was read from it; null before that. */
  readPeer(url: string): { id: string; after: number } | null {
    return this.#queryOne<{ id: string; after: number }>("SELECT id, after FROM peers WHERE url = ?", url) ?? null;
  }

  savePeer(url: string, { id, after }: { id: string; after: number }): void {
    this.#db.prepare("INSERT OR REPLACE INTO peers (url, id, after) VALUES (?, ?, ?)").run(url, id, after);
  }

  /** Returns the first leaf that was not read for a name; null for a name that was not watched before. */
  nextOf({ kind, value }: WatchedName): number | null {
    return (
      this.#queryOne<{ next: number }>("SELECT next FROM names WHERE kind = ? AND value = ?", kind, value)?.next ?? null
    );
  }

  listWatched(): WatchedRow[] {
    return this.#queryAll<WatchedRow>("SELECT cap, next, state FROM watched");
  }

  /** Commits the changes of read leaves and the notices about them in one transaction. */
  saveReadLeaves({ names, next, rows, notices, post }: ReadLeaves): void {
    this.onStep("reading");
    this.#db
      .transaction(() => {
        const insertName = this.#db.prepare("INSERT OR REPLACE INTO names (kind, value, next) VALUES (?, ?, ?)");
        for (const { kind, value } of names) insertName.run(kind, value, next);
        const insertWatched = this.#db.prepare("INSERT OR REPLACE INTO watched (cap, next, state) VALUES (?, ?, ?)");
        for (const one of rows) insertWatched.run(one.cap, one.next, one.state);
        for (const body of notices) this.#addNotice(body, post);
      })
      .immediate();
    this.onStep("read");
  }

  #addNotice(body: string, post: boolean): void {
    this.#db.prepare("INSERT INTO notices (body, printed, posted) VALUES (?, 0, ?)").run(body, post ? 0 : 1);
  }

  /** Returns notices after number `after` that are not yet both printed and posted, oldest first. */
  listNotices(limit: number, after = 0): Notice[] {
    return this.#queryAll<Omit<Notice, "printed" | "posted"> & { printed: number; posted: number }>(
      "SELECT n, body, printed, posted FROM notices WHERE n > ? ORDER BY n LIMIT ?",
      ...[after, limit],
    ).map((one) => ({ ...one, printed: one.printed === 1, posted: one.posted === 1 }));
  }

  countWaitingNotices(): number {
    return this.#queryOne<{ many: number }>("SELECT COUNT(*) AS many FROM notices")!.many;
  }

  /** Records that a notice was printed or posted. A notice that was delivered both ways is deleted. */
  markDelivered(n: number, channel: "printed" | "posted"): void {
    this.onStep(channel);
    this.#db
      .transaction(() => {
        this.#db.prepare(`UPDATE notices SET ${channel} = 1 WHERE n = ?`).run(n);
        this.#db.prepare("DELETE FROM notices WHERE n = ? AND printed = 1 AND posted = 1").run(n);
      })
      .immediate();
    this.onStep("told");
  }

  /** Marks all notices as posted and deletes those that were printed, for a monitor without a webhook. */
  dropPostings(): void {
    this.#db
      .transaction(() => {
        this.#db.prepare("UPDATE notices SET posted = 1").run();
        this.#db.prepare("DELETE FROM notices WHERE printed = 1").run();
      })
      .immediate();
  }

  close(): void {
    this.#db.close();
  }

  #queryOne<T>(sql: string, ...parameters: unknown[]): T | undefined {
    return this.#db.prepare<unknown[], T>(sql).get(...parameters);
  }

  #queryAll<T>(sql: string, ...parameters: unknown[]): T[] {
    return this.#db.prepare<unknown[], T>(sql).all(...parameters);
  }
}
