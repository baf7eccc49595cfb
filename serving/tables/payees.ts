import { forEachYielding } from "../../infra/concurrency.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import { BANDS, type Band, type Letter } from "../../pipelines/record/vocabulary.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Payee } from "../schemas/check.ts";
import { defectsOf } from "./defects.ts";
import { type Entry, isListed, type ListedEntry } from "./entry.ts";

/** Largest number of origins in one answer; one address may be paid at thousands of origins. */
export const MAX_ORIGINS = 100;

/** Number of rows added between two yields to the event loop. They take a few milliseconds. */
const ROWS_PER_TURN = 2_000;

/** The facts about one address, with all its origins. */
type Figures = Omit<Payee, "address">;

/** The part of a view (an immutable state of all served tables) that this table is made from. */
interface PayeeSource {
  volatile: { rows: { values(): Iterable<VolatileRow> } };
  entry(cap: string): Entry | undefined;
  row(cap: string): VolatileRow | undefined;
  bandOf(entry: Entry): Band;
}

/**
 * Listed endpoints of one view by the addresses to which they are paid. An endpoint counts for every address in the
 * offers of its newest 402 and of earlier ones, so a seller cannot shed its record by naming another address.
 */
export class PayeeTable {
  readonly #byAddress = new Map<string, ListedEntry[]>();
  readonly #figuresByAddress = new Map<string, Figures>();

  private constructor(private readonly view: PayeeSource) {}

  /** Builds the table synchronously. */
  static build(view: PayeeSource): PayeeTable {
    const table = new PayeeTable(view);
    for (const row of view.volatile.rows.values()) table.#add(row);
    return table;
  }

  /** Builds the table, yielding to the event loop, since there are as many rows as endpoints. */
  static async buildYielding(view: PayeeSource): Promise<PayeeTable> {
    const table = new PayeeTable(view);
    await forEachYielding(view.volatile.rows.values(), ROWS_PER_TURN, (row) => table.#add(row));
    return table;
  }

  #add(row: VolatileRow): void {
    const entry = this.view.entry(row.capability_id);
    if (!isListed(entry)) return;
    for (const key of addressesOf(row)) {
      const entries = this.#byAddress.get(key);
      if (entries) entries.push(entry);
      else this.#byAddress.set(key, [entry]);
    }
  }

  /** Returns the facts about an address, at most {@link MAX_ORIGINS} origins; zeros for an unknown address. */
  get(address: string): Payee {
    const { origins, ...figures } = this.#figures(address);
    return { address, origins: origins.slice(0, MAX_ORIGINS), ...figures };
  }

  /** Returns the number of origins of an address, which may exceed those that {@link get} names. */
  countOrigins = (address: string): number => this.#figures(address).origins.length;

  #figures(address: string): Figures {
    const key = addressKey(address);
    let figures = this.#figuresByAddress.get(key);
    if (!figures) {
      figures = this.#computeFigures(this.#byAddress.get(key) ?? []);
      // Only known addresses are cached, so clients' questions cannot fill the table.
      if (this.#byAddress.has(key)) this.#figuresByAddress.set(key, figures);
    }
    return figures;
  }

  #computeFigures(entries: readonly ListedEntry[]): Figures {
    const letters = entries.map((entry) => this.view.bandOf(entry)).filter(isLetter);
    const origins = [...new Set(entries.map((entry) => new URL(entry.listing.url).origin))].sort();
    return {
      origins,
      listed: entries.length,
      graded: letters.length,
      bestBand: BANDS.find((band) => letters.includes(band)) ?? null,
      withDefects: entries.filter((entry) => defectsOf(this.view.row(entry.cap), entry).length > 0).length,
    };
  }
}

/**
 * Returns the distinct keys of a row's addresses. Nearly all of the millions of rows have one address, for which no
 * Set is made.
 */
function addressesOf({ pay_tos, pay_tos_before }: VolatileRow): Iterable<string> {
  if (pay_tos.length === 1 && pay_tos_before.length === 0) return [addressKey(pay_tos[0]!)];
  return new Set([...pay_tos, ...pay_tos_before].map(addressKey));
}

const isLetter = (band: Band): band is Letter => band !== "UNRATED";
