import { NO_RELATED_PARTIES_SHA256, type NonDeliveringSeller } from "../3-grade/related.ts";
import type { RelatedPartiesLeaf } from "../record/leaf.ts";

/** The rows that one leaf adds to the table of related parties and removes from it. */
export type TableChange = Pick<RelatedPartiesLeaf, "computed_at" | "kin" | "add" | "remove">;

/**
 * The table of related parties (payees and domains that took money and gave no answer), computed from the leaves of
 * kind `kin`. A run (one grading) uses the table as of one tree size and names it by its hash. All changes are kept,
 * so that each of these tables can be made again; each changed row takes about 200 bytes.
 */
export class RelatedPartiesFold {
  /** Hash of the table, as the newest leaf names it. */
  sha256 = NO_RELATED_PARTIES_SHA256;
  readonly #sellers = new Map<string, NonDeliveringSeller>();
  /** Endpoint -> time of the run that last changed its row. The time stays when the row is removed. */
  readonly #changedAt = new Map<string, string>();
  readonly #changes: TableChange[] = [];
  readonly #tableHashes = new Set([NO_RELATED_PARTIES_SHA256]);

  apply({ computed_at, kin, add, remove }: TableChange): void {
    changeTable(this.#sellers, { add, remove });
    for (const cap of [...remove, ...add.map((seller) => seller.cap)]) this.#changedAt.set(cap, computed_at);
    this.#changes.push({ computed_at, kin, add, remove });
    if (kin === null) return;
    this.sha256 = kin;
    this.#tableHashes.add(kin);
  }

  /** The table of the newest leaf, ascending by endpoint. */
  get table(): NonDeliveringSeller[] {
    return tableOf(this.#sellers);
  }

  /** Time of the run that last changed the row of this endpoint, RFC 3339; "" when it never had a row. */
  changedAt(cap: string): string {
    return this.#changedAt.get(cap) ?? "";
  }

  /** Returns whether a leaf names the table with this hash. The empty table needs no leaf. */
  has(sha256: string): boolean {
    return this.#tableHashes.has(sha256);
  }

  /** Returns those of the requested tables that a leaf names, by hash. They are computed from all changes in order. */
  tables(hashes: Iterable<string>): Map<string, readonly NonDeliveringSeller[]> {
    const wanted = new Set(hashes);
    const tables = new Map<string, readonly NonDeliveringSeller[]>();
    if (wanted.has(NO_RELATED_PARTIES_SHA256)) tables.set(NO_RELATED_PARTIES_SHA256, []);
    const sellers = new Map<string, NonDeliveringSeller>();
    for (const change of this.#changes) {
      changeTable(sellers, change);
      if (change.kin !== null && wanted.has(change.kin)) tables.set(change.kin, tableOf(sellers));
    }
    return tables;
  }
}

function changeTable(
  sellers: Map<string, NonDeliveringSeller>,
  { add, remove }: Pick<TableChange, "add" | "remove">,
): void {
  for (const cap of remove) sellers.delete(cap);
  for (const { cap, domain, pay_to } of add) sellers.set(cap, { cap, pay_to, domain });
}

const tableOf = (sellers: ReadonlyMap<string, NonDeliveringSeller>): NonDeliveringSeller[] =>
  [...sellers.values()].sort((a, b) => (a.cap < b.cap ? -1 : 1));
