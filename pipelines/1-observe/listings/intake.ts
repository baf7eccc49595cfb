import { isAddress, isHex, verifyMessage } from "viem";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { canonicalText } from "../../../infra/canonical.ts";
import { type NamedCatalogue, sourceName, toCatalogue } from "../../../infra/catalogues.ts";
import type { Clock } from "../../../infra/clock.ts";
import { type Egress, withRequestFields } from "../../../infra/egress/egress.ts";
import { networksOf, type RailCapabilities } from "../../../infra/rails/rails.ts";
import type { Logger } from "../../../infra/telemetry.ts";
import type { Claims } from "../../record/bodies.ts";
import type { ListedCap } from "../../record/memory.ts";
import type { Method } from "../../record/vocabulary.ts";
import { get, isObject, type JsonObject, text } from "../json.ts";
import { INTAKE } from "../queue.ts";
import { processReader, type Reader } from "../reading/reader.ts";
import { NotConfirmed } from "../recorder.ts";
import { methodOf } from "../terms/declared.ts";
import type { ReadTerms } from "../terms/terms.ts";
import { originOf } from "../urls.ts";
import { Catalogues } from "./catalogues.ts";
import {
  type ClaimResult,
  completeClaim,
  createClaimFrom402,
  type ListedClaim,
  type ReadClaim,
  type Rejected,
  rejectRow,
  type Source,
  withFoundMethod,
} from "./claims.ts";
import type { ParsedListing } from "./documents.ts";
import { readDocument, readSellerDocuments } from "./sources.ts";
import { withWrittenRow, writtenRowOf } from "./wellknown.ts";
import { type ClaimRow, ListingWriter, type WriterParts } from "./writer.ts";

export { MAX_PER_DOMAIN } from "./writer.ts";

/** Counts of what was done with the rows of a source. */
export interface IntakeReport {
  /** Number of items that were read. */
  items: number;
  /** Number of records that were written. */
  appended: number;
  /** Number of items that were not accepted. */
  refused: number;
  /** Number of items whose listing is already in the record, unchanged. */
  same: number;
  /** Number of rows that the source named before and names no longer. */
  delisted: number;
  /** The rows that were not accepted, complete, with the reason. */
  rejected: Rejected[];
  /** Claims of all rows that could be read, in the order of the rows, including claims that were already recorded. */
  claims: ListedClaim[];
  /** Number of rows of an operator's file with a signature that does not count; their claims are a third party's. */
  unverified?: number;
  /** Why the source could not be read, or not to its end, in words; else absent. */
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

/** Largest number of rejected rows that a report on many sources keeps. All rejected rows are counted. */
const MAX_REPORTED_ROWS = 10_000;

/** Adds the report on a further source to `total`, except its `unverified` and `says`. */
export function addReport(total: IntakeReport, addition: IntakeReport): void {
  total.items += addition.items;
  total.appended += addition.appended;
  total.refused += addition.refused;
  total.same += addition.same;
  total.delisted += addition.delisted;
  for (const row of addition.rejected) if (total.rejected.length < MAX_REPORTED_ROWS) total.rejected.push(row);
  for (const claim of addition.claims) total.claims.push(claim);
}

/** Largest number of origins whose last rereading is remembered. */
const MAX_ORIGINS = 20_000;
/**
 * Least time between two rereadings of one origin, ms of the observer's clock, even if several 402s differ from the
 * origin's listing.
 */
const MIN_REREAD_INTERVAL_MS = 60_000;
/** Largest number of urls whose method is remembered. A forgotten method is found again by the next probe. */
const MAX_REMEMBERED_METHODS = 100_000;
/** Largest number of rows in one request to the reader (the thread that parses data from strangers). */
const ROWS_PER_REQUEST = 100;
/**
 * After this many rows of one source that could not be read within the time and memory for a row, the source's other
 * rows are not read.
 */
const MAX_UNREADABLE = 8;

export interface IntakeParts extends WriterParts {
  egress: Egress;
  rail: RailCapabilities;
  /**
   * Returns the payee addresses, in lower case, that an endpoint's 402s have named. Rows that claim a payee's signature
   * are checked against them.
   */
  payTosOf?: (cap: string) => Promise<ReadonlySet<string>>;
  /** Default: the reader of this process. */
  reader?: Reader;
  /** Logs errors of our own code. */
  logger?: Pick<Logger, "error">;
}

/**
 * Records what catalogues, sellers, operators and 402s claim about endpoints. Claims that are already in the record are
 * not written again.
 */
export class Intake {
  readonly #writer: ListingWriter;
  /** When each origin's listing was last read again because a 402 differed from it, unix ms of the observer's clock. */
  readonly #rereadAt = new BoundedMap<string, number>(MAX_ORIGINS);
  /** HTTP methods that probes found, by url, for listings that name no method. */
  readonly #methods = new BoundedMap<string, Method>(MAX_REMEMBERED_METHODS);
  readonly #catalogueEgress: Egress;
  readonly #catalogues: Catalogues;

