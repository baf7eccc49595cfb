/**
 * Causes of failures, with the exit code that the command line ends with: a script tells causes apart by it. What each means
 * is in docs/commands.md.
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
  flawed: 30,
  unpayable: 31,
  ungraded: 32,
  dear: 33,
  refused: 34,
  undelivered: 35,
  open: 36,
} as const;

/** Code of a failure. */
export type FailureCode = Exclude<keyof typeof EXIT, "ok">;

/**
 * An error with a code. Subclasses exist only for failures that are caught by class, carry values, or are told apart by
 * name in a log or in /health; all others are thrown as Failure itself.
 */
export class Failure extends Error {
  /** Whether the same operation may succeed later, so that the caller tries again. */
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
