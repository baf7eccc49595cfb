/** Codes of failures and the exit codes of the command line, by which scripts tell causes apart. */
export const EXIT = {
  ok: 0,
  /** Any failure without a code of its own. */
  failed: 1,
  /** Wrong arguments on the command line, or an invalid setting. */
  usage: 2,
  /** Keys or secrets: missing, readable by others, damaged. */
  keys: 3,
  /** The port is taken. */
  port: 4,
  /** The chain or the market cannot be reached. */
  chain: 5,
  /** The disk is full, or a store or log does not accept writes. */
  storage: 6,
  /** The log is not the expected one, or records are lost: an operator has to act. */
  record: 7,
  /** Another process has locked the lake or the partitions. */
  busy: 8,
  /** A mirror's source shows fewer leaves than were proven before. */
  rollback: 9,
  /** Two signed checkpoints contradict each other; a file keeps both. */
  fork: 10,
  /** Bytes of a source do not match the tree's root, a hash or a signature. */
  tampered: 11,
  /** The newest checkpoint is older than accepted. */
  stale: 12,
  /** The record does not hold the endpoint, record or correction. */
  unknown: 13,
  /** It exists already: a settings file, or a correction that was made, taken back or disputed before. */
  already: 14,
  /** A signature was made by another address than required. */
  signature: 15,
  /** A file or an answer has no known format, or holds nothing that can be used. */
  unreadable: 16,
  /** An address of the command line does not answer, or may not be fetched. */
  unreachable: 17,
  /** A published card does not follow from the published evidence. */
  differs: 18,
  /** No card can be recomputed yet. */
  nothing: 19,
  /** A mirror's log is complete, but objects that it names are missing or damaged; the next run tries again. */
  missing: 20,
  /** A chain contradicts the settings: its id, or a token's decimals or signing domain. */
  network: 21,
  /** No wallet has the money for a payment. */
  wallet: 22,
  /** `doctor` found something that stops a role. */
  unfit: 23,
  /** `listing`: the endpoint can be paid, but deviates from the protocols. */
  flawed: 30,
  /** `listing`: buyers cannot pay the endpoint, or would refuse to. */
  unpayable: 31,
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
