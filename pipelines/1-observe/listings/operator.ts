import type { Clock } from "../../../infra/clock.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { readEndpoint } from "../../corrections/endpoint-record.ts";
import { NotInRecord } from "../../corrections/errors.ts";
import type { Reading } from "../../corrections/reading.ts";
import type { Memory, StandingListing } from "../../record/memory.ts";
import { ownReader, type Reader } from "../reading/reader.ts";
import { type Listed, readText, textOf } from "./documents.ts";
import type { Intake, IntakeReport } from "./intake.ts";
import { readDocument } from "./sources.ts";

/** Longest file that is read, bytes. */
export const MAX_FILE = 64 * 1024 * 1024;

/** A file or an answer that is none of the forms. */
export class ListingsUnreadable extends Error {
  override readonly name = "ListingsUnreadable";
}
/** The address does not answer with a document. */
export class ListingsUnreachable extends Error {
  override readonly name = "ListingsUnreachable";
}

export interface Handed extends IntakeReport {
  /** What the document was taken for. */
  form: string;
  /** Name of the source in the record. */
  source: string;
}

const isCatalogue = (url: string, listed: Listed): boolean =>
  /\/discovery\/resources\/?$/.test(new URL(url).pathname) || listed.paged === true;

/** The file in the form it has. YAML may be anything, and only an operator's is read: where it can be stopped. */
async function readFile(name: string, text: string, reader: Reader): Promise<Listed> {
  const listed = readText(text, Number.POSITIVE_INFINITY);
  if (listed.form !== "none") return listed;
  const yaml = await reader.ask("yaml", text);
  if (!yaml.ok) throw new ListingsUnreadable(`${name} as YAML: ${yaml.says}`);
  return yaml.said ?? listed;
}

/**
 * Takes in a file that an operator hands in. It adds: what an earlier file of this name had and this one has not stays.
 * @throws ListingsUnreadable when the bytes are no text, or YAML past what is read; NotRecorded
 */
export async function takeFile(
  intake: Intake,
  name: string,
  bytes: Uint8Array,
  clock: Clock,
  reader: Reader = ownReader,
): Promise<Handed> {
  if (bytes.length > MAX_FILE) throw new ListingsUnreadable(`${name} is longer than ${MAX_FILE} bytes: split it`);
  const text = textOf(bytes);
  if (text === null) throw new ListingsUnreadable(`${name} is not text in UTF-8`);
  const listed = await readFile(name, text, reader);
  const source = `operator:${name}`;
  return {
    form: listed.form,
    source,
    ...(await intake.take({ ...listed, whole: false }, { name: source, byHand: true, signedRows: true }, clock)),
  };
}

/**
 * Takes in what stands at an address: a seller's own document (its own urls are then under its control), a Bazaar
 * catalogue, which is paged until it is stable, or any other document as a third party's word.
 * @throws ListingsUnreachable, ListingsUnreadable, NotRecorded
 */
export async function takeUrl(
  intake: Intake,
  egress: Egress,
  url: string,
  clock: Clock,
  reader: Reader = ownReader,
): Promise<Handed> {
  const read = await readDocument(egress, url, reader);
  if ("fault" in read) throw new (read.fault === "unreachable" ? ListingsUnreachable : ListingsUnreadable)(read.says);
  const { listed, of } = read;
  if (isCatalogue(url, listed)) {
    const catalogue = new URL(url);
    catalogue.search = "";
    return { form: "catalogue", source: catalogue.href, ...(await intake.readCatalogue(catalogue.href, clock, true)) };
  }
  const source = { name: url, byHand: true, ...of };
  return { form: listed.form, source: url, ...(await intake.take(listed, source, clock)) };
}

/** What sources have said, read from log and chain beside a running service, without the lake. */
export const listingsBeside = (reading: Reading): Pick<Memory, "listingsOf"> => ({
  async listingsOf(source, day) {
    const newest = new Map<string, StandingListing & { at: string }>();
    const today: StandingListing[] = [];
    for (let partition = 0; partition < reading.partitions; partition++) {
      for await (const { type, body, key, eventId, observedAt } of reading.facts("listings", partition, null)) {
        if (body.source !== source || typeof body.source_id !== "string") continue;
        const row = {
          source_id: body.source_id,
          cap: key,
          event_id: eventId,
          gone: type === "delisting",
          newest: true,
        };
        const known = newest.get(row.source_id);
        if (known === undefined || known.at <= observedAt) newest.set(row.source_id, { ...row, at: observedAt });
        if (observedAt.startsWith(day)) today.push({ ...row, newest: false });
      }
    }
    return [...today, ...newest.values()];
  },
});

/** Lower-case addresses that 402s of an endpoint asked to be paid at; none of one that the record has never met. */
export const payTosBeside =
  (reading: Reading) =>
  async (cap: string): Promise<ReadonlySet<string>> => {
    try {
      return (await readEndpoint(reading, cap)).payTos;
    } catch (error) {
      if (error instanceof NotInRecord) return new Set();
      throw error;
    }
  };
