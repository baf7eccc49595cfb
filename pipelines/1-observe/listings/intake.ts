import { isAddress, isHex, verifyMessage } from "viem";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { canonicalText } from "../../../infra/canonical.ts";
import { type NamedCatalogue, sourceName, toCatalogue } from "../../../infra/catalogues.ts";
import type { Clock } from "../../../infra/clock.ts";
import { type Egress, withRequestFields } from "../../../infra/egress/egress.ts";
import { networksOf, type RailCapabilities } from "../../../infra/rails/rails.ts";
import type { Logger } from "../../../infra/telemetry.ts";
import type { Claims } from "../../record/bodies.ts";
import { capId } from "../../record/ids.ts";
import type { ListedCap } from "../../record/memory.ts";
import type { Method } from "../../record/vocabulary.ts";
import { get, isObject, type JsonObject, text } from "../json.ts";
import { INTAKE } from "../queue.ts";
import { ownReader, type Reader } from "../reading/reader.ts";
import { NotRecorded } from "../recorder.ts";
import { methodOf } from "../terms/declared.ts";
import type { ReadTerms } from "../terms/terms.ts";
import { originOf } from "../urls.ts";
import { Catalogues } from "./catalogues.ts";
import {
  claimOf402,
  type ListedClaim,
  type ReadClaim,
  type Rejected,
  rejected,
  type Source,
  settleClaim,
  type Taken,
} from "./claims.ts";
import type { Listed } from "./documents.ts";
import { readDocument, readSellerDocuments } from "./sources.ts";
import { ListingWriter, type Row, type WriterParts } from "./writer.ts";

export { MAX_PER_DOMAIN } from "./writer.ts";

/** What was done with the rows of a source. */
export interface IntakeReport {
  /** Items that were read, records that were new, items that could not be taken. */
  items: number;
  appended: number;
  refused: number;
  /** Items whose listing is in the record already, unchanged. */
  same: number;
  /** Rows that the source named before and names no longer. */
  delisted: number;
  /** The refused rows, whole, with the reason. */
  rejected: Rejected[];
  /** Claims that were read, in order. */
  claims: ListedClaim[];
  says?: string;
}

export const emptyReport = (says?: string): IntakeReport => ({
  items: 0,
  appended: 0,
  refused: 0,
  same: 0,
  delisted: 0,
  rejected: [],
  claims: [],
  ...(says === undefined ? {} : { says }),
});

/** Rejected rows that a report over many sources keeps; all of them are counted. */
const MAX_TOLD = 10_000;

/** Adds the report on one more source. */
export function addReport(to: IntakeReport, more: IntakeReport): void {
  to.items += more.items;
  to.appended += more.appended;
  to.refused += more.refused;
  to.same += more.same;
  to.delisted += more.delisted;
  for (const row of more.rejected) if (to.rejected.length < MAX_TOLD) to.rejected.push(row);
  for (const claim of more.claims) to.claims.push(claim);
}

/** Most origins of which the last rereading is remembered. */
const MAX_ORIGINS = 20_000;
/**
 * Least time between two rereadings of one origin (ms of the record), however many of its 402s differ from its listing.
 */
const REREAD_MS = 60_000;
/** Urls whose method is remembered. One that is forgotten is found again by its next probe. */
const MAX_METHODS = 100_000;
/** Rows that are read in one request to the reader. */
const ROWS_AT_ONCE = 100;
/**
 * After this many rows of one source that could not be read within the limits of a row, its other rows are not tried.
 */
const MAX_STUCK = 8;

export interface IntakeParts extends WriterParts {
  egress: Egress;
  rail: RailCapabilities;
  /** Lower-case addresses that 402s of an endpoint named to us; they check rows that claim a payee's signature. */
  payTosOf?: (cap: string) => Promise<ReadonlySet<string>>;
  /** Default: the reader of this process. */
  reader?: Reader;
  /** Logs errors of our own code. */
  logger?: Pick<Logger, "error">;
}

/**
 * Records what catalogues, sellers, operators and 402s claim. Claims that are in the record already are not written
 * again.
 */
export class Intake {
  readonly #writer: ListingWriter;
  readonly #rereadAt = new BoundedMap<string, number>(MAX_ORIGINS);
  /** Methods that probes found, by url, for listings that name none. */
  readonly #methods = new BoundedMap<string, Method>(MAX_METHODS);
  readonly #catalogueEgress: Egress;
  readonly #catalogues: Catalogues;

  constructor(private readonly parts: IntakeParts) {
    this.#catalogueEgress = withRequestFields(parts.egress, { pool: INTAKE });
    this.#catalogues = new Catalogues(this.#catalogueEgress, parts.reader ?? ownReader);
    this.#writer = new ListingWriter(parts);
  }

  /** Tells which endpoints are listed already: for the limit per domain, and so that a restart writes nothing twice. */
  know(listed: readonly ListedCap[]): void {
    this.#writer.know(listed);
    const asked = listed.filter((one) => one.tool === null && one.lastAsked != null);
    const byGet = new Set(asked.filter((one) => one.method === "GET").map((one) => one.url));
    for (const { url, method } of asked) if (!byGet.has(url)) this.foundMethod(url, method as Method);
  }

