import { BANDS, type Letter } from "../../pipelines/record/vocabulary.ts";
import type { Payee } from "../schemas/check.ts";
import { headlineOf, isListed, type ListedEntry } from "./entry.ts";
import type { View } from "./view.ts";

/** Origins named in one answer; an address can stand behind thousands. */
export const MAX_ORIGINS = 100;

/** Hex addresses differ by case only in their checksum; base58 is told apart by case. */
export const payeeKey = (address: string): string => (address.startsWith("0x") ? address.toLowerCase() : address);

/** Addresses that are paid, of one view: which listed endpoints stand behind each. */
export class PayeeTable {
  readonly #byAddress = new Map<string, ListedEntry[]>();
  readonly #made = new Map<string, Omit<Payee, "address">>();

  constructor(view: View) {
    for (const row of view.volatile.rows.values()) {
      if (row.pay_to === null) continue;
      const entry = view.entry(row.capability_id);
      if (!isListed(entry)) continue;
      const key = payeeKey(row.pay_to);
      const held = this.#byAddress.get(key);
      if (held) held.push(entry);
      else this.#byAddress.set(key, [entry]);
    }
  }

  /** What the record knows about an address; zeros for one that nobody in the record is paid at. */
  get(address: string): Payee {
    const key = payeeKey(address);
    let figures = this.#made.get(key);
    if (!figures) {
      figures = total(this.#byAddress.get(key) ?? []);
      // Only known addresses are kept, so strangers' questions cannot fill the table.
      if (this.#byAddress.has(key)) this.#made.set(key, figures);
    }
    return { address, ...figures };
  }
}

function total(entries: readonly ListedEntry[]): Omit<Payee, "address"> {
  const letters = entries.map((entry) => headlineOf(entry)?.band).filter((band): band is Letter => isLetter(band));
  const origins = [...new Set(entries.map((entry) => new URL(entry.url).origin))].sort();
  return {
    origins: origins.slice(0, MAX_ORIGINS),
    listed: entries.length,
    graded: letters.length,
    bestBand: BANDS.find((band) => letters.includes(band)) ?? null,
    withDefects: entries.filter((entry) => entry.defects.length > 0).length,
  };
}

const isLetter = (band: string | undefined): band is Letter => BANDS.includes(band as Letter);
