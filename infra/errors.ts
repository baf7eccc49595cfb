/**
 * Exit code of the command line for each cause of failure, so that a script can tell causes apart. docs/commands.md
 * explains each code.
 */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  keys: 3,
  port: 4,
  chain: 5,
  storage: 6,
  record: 7,
  busy: 8,
  rollback: 9,
  fork: 10,
  tampered: 11,
  stale: 12,
  unknown: 13,
  already: 14,
  signature: 15,
  unreadable: 16,
  unreachable: 17,
  differs: 18,
  nothing: 19,
  missing: 20,
  network: 21,
  wallet: 22,
  unfit: 23,
  unwitnessed: 24,
  unproven: 25,
  changed: 26,
  untold: 27,
  flawed: 30,
  unpayable: 31,
  ungraded: 32,
  dear: 33,
  refused: 34,
  undelivered: 35,
  open: 36,
} as const;

/** Error codes of Node and SQLite for a write that found no space, on the disk or within the user's quota of it. */
const FULL_DISK_CODES: readonly unknown[] = ["ENOSPC", "EDQUOT", "SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"];

/** Returns true if the error says that the disk is full, else false. */
export const isDiskFull = (error: unknown): boolean =>
  error instanceof Error && "code" in error && FULL_DISK_CODES.includes(error.code);

/** Cause of a failure: a name from the table of exit codes. */
export type FailureCode = Exclude<keyof typeof EXIT, "ok">;

/**
 * An error with the cause that decides the exit code. A subclass exists only where callers catch the class, where the
 * error carries values, or where a log or /health shows its name. All other failures are thrown as Failure itself.
 */
export class Failure extends Error {
  /** True if a later attempt may succeed, so that the caller tries again. False (default) if it would fail as well. */
  readonly retriable: boolean;
  constructor(
    readonly code: FailureCode,
    message: string,
    { retriable = false, ...options }: ErrorOptions & { retriable?: boolean } = {},
  ) {
    super(message, options);
    this.retriable = retriable;
    this.name = new.target === Failure ? code : new.target.name;
  }
}
