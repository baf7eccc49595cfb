import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";

/** What a listing leaf says of an endpoint: defects without the moment they were last seen. */
export interface ListingFact {
  capability_id: string;
  url: string;
  method: string;
  tool: string | null;
  class: string;
  description: string | null;
  seller_controlled: boolean;
  defects: { defect: string; says: string }[];
}

interface Row {
  cap: string;
  url: string;
  method: string;
  tool: string | null;
  listed: boolean;
  own: boolean;
  class: string | null;
  description: string | null;
  listing_defects: string | null;
  terms_defects: string | null;
  differs: string | null;
}

/**
 * The endpoints with news since the last grade, or all of them: what their listing leaves would say, and those that no
 * source names now. Costs by the number of endpoints with news; run it in the transaction that clears `dirty`.
 */
export async function listingFacts(
  tx: Statements,
  which: "changed" | "all",
): Promise<{ listed: ListingFact[]; unlisted: string[] }> {
  const rows = await tx.all<Row>(sql("queries/listing_facts"), { every: which === "all" });
  return {
    listed: rows.filter((row) => row.listed).map(factOf),
    unlisted: rows.filter((row) => !row.listed).map(({ cap }) => cap),
  };
}

const factOf = (row: Row): ListingFact => ({
  capability_id: row.cap,
  url: row.url,
  method: row.method,
  tool: row.tool,
  class: row.class ?? "any",
  description: row.description,
  seller_controlled: row.own,
  defects: merged([row.listing_defects, row.terms_defects, row.differs]),
});

/** The 402 is newer than any listing that spoke of it, so of two defects with one name its words stay. */
function merged(lists: readonly (string | null)[]): ListingFact["defects"] {
  const byName = new Map<string, ListingFact["defects"][number]>();
  for (const list of lists)
    for (const { defect, says } of JSON.parse(list ?? "[]") as ListingFact["defects"])
      byName.set(defect, { defect, says });
  return [...byName.values()];
}