  constructor(private readonly parts: IntakeParts) {
    this.#catalogueEgress = withRequestFields(parts.egress, { pool: INTAKE });
    this.#catalogues = new Catalogues(this.#catalogueEgress, parts.reader ?? processReader);
    this.#writer = new ListingWriter(parts);
  }

  /**
   * Remembers which endpoints are already listed. They count towards the limit per domain, and are not written a second
   * time after a restart. Also remembers their methods that got a 402, unless GET is one of them.
   */
  rememberListed(listed: readonly ListedCap[]): void {
    this.#writer.rememberListed(listed);
    const probedEndpoints = listed.filter((one) => one.tool === null && one.lastAsked != null);
    const urlsWithGet = new Set(probedEndpoints.filter((one) => one.method === "GET").map((one) => one.url));
    for (const { url, method } of probedEndpoints)
      if (!urlsWithGet.has(url)) this.rememberMethod(url, method as Method);
  }

  /**
   * Remembers that this method got a 402. From now on, listings that name this url without a method get this method.
   */
  rememberMethod(url: string, method: Method): void {
    this.#methods.set(url, method);
  }

  /** Adds the method that a probe found, if the claim's row names no method. */
  #addMethod(claim: ListedClaim): ListedClaim {
    const method = this.#methods.get(claim.body.normalised_url);
    return method === undefined ? claim : withFoundMethod(claim, method);
  }

  /**
   * Reads a seller's own listing at its origin. Most sellers have none, which is no error. An error of our own code is
   * logged and reported as no listing, so that it stops neither the call that needs the listing nor the reading of
   * others.
   * @param egress default: the observer's egress; a caller passes another one to use another connection pool or client
   * @throws NotConfirmed
   */
  async readSeller(origin: string, clock: Clock, egress: Egress = this.parts.egress): Promise<IntakeReport> {
    try {
      return await this.#readSeller(origin, clock, egress);
    } catch (error) {
      if (error instanceof NotConfirmed) throw error;
      this.parts.metrics.count("touchstone_observe_listings_total", { result: "broken" });
      this.parts.logger?.error({ err: error, origin }, "a seller's listing could not be taken in");
      return emptyReport(`our own fault: ${String(error)}`);
    }
  }

