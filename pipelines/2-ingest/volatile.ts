import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { formatMoney } from "../record/money.ts";
import { rfc3339 } from "../record/time.ts";
import type { Defect } from "../record/vocabulary.ts";
import type { Saying, VolatileRow } from "../record/volatile.ts";

interface Row extends Omit<VolatileRow, "asked_for_payment" | "price" | "defects" | "said"> {
  asked: number;
  price_micro: bigint | null;
  listing_defects: string | null;
  listing_t: number | null;
  terms_defects: string | null;
  differs: string | null;
  terms_t: number | null;
}

/**
 * The volatile table of everything whose address is known, ascending by capability.
 * @param published capability -> of its published headline card `computed_at` (RFC 3339) and {topic: next offset} of what
 * its run had read; without one nothing is newer than the card, and both counts are 0.
 * @param said what was said against the record or taken back and is not in the tree yet, by capability
 */
export async function volatileRows(
  lake: Lake,
  published: ReadonlyMap<string, { at: string; read: Readonly<Record<string, number>> }>,
  said: ReadonlyMap<string, readonly Saying[]> = new Map(),
): Promise<VolatileRow[]> {
  const cards = [...published].map(([cap, { at, read }]) => ({ cap, at: Date.parse(at), read }));
  const rows: VolatileRow[] = [];
  for await (const batch of lake.stream<Row>(sql("27_volatile"), { published: JSON.stringify(cards) })) {
    for (const row of batch) rows.push(volatileOf(row, said.get(row.capability_id) ?? []));
  }
  return rows;
}

function volatileOf(row: Row, said: readonly Saying[]): VolatileRow {
  const { asked, price_micro, listing_defects, listing_t, terms_defects, differs, terms_t, ...same } = row;
  const defects = new Map<string, Defect>();
  // The 402 is newer than any listing that spoke of it, so of two with one name its words stay.
  for (const defect of [
    ...seenAt(listing_defects, listing_t),
    ...seenAt(terms_defects, terms_t),
    ...seenAt(differs, terms_t),
  ]) {
    defects.set(defect.defect, defect);
  }
  return {
    ...same,
    asked_for_payment: asked,
    price: price_micro === null ? null : formatMoney(price_micro),
    defects: JSON.stringify([...defects.values()]),
    said: JSON.stringify(said),
  };
}

function seenAt(defects: string | null, at: number | null): Defect[] {
  if (defects === null || at === null) return [];
  const seen = rfc3339(new Date(at));
  return (JSON.parse(defects) as Defect[]).map(({ defect, says }) => ({ defect, says, seenAt: seen }));
}
