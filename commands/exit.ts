import { EXIT, Failure, type FailureCode, isDiskFull } from "../infra/errors.ts";
import type { Logger } from "../infra/telemetry.ts";

export { EXIT };

export type ExitName = keyof typeof EXIT;

/** What each exit code means, for `--help` and docs/commands.md. */
export const EXIT_MEANINGS: Readonly<Record<ExitName, string>> = {
  ok: "It is done.",
  failed: "Anything that has no code of its own.",
  usage: "A wrong word, argument or option, or a setting that cannot be used.",
  keys: "Keys or secrets are missing, damaged, or readable by others.",
  port: "The port is taken.",
  chain: "The chain, or the market of the demo, cannot be reached.",
  storage: "The disk is full, or a store or the log takes no writes.",
  record:
    "Log, stores and keys do not belong together, records are lost, or the books differ from the chain: an operator has to look.",
  busy: "Another process holds the log, the lake, the partitions, the mirror's folder or the register.",
  rollback: "The source of a mirror shows fewer leaves than were proven before.",
  fork: "Two signed checkpoints contradict each other; a file keeps both. `verify`: it proved such a file.",
  tampered: "Bytes do not match the root, hash, signature or commitment that proves them.",
  stale: "The newest checkpoint is older than accepted.",
  unknown: "The record holds no such endpoint, record, correction, plan or file.",
  already: "It is there already: a settings file, or a correction, dispute or replaced file that was recorded before.",
  signature: "A signature is not of the address that it must be of.",
  unreadable: "A file, folder or answer is not there, or holds nothing that this command reads.",
  unreachable: "An address that was named on the command line does not answer, or may not be fetched.",
  differs: "A published card does not follow from the published evidence.",
  nothing: "There is no card that can be recomputed yet.",
  missing:
    "The log of a mirror is whole, and objects that it names are not there or do not match: the next run asks for them again.",
  network: "A chain is not what the settings say: its id, or a token's decimals or signing domain.",
  wallet: "No wallet has the money for it.",
  unfit: "`doctor` found something that keeps a role from its work.",
  unwitnessed:
    "Too few of the policy's witnesses cosigned the checkpoint, or none of its logs signed it: nothing is believed.",
  unproven:
    "`monitor`: the log signed a checkpoint, and no source shows what proves that it goes together with the others. It is kept, and is no fork.",
  changed: "`monitor --once`: something changed for a name that it watches.",
  untold: "`monitor --once`: the webhook did not take a notice, which waits for the next run.",
  flawed: "`listing`: the endpoint can be paid, and parts of its offer do not follow the protocols.",
  unpayable: "`listing`: buyers cannot pay the endpoint, or would refuse to.",
  ungraded:
    "`check`, `buy`: it has no letter, which means unknown and not bad; `buy`: and is not sold for that reason.",
  dear: "`buy`: it costs more than the most that may be paid. Nothing was paid.",
  refused:
    "`check`: what the record holds speaks against paying it. `buy`: the purchase was refused. Nothing was paid.",
  undelivered: "`buy`: the answer did not pass, or none came. Nothing was charged.",
  open: "`buy`: a payment was sent, and whether it was charged is not known yet: `resume` asks again.",
};

/** Returns the name of the exit code for an error. */
export const exitNameOf = (error: unknown): FailureCode => {
  if (error instanceof Failure) return error.code;
  return isDiskFull(error) ? "storage" : "failed";
};

/** Returns the exit code for an error. */
export const exitCodeOf = (error: unknown): number => EXIT[exitNameOf(error)];

/** All exit codes in one line, for `--help`. */
export const EXIT_HELP = `Exit codes: ${Object.entries(EXIT)
  .map(([name, code]) => `${code} ${name}`)
  .join(", ")}.`;

/** Number of stop signals at which the process ends at once. */
const MAX_SIGNALS = 4;

const STOP_SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Calls `stop` at the first SIGINT, SIGTERM or SIGHUP. One Ctrl-C often arrives twice, from the terminal and from the
 * parent process. If the second ended the process at once, the demo's market would stay running, so further signals are
 * only counted, and the fourth ends the process.
 * @returns a function that removes the handlers
 */
export function onStopSignal(stop: () => void): () => void {
  let signalCount = 0;
  const handler = (signal: NodeJS.Signals): void => {
    // SIGHUP: the terminal is gone. Without these listeners, an error of writing to it would end this process before
    // it has stopped the processes that it started.
    if (signal === "SIGHUP") for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined);
    signalCount++;
    if (signalCount === 1) stop();
    if (signalCount >= MAX_SIGNALS) process.exit(130);
  };
  for (const signal of STOP_SIGNALS) process.on(signal, handler);
  return () => {
    for (const signal of STOP_SIGNALS) process.off(signal, handler);
  };
}

/** Resolves at the first SIGINT, SIGTERM or SIGHUP. */
export const untilStopped = (): Promise<void> => new Promise((resolve) => void onStopSignal(resolve));

/**
 * Longest time from the stop signal to the end of a process that may end without finishing its work: replica, serving,
 * monitor, mirror; ms. It is longer than the 10 s that requests in progress get, and shorter than the 60 s after which
 * systemd or Docker kills these processes (infra/deploy). The rest of that minute is for lookups of names: Node's exit
 * waits for those under way, and each may take 10 s or more where no name server answers.
 */
const STOP_MS = 20_000;

/**
 * Starts a timer, at the stop signal, that ends the process if it still runs after {@link STOP_MS}. Without it, a
 * request to a broker, a store or a source that does not answer could delay the end by minutes. Ending early loses no
 * more than a kill would, and nothing that was acknowledged.
 * @param codeOf returns the exit code of that end (default: 0)
 */
export function endInTime(logger: Pick<Logger, "warn">, codeOf: () => number = () => EXIT.ok): void {
  // unref: the timer does not keep a process alive that has closed everything.
  setTimeout(() => {
    logger.warn({ afterMs: STOP_MS }, "a broker, store or source did not answer in time; ended without waiting for it");
    process.exit(codeOf());
  }, STOP_MS).unref();
}
