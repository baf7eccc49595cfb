import { randomBytes } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { ownLoop } from "../infra/loop-watch.ts";
import { networksIn, payerOn } from "../infra/rails/networks.ts";
import { countReasons, type Rejected } from "../pipelines/1-observe/listings/claims.ts";
import { Intake } from "../pipelines/1-observe/listings/intake.ts";
import {
  type Handed,
  ListingsUnreadable,
  listingsBeside,
  payTosBeside,
  takeFile,
  takeUrl,
} from "../pipelines/1-observe/listings/operator.ts";
import { Control } from "../pipelines/1-observe/probe/exchange.ts";
import { type ProbeOnce, type ProbeSeen, probeListed } from "../pipelines/1-observe/probe/unplanned.ts";
import { ownReader } from "../pipelines/1-observe/reading/reader.ts";
import { Recorder } from "../pipelines/1-observe/recorder.ts";
import { Reading } from "../pipelines/corrections/reading.ts";
import { makeKeys, openParts } from "../pipelines/roles/parts.ts";
import { readNamed } from "./files.ts";

export interface ListingsOptions {
  /** File that rejected rows go to; default: a new one under the data folder. */
  rejected?: string;
  json?: boolean;
}

/** Log, stores and egress beside whatever else runs: the lake, which has one owner, is not touched. */
async function withIntake<T>(config: Config, work: (tools: ProbeOnce) => Promise<T>): Promise<T> {
  makeKeys(config.data_dir, systemClock.now());
  const parts = await openParts(config, systemClock);
  try {
    const { egress, log, metrics, privateStore } = parts;
    const reading = await Reading.open({ log, privateStore, lake: config.lake });
    try {
      // Nobody signs or settles here: it is only asked which offers would be paid, and that needs no chain.
      const rail = payerOn(networksIn(config));
      const recorder = new Recorder({ log, producer: "touchstone/1", metrics });
      const memory = listingsBeside(reading);
      const intake = new Intake({ egress, rail, recorder, metrics, memory, payTosOf: payTosBeside(reading) });
      const control = new Control(egress, config.control_urls);
      return await work({ egress, rail, recorder, intake, control, reader: ownReader, loop: ownLoop });
    } finally {
      await reading.close();
    }
  } finally {
    await parts.close();
  }
}

/** As a shell takes it: an address has `?` and `&`. */
const shellWord = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

const isUrl = (source: string): boolean => /^https?:\/\//i.test(source);

/** @throws FileUnreadable; ListingsUnreadable when nothing in it can be taken */
async function handIn(tools: ProbeOnce, source: string): Promise<Handed> {
  if (isUrl(source)) return takeUrl(tools.intake, tools.egress, source, systemClock);
  return takeFile(tools.intake, basename(source), await readNamed(source), systemClock);
}

/** Rejected rows as NDJSON, one `{reason, says, row}` a line. @returns the file, or null when there are none */
async function keepRejected(rows: readonly Rejected[], config: Config, named?: string): Promise<string | null> {
  if (rows.length === 0) return null;
  const folder = join(config.data_dir, "rejected");
  if (named === undefined) await mkdir(folder, { recursive: true });
  const at = systemClock.now().toISOString().replace(/[:.]/g, "-");
  const file = named ?? join(folder, `listings-${at}-${randomBytes(3).toString("hex")}.ndjson`);
  await pipeline(
    rows.map((row) => `${JSON.stringify(row)}\n`),
    createWriteStream(file),
  );
  return file;
}

const told = (handed: Handed, file: string | null) => ({
  source: handed.source,
  form: handed.form,
  rows: handed.items,
  listings: handed.appended,
  same: handed.same,
  delisted: handed.delisted,
  rejected: countReasons(handed.rejected),
  rejected_file: file,
  ...(handed.says === undefined ? {} : { says: handed.says }),
});

function linesOf(facts: ReturnType<typeof told>): string[] {
  const rejected = Object.entries(facts.rejected).map(([reason, n]) => `${n} ${reason}`);
  return [
    `${facts.source} (${facts.form}): ${facts.rows} rows, ${facts.listings} new listings, ${facts.same} same as known` +
      `${facts.delisted > 0 ? `, ${facts.delisted} delisted` : ""}, rejected: ${rejected.join(", ") || "none"}`,
    ...(facts.says === undefined ? [] : [`not read whole: ${facts.says}`]),
    ...(facts.rejected_file === null ? [] : [`rejected rows with their reasons: ${facts.rejected_file}`]),
  ];
}

/** `touchstone listings add`: takes in what a file or an address names, in any form that is read (docs/listings.md). */
export const addListings = (config: Config, source: string, options: ListingsOptions): Promise<void> =>
  withIntake(config, async (tools) => {
    const handed = await handIn(tools, source);
    const facts = told(handed, await keepRejected(handed.rejected, config, options.rejected));
    const next = `touchstone observe --once --listings ${shellWord(source)}`;
    const lines = [...linesOf(facts), ...(handed.claims.length > 0 ? [`next: ${next}`] : [])];
    process.stdout.write(options.json ? `${JSON.stringify(facts)}\n` : `${lines.join("\n")}\n`);
    if (handed.claims.length === 0 && handed.rejected.length > 0) {
      throw new ListingsUnreadable(`nothing in ${source} can be listed: ${handed.rejected[0]!.says}`);
    }
  });

const lineOf = (seen: ProbeSeen): string =>
  [
    seen.state.padEnd(11),
    seen.method.padEnd(6),
    seen.url,
    ...(seen.protocols.length > 0 ? [seen.protocols.join("+")] : []),
    ...(seen.price === null ? [] : [seen.price]),
    ...(seen.status === null ? [] : [`status ${seen.status}`]),
    ...(seen.latency_ms === null ? [] : [`${seen.latency_ms} ms`]),
    ...seen.defects,
    ...(seen.says === undefined ? [] : [`(${seen.says})`]),
  ].join("  ");

/**
 * `touchstone observe --once --listings`: takes the listings in and probes each once, for free and without a plan.
 * What each answered is recorded like any handshake, and told.
 */
export const probeListings = (config: Config, source: string, options: ListingsOptions): Promise<void> =>
  withIntake(config, async (tools) => {
    const handed = await handIn(tools, source);
    const facts = told(handed, await keepRejected(handed.rejected, config, options.rejected));
    const states: Record<string, number> = {};
    const endpoints: ProbeSeen[] = [];
    await probeListed(tools, handed.claims, systemClock, config.observe.hosts_at_once, (seen) => {
      states[seen.state] = (states[seen.state] ?? 0) + 1;
      if (options.json) endpoints.push(seen);
      else process.stdout.write(`${lineOf(seen)}\n`);
    });
    const summary = Object.entries(states).map(([state, n]) => `${n} ${state}`);
    const lines = [...linesOf(facts), `probed: ${summary.join(", ") || "nobody"}`, "next: touchstone ingest --once"];
    process.stdout.write(
      options.json ? `${JSON.stringify({ ...facts, states, endpoints })}\n` : `${lines.join("\n")}\n`,
    );
    if (handed.claims.length === 0) throw new ListingsUnreadable(`nothing in ${source} can be listed`);
  });
