import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Recorder } from "../pipelines/1-observe/recorder.ts";
import { LogHistoryReader } from "../pipelines/corrections/reading.ts";
import { type Ingesting, openIngest } from "../pipelines/roles/ingesting.ts";
import { openParts, type Parts } from "../pipelines/roles/parts.ts";
import { makeKeysFor } from "../pipelines/roles/record-identity.ts";
import { requireDataFolder, withOpen } from "./files.ts";
import { print } from "./printer.ts";

// Functions that open the parts of a command for one piece of work, and close them however the work ends.

/** Opens the parts of one machine, creates keys if there are none, and closes the parts after the work. */
export async function withParts<T>(config: Config, work: (parts: Parts) => Promise<T>): Promise<T> {
  await makeKeysFor(config, systemClock.now());
  return withOpen(openParts(config, systemClock), work);
}

/**
 * {@link withParts}, with the chain of commits and the lake, which one process holds at a time. @throws LakeBusy beside a
 * service
 */
export const withIngest = (config: Config, work: (opened: Ingesting, parts: Parts) => Promise<void>): Promise<void> =>
  withParts(config, (parts) => withOpen(openIngest(parts, systemClock), (opened) => work(opened, parts)));

/** Reads log and chain without touching the lake, so it works beside a running service. */
export const withReading = <T>(parts: Parts, work: (reading: LogHistoryReader) => Promise<T>): Promise<T> =>
  withOpen(LogHistoryReader.open({ log: parts.log, privateStore: parts.privateStore, lake: parts.config.lake }), work);

/** Like {@link withReading}, for a record that exists; when there is none, nothing is created. */
export async function withRecord(
  config: Config,
  work: (reading: LogHistoryReader, parts: Parts) => Promise<void>,
): Promise<void> {
  requireDataFolder(config);
  return withOpen(openParts(config, systemClock), (parts) => withReading(parts, (reading) => work(reading, parts)));
}

/** The result of a command: `facts` for `--json`, `lines` for people. */
interface Done {
  facts: Record<string, unknown>;
  lines: string[];
}

/** {@link withRecord}, and prints what was done. */
export const withDone = (
  config: Config,
  json: boolean | undefined,
  work: (reading: LogHistoryReader, parts: Parts) => Promise<Done>,
): Promise<void> =>
  withRecord(config, async (reading, parts) => {
    const { facts, lines } = await work(reading, parts);
    print({ json }, facts, lines);
  });

export const recorderOf = ({ log, metrics }: Pick<Parts, "log" | "metrics">): Recorder =>
  new Recorder({ log, producer: "touchstone/1", metrics });
