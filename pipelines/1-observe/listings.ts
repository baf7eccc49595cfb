import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import type { Claims } from "../record/bodies.ts";
import type { ListedCap } from "../record/memory.ts";
import { readCatalogue } from "./bazaar.ts";
import { BoundedMap } from "./bounded.ts";
import { claimOf, claimOf402, type ListedClaim, type Source } from "./claims.ts";
import type { Listed } from "./listings/documents.ts";
import { expand } from "./listings/expand.ts";
import type { Rejected } from "./listings/reasons.ts";
import { addReport, emptyReport, type IntakeReport } from "./listings/report.ts";
import { readSellerDocuments } from "./listings/seller.ts";
import { isSignedByPayee } from "./listings/signed.ts";
import { ListingWriter, type Row, type WriterParts } from "./listings/writer.ts";
import { originOf } from "./places.ts";
import type { ReadTerms } from "./terms.ts";

export type { IntakeReport } from "./listings/report.ts";
export { MAX_PER_DOMAIN } from "./listings/writer.ts";

/** Origins whose last reading is remembered. */
const MAX_ORIGINS = 20_000;
/** An origin is not read again within this long (ms of the record), however many of its 402s differ from its listing. */
const REREAD_MS = 60_000;

export interface IntakeParts extends WriterParts {
  egress: Egress;
  rail: Pick<Rail, "canPay" | "network">;
  /** Lower-case addresses that 402s of an endpoint named to us, for rows that their payee signed. */
  payTosOf?: (cap: string) => Promise<ReadonlySet<string>>;
}

/** Takes in what catalogues, sellers, operators and 402s claim. Unchanged content is not written again. */
export class Intake {
  readonly #writer: ListingWriter;
  readonly #rereadAt = new BoundedMap<string, number>(MAX_ORIGINS);

  constructor(private readonly with_: IntakeParts) {
    this.#writer = new ListingWriter(with_);
  }

  /** Tell it what is listed already: for the limit per domain, and so that a restart writes nothing twice. */
  know(listed: readonly ListedCap[]): void {
    this.#writer.know(listed);
  }

  /** A seller's own listing at its origin. An answer that is none is no error: most sellers have none. */
  async readSeller(origin: string, clock: Clock): Promise<IntakeReport> {
    const read = await readSellerDocuments(this.with_.egress, origin);
    const report = emptyReport(read.says);
    for (const { url, listed } of read.documents) {
      addReport(report, await this.take(listed, { name: url, ownOrigin: origin }, clock));
    }
    return report;
  }

  /** The same endpoint with the newest listing of its own that this process has read: the lake may be behind. */
  current(one: ListedCap): ListedCap {
    const own = this.#writer.own(one.cap);
    return own ? { ...one, claims: own.claims, sellerListing: own.eventId, sellerClaims: own.claims } : one;
  }

  /**
   * Reads the seller's own listing again and gives back what it says now. For a 402 that differs from what we know:
   * a seller that changed both is honest, and must not be called otherwise because we read its listing hours ago.
   */
  async reread(one: ListedCap, clock: Clock): Promise<ListedCap> {
    const origin = originOf(one.url);
    const now = clock.now().getTime();
    const last = this.#rereadAt.get(origin);
    if (last === undefined || Math.abs(now - last) > REREAD_MS) {
      this.#rereadAt.set(origin, now);
      await this.readSeller(origin, clock);
    }
    return this.current(one);
  }

  /** Every row of a Bazaar catalogue, as a third party's claim. */
  async readCatalogue(catalogue: string, clock: Clock, byHand = false): Promise<IntakeReport> {
    const read = await readCatalogue(this.with_.egress, catalogue);
    // A catalogue that names nothing at all is taken for broken, not for an empty market.
    const whole = read.stable && read.rows.length > 0;
    const report = await this.take({ items: read.rows, rejected: [], whole }, { name: catalogue, byHand }, clock);
    return read.says === undefined ? report : { ...report, says: read.says };
  }

  /** What a 402 declares of itself. */
  async note402(cap: string, url: string, method: Claims["method"], read: ReadTerms, clock: Clock): Promise<void> {
    const claim = claimOf402(cap, url, method, read);
    await this.#writer.write([{ claim, row: claim.body }], { name: "402" }, false, clock);
  }

  /**
   * Takes the rows of one document. When the document was read whole, what it named before and names no longer is
   * delisted.
   * @throws NotRecorded when the log does not take a record; what was appended before stays
   */
  async take(
    document: Pick<Listed, "rejected" | "whole" | "base"> & { items: readonly unknown[] },
    source: Source,
    clock: Clock,
  ): Promise<IntakeReport> {
    const { egress, metrics, rail } = this.with_;
    const from: Source = {
      judge: (url) => egress.judge(url),
      ...(document.base ? { base: document.base } : {}),
      ...source,
    };
    const rows: Row[] = [];
    const refused: Rejected[] = [...document.rejected];
    const items = document.items.flatMap(expand);
    for (const item of items) {
      const taken = claimOf(item, from, rail);
      if ("rejected" in taken) refused.push(taken.rejected);
      else rows.push({ claim: source.signedRows ? await this.#vouched(item, taken.claim) : taken.claim, row: item });
    }
    const written = await this.#writer.write(rows, source, document.whole, clock);
    for (const one of written.unkept) refused.push(one);
    metrics.count("observe_listings_total", { result: "refused" }, refused.length);
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
   * The claim, under the seller's control when its payee signed the row. Only of an operator's file: a row that
   * was signed once stays signed, and a catalogue could hold a seller to what it said long ago.
   */
  async #vouched(item: unknown, claim: ListedClaim): Promise<ListedClaim> {
    const payTos = async () => (await this.with_.payTosOf?.(claim.cap)) ?? new Set<string>();
    if (claim.body.seller_controlled || !(await isSignedByPayee(item, payTos))) return claim;
    return { ...claim, body: { ...claim.body, seller_controlled: true } };
  }
}
