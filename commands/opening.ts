import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Recorder } from "../pipelines/1-observe/recorder.ts";
import { LogHistoryReader } from "../pipelines/corrections/reading.ts";
import { type OpenIngest, openIngest } from "../pipelines/roles/open-ingest.ts";
import { openCommandParts, type openParts, type Parts } from "../pipelines/roles/parts.ts";
import { ensureKeysFor } from "../pipelines/roles/record-identity.ts";
import { requireDataFolder, withOpen } from "./files.ts";
import { print } from "./printer.ts";

// Functions that open log, stores, keys and lake (the DuckDB database of records) for one piece of work, and close
// them after it, also if it throws.

/**
 * Opens log, stores and keys of this machine, runs the work, and closes them. On a single machine it creates keys if
 * there are none. Machines with a shared log need the same keys, which an operator copies to them, so nothing is
 * created there.
 */
export async function withParts<T>(
  config: Config,
  work: (parts: Parts) => Promise<T>,
  open: typeof openParts = openCommandParts,
): Promise<T> {
  if (config.log === null) await ensureKeysFor(config, systemClock.now());
  return withOpen(open(config, systemClock), work);
}

/**
 * Like {@link withParts}, and also opens the lake and the ingest that loads it. One process at a time can open the
 * lake.
 * @throws LakeBusy while a service runs
 */
export const withIngest = (
  config: Config,
  work: (opened: OpenIngest, parts: Parts) => Promise<void>,
  open?: typeof openParts,
): Promise<void> =>
  withParts(config, (parts) => withOpen(openIngest(parts, systemClock), (opened) => work(opened, parts)), open);

/**
 * Opens a reader of the record (the segment files, then the rest of the log) for the work. It does not open the lake,
 * so it also works while a service runs.
 */
export const withReading = <T>(parts: Parts, work: (reading: LogHistoryReader) => Promise<T>): Promise<T> =>
  withOpen(LogHistoryReader.open({ log: parts.log, privateStore: parts.privateStore, lake: parts.config.lake }), work);

/**
 * Like {@link withReading}, and opens log and stores too; they must exist already, and nothing is created.
 * @throws Failure `unreadable` if there is no data folder
 */
export async function withRecord(
  config: Config,
  work: (reading: LogHistoryReader, parts: Parts) => Promise<void>,
): Promise<void> {
  requireDataFolder(config);
  return withOpen(openCommandParts(config, systemClock), (parts) =>
    withReading(parts, (reading) => work(reading, parts)),
  );
}

/** The result of a command: `facts` for `--json`, `lines` for people. */
interface CommandResult {
  facts: Record<string, unknown>;
  lines: string[];
}

/** Like {@link withRecord}, and prints the result of the work. */
export const withResult = (
  config: Config,
  json: boolean | undefined,
  work: (reading: LogHistoryReader, parts: Parts) => Promise<CommandResult>,
): Promise<void> =>
  withRecord(config, async (reading, parts) => {
    const { facts, lines } = await work(reading, parts);
    print({ json }, facts, lines);
  });

export const recorderOf = ({ log, metrics }: Pick<Parts, "log" | "metrics">): Recorder =>
  new Recorder({ log, producer: "touchstone/1", metrics });