  async #readSeller(origin: string, clock: Clock, egress: Egress): Promise<IntakeReport> {
    const sellerDocuments = await readSellerDocuments(egress, origin, this.parts.reader);
    const report = emptyReport(sellerDocuments.says);
    for (const { url, listing } of sellerDocuments.documents) {
      addReport(report, await this.recordDocument(listing, { name: url, ownOrigin: origin }, clock));
    }
    return report;
  }

  /**
   * Returns the endpoint with its seller's newest own listing that this process has read, which the lake (the
   * database of the log's rows) may not have loaded yet.
   */
  withSellerListing(endpoint: ListedCap): ListedCap {
    const sellerListing = this.#writer.newestSellerListing(endpoint.cap);
    return sellerListing
      ? {
          ...endpoint,
          claims: sellerListing.claims,
          sellerListing: sellerListing.eventId,
          sellerClaims: sellerListing.claims,
        }
      : endpoint;
  }

  /**
   * Reads the seller's own listing again when a 402 differs from the listing that we know, and returns the endpoint as
   * it is listed now. A seller that changed both is honest and must not be accused because our copy of its listing is
   * hours old.
   */
  async rereadSeller(endpoint: ListedCap, clock: Clock, egress?: Egress): Promise<ListedCap> {
    const origin = originOf(endpoint.url);
    const now = clock.now().getTime();
    const lastReadAt = this.#rereadAt.get(origin);
    if (lastReadAt === undefined || Math.abs(now - lastReadAt) > MIN_REREAD_INTERVAL_MS) {
      this.#rereadAt.set(origin, now);
      await this.readSeller(origin, clock, egress);
    }
    return this.withSellerListing(endpoint);
  }

  /** Is there an unfinished read of this catalogue that may continue now? */
  mayContinue(namedCatalogue: NamedCatalogue, clock: Clock): boolean {
    return this.#catalogues.mayContinue(namedCatalogue, clock);
  }

  /**
   * Reads the rows of a catalogue. They count as claims of a third party, or of the seller if the catalogue is the
   * seller's own document.
   * @param byOperator true: the limit of endpoints per domain does not apply to the rows
   */
  async readCatalogue(
    namedCatalogue: NamedCatalogue,
    clock: Clock,
    byOperator = toCatalogue(namedCatalogue).curated,
    signal?: AbortSignal,
  ): Promise<IntakeReport> {
    const catalogue = toCatalogue(namedCatalogue);
    const name = sourceName(catalogue.url);
    if (catalogue.kind !== "bazaar") {
      const read = await readDocument(this.#catalogueEgress, catalogue.url, this.parts.reader, catalogue.headers);
      if ("fault" in read) return emptyReport(read.says);
      return this.recordDocument(read.listing, { name, byOperator, ...read.source }, clock);
    }
    const read = await this.#catalogues.read(catalogue, clock, signal);
    // An empty catalogue is probably broken, so it delists nothing.
    const isWhole = read.stable && read.rows.length > 0;
    const report = await this.recordDocument(
      { items: read.rows, rejected: [], whole: isWhole },
      { name, byOperator },
      clock,
    );
    return read.says === undefined ? report : { ...report, says: read.says };
  }

  /** Records what a 402 declares about its endpoint. */
  async recordFrom402(
    cap: string,
    url: string,
    method: Claims["method"],
    terms: ReadTerms,
    clock: Clock,
  ): Promise<void> {
    const claim = createClaimFrom402(cap, url, method, terms);
    await this.#writer.write([{ claim, row: claim.body }], { name: "402" }, false, clock);
  }

  /**
   * Records the rows of one document. If the whole document was read, it delists rows that the document named before
   * and names no longer.
   * @throws NotConfirmed when the log does not confirm a record; earlier records of the document stay
   */
  async recordDocument(
    document: Pick<ParsedListing, "rejected" | "whole" | "base"> & { items: readonly unknown[] },
    source: Source,
    clock: Clock,
  ): Promise<IntakeReport> {
    const { egress, metrics, rail } = this.parts;
    const documentSource: Source = {
      validate: (url) => egress.validate(url),
      ...(document.base ? { base: document.base } : {}),
      ...source,
    };
    const rows: ClaimRow[] = [];
    const rejectedRows: Rejected[] = [...document.rejected];
    let unverified = 0;
    const items = document.items.flatMap(splitMethods);
    for await (const { row, read } of readRows(this.parts, items, documentSource)) {
      const result = completeClaim(read, row, documentSource, rail);
      if ("rejected" in result) rejectedRows.push(result.rejected);
      else {
        const claim = source.signedRows ? await this.#markSigned(row, result) : result.claim;
        if (get(row, "signed") !== undefined && !claim.body.seller_controlled) unverified++;
        rows.push({ claim: this.#addMethod(claim), row });
      }
    }
    // An unreadable row may be one that is already listed, so no missing row is delisted.
    const isWhole = document.whole && !rejectedRows.some(({ reason }) => reason === "unreadable");
    const writeResult = await this.#writer.write(rows, source, isWhole, clock);
    for (const one of writeResult.rejected) rejectedRows.push(one);
    metrics.count("touchstone_observe_listings_total", { result: "refused" }, rejectedRows.length);
    return {
      items: items.length + document.rejected.length,
      appended: writeResult.appended,
      refused: rejectedRows.length,
      same: rows.length - writeResult.appended - writeResult.rejected.length,
      delisted: writeResult.delisted,
      rejected: rejectedRows,
      claims: rows.map(({ claim }) => claim),
      ...(source.signedRows && unverified > 0 ? { unverified } : {}),
    };
  }

  /**
   * Marks a claim as the seller's own when its payee signed the row. This is done only for rows of an operator's file:
   * a signature does not expire, so a catalogue could keep showing a claim that the seller signed long ago.
   */
  async #markSigned(
    item: unknown,
    { claim, ownDefects }: Exclude<ClaimResult, { rejected: Rejected }>,
  ): Promise<ListedClaim> {
    const payTos = async () => (await this.parts.payTosOf?.(claim.cap)) ?? new Set<string>();
    if (claim.body.seller_controlled || !isObject(item)) return claim;
    if (!(await isSignedByPayee(writtenRowOf(item), payTos))) return claim;
    return { ...claim, body: { ...claim.body, seller_controlled: true, defects: ownDefects } };
  }
}

/**
 * Reads rows as claims, many in one request. If a request fails, its rows are read one by one, so that an unreadable
 * row does not affect the others.
 */
export async function* readRows(
  { rail, reader = processReader }: Pick<IntakeParts, "rail" | "reader">,
  items: readonly unknown[],
  fullSource: Source,
): AsyncGenerator<{ row: unknown; read: ReadClaim }> {
  const { validate: _, ...source } = fullSource;
  const askReader = (rows: readonly unknown[]) => reader.ask("rows", { rows, source, ownNetwork: networksOf(rail) });
  let unreadable = 0;
  for (let i = 0; i < items.length; i += ROWS_PER_REQUEST) {
    const rows = items.slice(i, i + ROWS_PER_REQUEST);
    const batchResult = unreadable < MAX_UNREADABLE ? await askReader(rows) : null;
    for (const [n, row] of rows.entries()) {
      if (batchResult?.ok) {
        yield { row, read: batchResult.value[n]! };
        continue;
      }
      const rowResult = unreadable < MAX_UNREADABLE ? await askReader([row]) : null;
      if (rowResult?.ok === false) unreadable++;
      yield { row, read: rowResult?.ok ? rowResult.value[0]! : { rejected: rejectRow("unreadable", row) } };
    }
  }
}

const MAX_METHODS_PER_ITEM = 5;
/** Longest text that is split into methods, characters; and most items of a list of methods that are read. */
const MAX_METHOD_NAMES = 100;

/**
 * Splits an item that names several HTTP methods (`methods: [..]`, "GET, POST") into one item for each; other items are
 * returned unchanged.
 */
export function splitMethods(item: unknown): unknown[] {
  if (!isObject(item)) return [item];
  const { method, methods } = item;
  const methodNames =
    Array.isArray(methods) && method === undefined
      ? methods.slice(0, MAX_METHOD_NAMES)
      : typeof method === "string" && method.length <= MAX_METHOD_NAMES
        ? method.split(/[\s,|/]+/)
        : [];
  const verbs = methodNames.filter((one) => methodOf(one) !== null).slice(0, MAX_METHODS_PER_ITEM);
  return methodNames.length > 1 && verbs.length > 1
    ? verbs.map((verb) => ({ ...withWrittenRow(item), methods: undefined, method: verb }))
    : [item];
}

/**
 * Returns the text that a payee signs with EIP-191 (personal_sign): the RFC 8785 form of the row without its member
 * `signed`.
 */
export function listingStatement(row: JsonObject): string {
  const { signed: _, ...rest } = row;
  return canonicalText(rest);
}

/**
 * Is this row signed by an address to which the endpoint's own 402s asked us to pay? The address in the row alone
 * proves nothing, since anybody can list another seller's endpoint with an address of their own. Never throws for
 * anything in the row.
 * @param payTos lower-case addresses that 402s of the endpoint named to us
 */
async function isSignedByPayee(row: JsonObject, payTos: () => Promise<ReadonlySet<string>>): Promise<boolean> {
  const address = text(get(row, "signed", "pay_to"), 60);
  const signature = text(get(row, "signed", "signature"), 200);
  if (!address || !isAddress(address, { strict: false }) || !isHex(signature)) return false;
  try {
    const message = listingStatement(row);
    return (await verifyMessage({ address, message, signature })) && (await payTos()).has(address.toLowerCase());
  } catch {
    // The signature is not valid, or the row has no canonical form. Then the row counts as unsigned.
    return false;
  }
}
