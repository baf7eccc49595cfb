/** Codes of failures, with the exit code that the command line ends with: a script tells causes apart by it. */
export const EXIT = {
  ok: 0,
  /** Anything that has no code of its own. */
  failed: 1,
  /** Wrong words on the command line, or a setting that cannot be used. */
  usage: 2,
  /** Keys or secrets: missing, readable by others, damaged. */
  keys: 3,
  /** The port is taken. */
  port: 4,
  /** The chain or the market cannot be reached. */
  chain: 5,
  /** Disk full, or a store or log that does not take writes. */
  storage: 6,
  /** This is not our log, or records are lost: an operator has to look. */
  record: 7,
  /** Another process holds the lake, or the partitions. */
  busy: 8,
  /** A mirror's source shows fewer leaves than were proven before. */
  rollback: 9,
  /** Two signed checkpoints that no one log can have; a file keeps both. */
  fork: 10,
  /** Bytes of a source that do not hold against root, hash or signature. */
  tampered: 11,
  /** The newest checkpoint is older than accepted. */
  stale: 12,
  /** An endpoint, record or correction that the record does not hold. */
  unknown: 13,
  /** It is there already: a settings file, or a correction that was made, taken back or disputed before. */
  already: 14,
  /** A signature that is not of the address it should be of. */
  signature: 15,
  /** A file or an answer that is nothing of what is read here, or names nothing that can be taken. */
  unreadable: 16,
  /** An address that was named on the command line does not answer, or may not be fetched. */
  unreachable: 17,
  /** A published card that does not follow from the published evidence. */
  differs: 18,
  /** No card that could be recomputed by now. */
  nothing: 19,
  /** A mirror whose log is whole, and objects named by it are not there or do not hold: the next run asks again. */
  missing: 20,
  /** A chain is not what the settings say: its id, or a token's decimals or signing domain. */
  network: 21,
  /** There is no wallet with the money for it. */
  wallet: 22,
  /** `doctor` found something that keeps a role from its work. */
  unfit: 23,
  /** `listing`: it can be paid, and something of it is not as the protocols have it. */
  flawed: 30,
  /** `listing`: buyers cannot pay it, or would refuse to. */
  unpayable: 31,
} as const;

/** Code of a failure. */
export type Code = Exclude<keyof typeof EXIT, "ok">;

/**
 * A failure that has a cause of its own. Thrown as it is where its code and its words say all; a class below it is for
 * failures that are caught by class, carry values, or are told apart by name in a log or in /health.
 */
export class Failure extends Error {
  /** May pass by itself: whoever waits asks again. */
  readonly retriable: boolean;
  constructor(
    readonly code: Code,
    message: string,
    { retriable = false, ...options }: ErrorOptions & { retriable?: boolean } = {},
  ) {
    super(message, options);
    this.retriable = retriable;
    this.name = new.target === Failure ? code : new.target.name;
  }
}