  /** A 402 came by this method. From now on it is the method of listings that name this url and no method. */
  foundMethod(url: string, method: Method): void {
    this.#methods.set(url, method);
  }

  /** The claim with the method that was found, where its row names none. */
  #withMethod(claim: ListedClaim): ListedClaim {
    const { claims, normalised_url: url } = claim.body;
    const method = claims.method === null && claims.tool === null ? this.#methods.get(url) : undefined;
    if (method === undefined) return claim;
    return { cap: capId(method, url), body: { ...claim.body, claims: { ...claims, method } } };
  }

  /**
   * Reads a seller's own listing at its origin. Most sellers have none, which is no error. An error of our own code is
   * logged and reported as no listing, so that it ends neither the call that needs the listing nor other readings.
   * @param egress default: the observer's; another one uses another pool or looks like another client
   * @throws NotRecorded
   */
  async readSeller(origin: string, clock: Clock, egress: Egress = this.parts.egress): Promise<IntakeReport> {
    try {
      return await this.#readSeller(origin, clock, egress);
    } catch (error) {
      if (error instanceof NotRecorded) throw error;
      this.parts.metrics.count("touchstone_observe_listings_total", { result: "broken" });
      this.parts.logger?.error({ err: error, origin }, "a seller's listing could not be taken in");
      return emptyReport(`our own fault: ${String(error)}`);
    }
  }

  async #readSeller(origin: string, clock: Clock, egress: Egress): Promise<IntakeReport> {
    const read = await readSellerDocuments(egress, origin, this.parts.reader);
    const report = emptyReport(read.says);
    for (const { url, listed } of read.documents) {
      addReport(report, await this.take(listed, { name: url, ownOrigin: origin }, clock));
    }
    return report;
  }

  /** Adds to an endpoint the newest own listing that this process has read, which the lake may not have loaded yet. */
  current(one: ListedCap): ListedCap {
    const own = this.#writer.own(one.cap);
    return own ? { ...one, claims: own.claims, sellerListing: own.eventId, sellerClaims: own.claims } : one;
  }

  /**
   * Reads the seller's own listing again when a 402 differs from the listing that we know, and returns the endpoint as
   * it is listed now. A seller that changed both is honest and must not be accused because we read its listing hours
   * ago.
   */
  async reread(one: ListedCap, clock: Clock, egress?: Egress): Promise<ListedCap> {
    const origin = originOf(one.url);
    const now = clock.now().getTime();
    const last = this.#rereadAt.get(origin);
    if (last === undefined || Math.abs(now - last) > REREAD_MS) {
      this.#rereadAt.set(origin, now);
      await this.readSeller(origin, clock, egress);
    }
    return this.current(one);
  }

  /** Is there an unfinished read of this catalogue that may go on now? */
  isCut(named: NamedCatalogue, clock: Clock): boolean {
    return this.#catalogues.isDue(named, clock);
  }

  /** Reads every row of a catalogue as a third party's claim; rows of a seller's own document as the seller's. */
  async readCatalogue(
    named: NamedCatalogue,
    clock: Clock,
    byHand = toCatalogue(named).curated,
    signal?: AbortSignal,
  ): Promise<IntakeReport> {
    const catalogue = toCatalogue(named);
    const name = sourceName(catalogue.url);
    if (catalogue.kind !== "bazaar") {
      const read = await readDocument(this.#catalogueEgress, catalogue.url, this.parts.reader, catalogue.headers);
      if ("fault" in read) return emptyReport(read.says);
      return this.take(read.listed, { name, byHand, ...read.of }, clock);
    }
    const read = await this.#catalogues.read(catalogue, clock, signal);
    // An empty catalogue is taken for broken, so it delists nothing.
    const whole = read.stable && read.rows.length > 0;
    const report = await this.take({ items: read.rows, rejected: [], whole }, { name, byHand }, clock);
    return read.says === undefined ? report : { ...report, says: read.says };
  }

  /** Records what a 402 declares of its endpoint. */
  async note402(cap: string, url: string, method: Claims["method"], read: ReadTerms, clock: Clock): Promise<void> {
    const claim = claimOf402(cap, url, method, read);
    await this.#writer.write([{ claim, row: claim.body }], { name: "402" }, false, clock);
  }

  /**
   * Records the rows of one document. If the whole document was read, rows that it named before and names no longer are
   * delisted.
   * @throws NotRecorded when the log does not take a record; what was appended before stays
   */
  async take(
    document: Pick<Listed, "rejected" | "whole" | "base"> & { items: readonly unknown[] },
    source: Source,
    clock: Clock,
  ): Promise<IntakeReport> {
    const { egress, metrics, rail } = this.parts;
    const from: Source = {
      validate: (url) => egress.validate(url),
      ...(document.base ? { base: document.base } : {}),
      ...source,
    };
    const rows: Row[] = [];
    const refused: Rejected[] = [...document.rejected];
    const items = document.items.flatMap(expand);
    for await (const { row, read } of readRows(this.parts, items, from)) {
      const taken = settleClaim(read, row, from, rail);
      if ("rejected" in taken) refused.push(taken.rejected);
      else {
        const claim = source.signedRows ? await this.#vouched(row, taken) : taken.claim;
        rows.push({ claim: this.#withMethod(claim), row });
      }
    }
    // A row that could not be read may be one that is listed already, so nothing is delisted.
    const whole = document.whole && !refused.some(({ reason }) => reason === "unreadable");
    const written = await this.#writer.write(rows, source, whole, clock);
    for (const one of written.unkept) refused.push(one);
    metrics.count("touchstone_observe_listings_total", { result: "refused" }, refused.length);
    return {
      items: items.length + document.rejected.length,
      appended: written.appended,
      refused: refused.length,
      same: rows.length - written.appended - written.unkept.length,
      delisted: written.delisted,
      rejected: refused,
      claims: rows.map(({ claim }) => claim),
    };
  }

  /**
   * The claim, marked as the seller's own when its payee signed the row. Only rows of an operator's file are marked: a
   * signature does not expire, so a catalogue could hold a seller to what it signed long ago.
   */
  async #vouched(item: unknown, { claim, own }: Exclude<Taken, { rejected: Rejected }>): Promise<ListedClaim> {
    const payTos = async () => (await this.parts.payTosOf?.(claim.cap)) ?? new Set<string>();
    if (claim.body.seller_controlled || !(await isSignedByPayee(item, payTos))) return claim;
    return { ...claim, body: { ...claim.body, seller_controlled: true, defects: own } };
  }
}

/**
 * Reads rows as claims, many in one request; when that fails, one by one, so that a row that cannot be read stops only
 * itself.
 */
export async function* readRows(
  { rail, reader = ownReader }: Pick<IntakeParts, "rail" | "reader">,
  items: readonly unknown[],
  from: Source,
): AsyncGenerator<{ row: unknown; read: ReadClaim }> {
  const { validate: _, ...source } = from;
  const ask = (rows: readonly unknown[]) => reader.ask("rows", { rows, source, ownNetwork: networksOf(rail) });
  let stuck = 0;
  for (let i = 0; i < items.length; i += ROWS_AT_ONCE) {
    const rows = items.slice(i, i + ROWS_AT_ONCE);
    const together = stuck < MAX_STUCK ? await ask(rows) : null;
    for (const [n, row] of rows.entries()) {
      if (together?.ok) {
        yield { row, read: together.value[n]! };
        continue;
      }
      const alone = stuck < MAX_STUCK ? await ask([row]) : null;
      if (alone?.ok === false) stuck++;
      yield { row, read: alone?.ok ? alone.value[0]! : { rejected: rejected("unreadable", row) } };
    }
  }
}

const MAX_VERBS = 5;
/** Longest text that is split into verbs, characters; and most items of a list of verbs that are read. */
const MAX_NAMED = 100;

/**
 * Splits an item that names several verbs (`methods: [..]`, "GET, POST") into one for each; other items stay as they
 * are.
 */
export function expand(item: unknown): unknown[] {
  if (!isObject(item)) return [item];
  const { method, methods } = item;
  const named =
    Array.isArray(methods) && method === undefined
      ? methods.slice(0, MAX_NAMED)
      : typeof method === "string" && method.length <= MAX_NAMED
        ? method.split(/[\s,|/]+/)
        : [];
  const verbs = named.filter((one) => methodOf(one) !== null).slice(0, MAX_VERBS);
  return named.length > 1 && verbs.length > 1
    ? verbs.map((verb) => ({ ...item, methods: undefined, method: verb }))
    : [item];
}

/**
 * The text that a payee signs with EIP-191 (personal_sign): the RFC 8785 form of the row without its member `signed`.
 */
export function listingStatement(row: JsonObject): string {
  const { signed: _, ...rest } = row;
  return canonicalText(rest);
}

/**
 * Is this row signed by an address to which the endpoint's own 402s asked us to pay? The address in the row proves
 * nothing: anybody can list somebody else's endpoint with an address of their own. Never throws for what the row holds.
 * @param payTos lower-case addresses that 402s of the endpoint named to us
 */
async function isSignedByPayee(row: unknown, payTos: () => Promise<ReadonlySet<string>>): Promise<boolean> {
  const address = text(get(row, "signed", "pay_to"), 60);
  const signature = text(get(row, "signed", "signature"), 200);
  if (!isObject(row) || !address || !isAddress(address, { strict: false }) || !isHex(signature)) return false;
  try {
    const message = listingStatement(row);
    return (await verifyMessage({ address, message, signature })) && (await payTos()).has(address.toLowerCase());
  } catch {
    // The signature is no point of the curve, or the row has no canonical form: the row is not signed.
    return false;
  }
}
