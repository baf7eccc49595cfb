import { NO_RELATED_PARTIES, type Thief } from "../3-grade/related.ts";
import type { RelatedPartiesLeaf } from "../record/leaf.ts";

/** What one leaf changes of the table. */
export type TableChange = Pick<RelatedPartiesLeaf, "computed_at" | "kin" | "add" | "remove">;

/**
 * The table of related parties (payees and domains that took money) as a fold of the leaves of kind `kin`. A run is graded
 * with the table of one tree head and names it by its hash, so every table that a head had can be made again from the
 * changes: these are kept, about 200 bytes for each endpoint that took money or is no longer said to have.
 */
export class RelatedPartiesFold {
  /** Hash of the table, as the newest leaf names it. */
  sha256 = NO_RELATED_PARTIES;
  readonly #thieves = new Map<string, Thief>();
  /** Endpoint -> moment of the run that changed its row last, also of one that has no row any more. */
  readonly #changedAt = new Map<string, string>();
  readonly #changes: TableChange[] = [];
  readonly #names = new Set([NO_RELATED_PARTIES]);

  apply({ computed_at, kin, add, remove }: TableChange): void {
    changeTable(this.#thieves, { add, remove });
    for (const cap of [...remove, ...add.map((thief) => thief.cap)]) this.#changedAt.set(cap, computed_at);
    this.#changes.push({ computed_at, kin, add, remove });
    if (kin === null) return;
    this.sha256 = kin;
    this.#names.add(kin);
  }

  /** The table of the newest leaf, ascending by endpoint. */
  get table(): Thief[] {
    return tableOf(this.#thieves);
  }

  /** Moment of the run that changed the row of this endpoint last, RFC 3339; "" when it never had one. */
  changedAt(cap: string): string {
    return this.#changedAt.get(cap) ?? "";
  }

  /** Does a leaf name the table of this hash? The empty table needs no leaf. */
  has(sha256: string): boolean {
    return this.#names.has(sha256);
  }

  /** Returns those of the asked tables that a leaf names. Each is built by applying the leaves from the first one on. */
  tables(names: Iterable<string>): Map<string, readonly Thief[]> {
    const wanted = new Set(names);
    const tables = new Map<string, readonly Thief[]>();
    if (wanted.has(NO_RELATED_PARTIES)) tables.set(NO_RELATED_PARTIES, []);
    const thieves = new Map<string, Thief>();
    for (const change of this.#changes) {
      changeTable(thieves, change);
      if (change.kin !== null && wanted.has(change.kin)) tables.set(change.kin, tableOf(thieves));
    }
    return tables;
  }
}

function changeTable(thieves: Map<string, Thief>, { add, remove }: Pick<TableChange, "add" | "remove">): void {
  for (const cap of remove) thieves.delete(cap);
  for (const { cap, domain, pay_to } of add) thieves.set(cap, { cap, pay_to, domain });
}

const tableOf = (thieves: ReadonlyMap<string, Thief>): Thief[] =>
  [...thieves.values()].sort((a, b) => (a.cap < b.cap ? -1 : 1));
