/** Exit codes of the command, by cause, so that a script can tell them apart. */
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

export type ExitName = keyof typeof EXIT;

const BY_ERROR: Record<string, ExitName> = {
  ConfigError: "usage",
  NoMarket: "usage",
  KeyFileError: "keys",
  CannotListen: "port",
  ChainDown: "chain",
  WorldLost: "chain",
  LogFull: "storage",
  LogBusy: "busy",
  LogRefused: "record",
  LedgerDiffers: "record",
  StoreFull: "storage",
  StoreDown: "storage",
  StoreUnfit: "storage",
  LogDown: "storage",
  LogNotBegun: "storage",
  NotOurLog: "record",
  RecordsLost: "record",
  RecordRefused: "record",
  LakeForm: "record",
  BadPrivate: "record",
  DamagedChain: "record",
  LakeBusy: "busy",
  Outrun: "busy",
  PartBehind: "busy",
  PartitionsRevoked: "busy",
  MirrorUsage: "usage",
  NoSource: "unreadable",
  FileUnreadable: "unreadable",
  BadUrl: "usage",
  MirrorBusy: "busy",
  Rollback: "rollback",
  Forked: "fork",
  Tampered: "tampered",
  AuditFailed: "tampered",
  AuditForked: "fork",
  Unproven: "tampered",
  Oversized: "tampered",
  KeysUnread: "tampered",
  Stale: "stale",
  BadCorrection: "usage",
  NotInRecord: "unknown",
  NotCommitted: "unknown",
  AlreadyRecorded: "already",
  SettingsExist: "already",
  NotThePayee: "signature",
  InvalidArgumentError: "usage",
  ListingsUnreadable: "unreadable",
  ListingsUnreachable: "unreachable",
  ExposureUnreadable: "unreadable",
  RegisterUnreadable: "unreadable",
  RegisterBusy: "busy",
  ServiceUnreachable: "unreachable",
  ReportUnproven: "tampered",
  ArchiveUnproven: "tampered",
  ArchiveMismatch: "record",
  CannotSupersede: "already",
  CardDiffers: "differs",
  NothingToRecompute: "nothing",
  MissingObjects: "missing",
  NetworkMismatch: "network",
  NoWallet: "wallet",
  Unfit: "unfit",
  ListingFlawed: "flawed",
  ListingUnpayable: "unpayable",
};

/** The exit code of an error, by its name. */
export const exitCodeOf = (error: unknown): number =>
  EXIT[BY_ERROR[(error as { name?: string } | null)?.name ?? ""] ?? "failed"];

/** The word of a code. */
export const exitNameOf = (code: number): string =>
  Object.entries(EXIT).find(([, one]) => one === code)?.[0] ?? "failed";

/** The codes as lines for `--help`. */
export const EXIT_HELP = `Exit codes: ${Object.entries(EXIT)
  .map(([name, code]) => `${code} ${name}`)
  .join(", ")}.`;

/** Signals after which nobody waits any longer for a tidy end. */
const IMPATIENT = 4;

const STOPS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Calls `stop` at the first SIGINT, SIGTERM or SIGHUP. The second one is usually the same Ctrl-C, sent to the group and
 * handed on by the runner: dying of it would leave the market running, so further ones are only counted, and the fourth
 * ends the process at once. @returns takes the handlers away
 */
export function onStopSignal(stop: () => void): () => void {
  let seen = 0;
  const handler = (signal: NodeJS.Signals): void => {
    // The terminal is gone: writing to it would end this process before what it started is stopped.
    if (signal === "SIGHUP") for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined);
    seen++;
    if (seen === 1) stop();
    if (seen >= IMPATIENT) process.exit(130);
  };
  for (const signal of STOPS) process.on(signal, handler);
  return () => {
    for (const signal of STOPS) process.off(signal, handler);
  };
}

/** Resolves at the first SIGINT, SIGTERM or SIGHUP. */
export const untilStopped = (): Promise<void> => new Promise((resolve) => void onStopSignal(resolve));
