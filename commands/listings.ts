import { randomBytes } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { type Clock, systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import type { Egress } from "../infra/egress/egress.ts";
import { Failure } from "../infra/errors.ts";
import { ownLoop } from "../infra/loop-watch.ts";
import { configuredNetworks, railOn } from "../infra/rails/networks.ts";
import type { RailCapabilities } from "../infra/rails/rails.ts";
import { countReasons, type Rejected } from "../pipelines/1-observe/listings/claims.ts";
import { decodeUtf8, type ParsedListing, readText } from "../pipelines/1-observe/listings/documents.ts";
import { Intake, type IntakeReport } from "../pipelines/1-observe/listings/intake.ts";
import { readDocument } from "../pipelines/1-observe/listings/sources.ts";
import { ControlCalls } from "../pipelines/1-observe/probe/exchange.ts";
import { type ProbeReport, probeClaims, type UnplannedDeps } from "../pipelines/1-observe/probe/unplanned.ts";
import { processReader, type Reader } from "../pipelines/1-observe/reading/reader.ts";
import { readEndpoint } from "../pipelines/corrections/endpoint-record.ts";
import { NotInRecord } from "../pipelines/corrections/errors.ts";
import type { LogHistoryReader } from "../pipelines/corrections/reading.ts";
import type { Memory, StandingListing } from "../pipelines/record/memory.ts";
import { readNamedFile } from "./files.ts";
import { recorderOf, withParts, withReading } from "./opening.ts";
import { print, printLines } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

type ListingsOptions = OptionsOf<"listings add">;

/**
 * Opens the log, the stores and the client for outgoing requests (egress). It leaves out the lake, a database that
 * only one process can open, so a service may run at the same time.
 */
const withIntake = (config: Config, work: (tools: UnplannedDeps) => Promise<void>): Promise<void> =>
  withParts(config, (parts) =>
    withReading(parts, (reading) => {
      const { egress, metrics } = parts;
      // The rail (the payment methods of the networks) only decides which offers the wallets could pay, for which it
      // needs no node.
      const rail: RailCapabilities = railOn(configuredNetworks(config));
      const recorder = recorderOf(parts);
      const memory = listingsFromLog(reading);
      const intake = new Intake({ egress, rail, recorder, metrics, memory, payTosOf: payTosFromLog(reading) });
      const control = new ControlCalls(egress, config.control_urls);
      return work({ egress, rail, recorder, intake, control, reader: processReader, loop: ownLoop });
    }),
  );

/** Quotes a word for a shell, since urls contain `?` and `&`. */
const shellWord = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

const isUrl = (source: string): boolean => /^https?:\/\//i.test(source);

/**
 * Writes rejected rows to a file as NDJSON: `{reason, says, row}`.
 * @returns the file, or null when there are none
 */
async function writeRejected(rows: readonly Rejected[], config: Config, fileOption?: string): Promise<string | null> {
  if (rows.length === 0) return null;
  const folder = join(config.data_dir, "rejected");
  if (fileOption === undefined) await mkdir(folder, { recursive: true });
  const at = systemClock.now().toISOString().replace(/[:.]/g, "-");
  const file = fileOption ?? join(folder, `listings-${at}-${randomBytes(3).toString("hex")}.ndjson`);
  await pipeline(
    rows.map((row) => `${JSON.stringify(row)}\n`),
    createWriteStream(file),
  );
  return file;
}

/** Returns the facts that a command prints with `--json` after an import. */
const factsOf = (imported: Imported, file: string | null) => ({
  source: imported.source,
  form: imported.form,
  rows: imported.items,
  listings: imported.appended,
  same: imported.same,
  delisted: imported.delisted,
  rejected: countReasons(imported.rejected),
  rejected_file: file,
  ...(imported.unverified === undefined ? {} : { unverified: imported.unverified }),
  ...(imported.says === undefined ? {} : { says: imported.says }),
});

/**
 * Imports listings from a file or an address, and writes the rejected rows to a file.
 * @throws Failure `unreadable`, `unreachable`
 */
async function importListings(tools: UnplannedDeps, config: Config, source: string, options: ListingsOptions) {
  const imported = isUrl(source)
    ? await importUrl(tools.intake, tools.egress, source, systemClock)
    : await importFile(tools.intake, basename(source), await readNamedFile(source), systemClock);
  const { claims, rejected } = imported;
  return { claims, rejected, facts: factsOf(imported, await writeRejected(rejected, config, options.rejected)) };
}

export function linesOf(facts: ReturnType<typeof factsOf>): string[] {
  const rejected = Object.entries(facts.rejected).map(([reason, n]) => `${n} ${reason}`);
  return [
    `${facts.source} (${facts.form}): ${facts.rows} rows, ${facts.listings} new listings, ${facts.same} same as known` +
      `${facts.delisted > 0 ? `, ${facts.delisted} delisted` : ""}, rejected: ${rejected.join(", ") || "none"}`,
    ...(facts.unverified === undefined
      ? []
      : [`${facts.unverified} signed rows count as a third party's: the signature is not one of the endpoint's payee`]),
    ...(facts.says === undefined ? [] : [`not read completely: ${facts.says}`]),
    ...(facts.rejected_file === null ? [] : [`rejected rows with their reasons: ${facts.rejected_file}`]),
  ];
}

/**
 * `touchstone listings add`: imports the listings of a file or an address, in any supported format (docs/listings.md).
 */
export const addListings = (config: Config, source: string, options: ListingsOptions): Promise<void> =>
  withIntake(config, async (tools) => {
    const { claims, rejected, facts } = await importListings(tools, config, source, options);
    const next = `touchstone observe --once --listings ${shellWord(source)}`;
    const lines = [...linesOf(facts), ...(claims.length > 0 ? [`next: ${next}`] : [])];
    print(options, facts, lines);
    if (claims.length === 0 && rejected.length > 0) {
      throw new Failure("unreadable", `${source} contains no valid listing: ${rejected[0]!.says}`);
    }
  });

export const lineOf = (probeReport: ProbeReport): string =>
  [
    probeReport.state.padEnd(11),
    probeReport.method.padEnd(6),
    probeReport.url,
    ...(probeReport.protocols.length > 0 ? [probeReport.protocols.join("+")] : []),
    ...(probeReport.price === null ? [] : [probeReport.price]),
    ...(probeReport.status === null ? [] : [`status ${probeReport.status}`]),
    ...(probeReport.latency_ms === null ? [] : [`${probeReport.latency_ms} ms`]),
    ...probeReport.defects,
    ...(probeReport.says === undefined ? [] : [`(${probeReport.says})`]),
  ].join("  ");

/**
 * `touchstone observe --once --listings`: imports the listings and probes each once, without a payment and outside the
 * plan of the day. Each answer is recorded like that of any other probe, and printed.
 */
export const probeListings = (config: Config, source: string, options: ListingsOptions): Promise<void> =>
  withIntake(config, async (tools) => {
    const { claims, facts } = await importListings(tools, config, source, options);
    const states: Record<string, number> = {};
    const endpoints: ProbeReport[] = [];
    await probeClaims(tools, claims, systemClock, config.observe.hosts_at_once, (probeReport) => {
      states[probeReport.state] = (states[probeReport.state] ?? 0) + 1;
      if (options.json) endpoints.push(probeReport);
      else printLines(lineOf(probeReport));
    });
    const summary = Object.entries(states).map(([state, n]) => `${n} ${state}`);
    const lines = [...linesOf(facts), `probed: ${summary.join(", ") || "nothing"}`, "next: touchstone ingest --once"];
    print(options, { ...facts, states, endpoints }, lines);
    if (claims.length === 0) throw new Failure("unreadable", `${source} contains no valid listing`);
  });

/** Largest file of listings, bytes. */
const MAX_FILE = 64 * 1024 * 1024;

interface Imported extends IntakeReport {
  /** Format of the imported document, such as `openapi`. */
  form: string;
  /** Name of the source (the file or address of the listings) in the record. */
  source: string;
}

const isCatalogue = (url: string, parsedListing: ParsedListing): boolean =>
  /\/discovery\/resources\/?$/.test(new URL(url).pathname) || parsedListing.paged === true;

/**
 * Parses an operator's file by its format. YAML is parsed in the reader's thread, which is stopped if it takes too
 * long, and only for an operator's file: documents of third parties are never parsed as YAML.
 */
async function parseFile(name: string, text: string, reader: Reader): Promise<ParsedListing> {
  const parsedListing = readText(text, Number.POSITIVE_INFINITY);
  if (parsedListing.form !== "none") return parsedListing;
  const yaml = await reader.ask("yaml", text);
  if (!yaml.ok) throw new Failure("unreadable", `${name} as YAML: ${yaml.says}`);
  return yaml.value ?? parsedListing;
}

/**
 * Imports an operator's file. The import delists nothing: listings from an earlier file of this name stay even if this
 * file lacks them.
 * @throws Failure `unreadable` if the bytes are not UTF-8, or YAML beyond the limits of the reader; NotConfirmed
 */
export async function importFile(
  intake: Intake,
  name: string,
  bytes: Uint8Array,
  clock: Clock,
  reader: Reader = processReader,
): Promise<Imported> {
  if (bytes.length > MAX_FILE) throw new Failure("unreadable", `${name} is longer than ${MAX_FILE} bytes: split it`);
  const text = decodeUtf8(bytes);
  if (text === null) throw new Failure("unreadable", `${name} is not text in UTF-8`);
  const parsedListing = await parseFile(name, text, reader);
  const source = `operator:${name}`;
  return {
    form: parsedListing.form,
    source,
    ...(await intake.recordDocument(
      { ...parsedListing, whole: false },
      { name: source, byOperator: true, signedRows: true },
      clock,
    )),
  };
}

/**
 * Imports the document at an address. A seller's own document: its urls on the same origin count as listed by the
 * seller. A Bazaar catalogue: all its pages are read. Any other document: its urls count as listed by a third party.
 * @throws Failure `unreachable` or `unreadable`; NotConfirmed
 */
export async function importUrl(
  intake: Intake,
  egress: Egress,
  url: string,
  clock: Clock,
  reader: Reader = processReader,
): Promise<Imported> {
  const document = await readDocument(egress, url, reader);
  if ("fault" in document)
    throw new Failure(document.fault === "unreachable" ? "unreachable" : "unreadable", document.says);
  const { listing: parsedListing, source: documentSource } = document;
  if (isCatalogue(url, parsedListing)) {
    const catalogue = new URL(url);
    catalogue.search = "";
    return { form: "catalogue", source: catalogue.href, ...(await intake.readCatalogue(catalogue.href, clock, true)) };
  }
  const source = { name: url, byOperator: true, ...documentSource };
  return { form: parsedListing.form, source: url, ...(await intake.recordDocument(parsedListing, source, clock)) };
}

/**
 * Reads the listings of a source from the log and the segment files instead of the lake, so that a service may run at
 * the same time: the newest record of each source id, and all records of the day.
 */
const listingsFromLog = (reading: LogHistoryReader): Pick<Memory, "listingsOf"> => ({
  async listingsOf(source, day) {
    const newest = new Map<string, StandingListing>();
    const today: StandingListing[] = [];
    for (let partition = 0; partition < reading.partitions; partition++) {
      for await (const { type, body, key, eventId, observedAt } of reading.readFacts("listings", partition, null)) {
        if (body.source !== source || typeof body.source_id !== "string") continue;
        const row = {
          source_id: body.source_id,
          cap: key,
          event_id: eventId,
          gone: type === "delisting",
          newest: true,
          url: typeof body.normalised_url === "string" ? body.normalised_url : null,
          at: Date.parse(observedAt),
        };
        const previous = newest.get(row.source_id);
        if (previous === undefined || previous.at <= row.at) newest.set(row.source_id, row);
        if (observedAt.startsWith(day)) today.push({ ...row, newest: false });
      }
    }
    return [...today, ...newest.values()];
  },
});

/**
 * Returns the payee addresses, in lower case, that 402s of an endpoint ever named; none if the endpoint is not in the
 * record.
 */
const payTosFromLog =
  (reading: LogHistoryReader) =>
  async (cap: string): Promise<ReadonlySet<string>> => {
    try {
      return (await readEndpoint(reading, cap)).payTos;
    } catch (error) {
      if (error instanceof NotInRecord) return new Set();
      throw error;
    }
  };
