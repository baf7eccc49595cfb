import type { YieldToOthers } from "../../infra/concurrency.ts";
import { parseUrl } from "../../infra/url.ts";
import type { SignedCard } from "../record/card.ts";
import { COMPONENTS } from "../record/vocabulary.ts";
import { type IndexEntry, indexMembers } from "./index-lines.ts";
import { COLUMN, type Columns, type Row, toDate, toParquetBytes } from "./parquet-table.ts";

/** Figures of each measured component (part of the score) of a card. Each figure is a column. */
const FIGURE_NAMES = ["point", "lower", "upper", "n_eff"] as const;

/**
 * Columns of the market index as one Parquet file, for analysts: one row for each line, in the order of the shards. The
 * file is a pure function of the log, and the index's leaf names its hash. The signed card of a row is in the log at
 * position `leaf`.
 */
const INDEX_TABLE_COLUMNS: Columns = {
  capability_id: COLUMN.text,
  url: COLUMN.text,
  host: COLUMN.text,
  http_method: COLUMN.text,
  tool: COLUMN.text,
  class: COLUMN.text,
  description: COLUMN.text,
  band: COLUMN.text,
  tier: COLUMN.text,
  why: COLUMN.text,
  composite: COLUMN.number,
  sample_count: COLUMN.count,
  price: COLUMN.number,
  asset: COLUMN.text,
  networks: COLUMN.texts,
  pay_tos: COLUMN.texts,
  computed_at: COLUMN.moment,
  as_of: COLUMN.moment,
  flags: COLUMN.texts,
  defects: COLUMN.texts,
  ...componentColumns(),
  leaf: COLUMN.count,
};

/** The measured components of a card, as columns. */
export function componentColumns(): Columns {
  const names = COMPONENTS.flatMap((name) => FIGURE_NAMES.map((part) => `${name}_${part}`));
  return Object.fromEntries(names.map((name) => [name, COLUMN.number]));
}

/** The values of {@link componentColumns} for a card; a component that was not measured is left out. */
export function componentValuesOf(card: Pick<SignedCard, "components"> | null): Row {
  const columns = COMPONENTS.flatMap((name) => {
    const component = card?.components?.[name];
    return component ? FIGURE_NAMES.map((part) => [`${name}_${part}`, component[part]]) : [];
  });
  return Object.fromEntries(columns);
}

/** The composite score of a card with a letter; null for an unrated card, even if it holds a number. */
export const compositeOf = (card: Pick<SignedCard, "band" | "composite"> | null): number | null =>
  card && card.band !== "UNRATED" ? (card.composite ?? null) : null;

const distinct = (texts: readonly (string | null)[]): string[] => [...new Set(texts.filter((text) => text !== null))];

function rowOf(entry: IndexEntry, asOf: Date | null): Row {
  const { defects, offers = [], method, ...line } = indexMembers(entry);
  const card = entry.headline && (JSON.parse(entry.headline.text) as SignedCard);
  const pricedOffer =
    offers.find(({ asset, price }) => asset !== null && price !== null) ?? offers.find(({ asset }) => asset);
  return {
    ...{ ...line, host: parseUrl(line.url)?.host, http_method: method },
    ...{ composite: compositeOf(card), flags: card?.flags ?? [], defects: defects.map(({ defect }) => defect) },
    ...{ price: pricedOffer?.price == null ? null : Number(pricedOffer.price), asset: pricedOffer?.asset },
    ...{ networks: distinct(offers.map(({ network }) => network)), pay_tos: distinct(offers.map((one) => one.pay_to)) },
    ...{ computed_at: toDate(card?.computed_at), as_of: asOf },
    ...componentValuesOf(card),
  };
}

/**
 * Makes the bytes of the Parquet file of an index.
 * @param entries the index's lines in the order of the shards
 * @param giveTurn awaited after every few rows, so that other work of the process gets its turn
 */
export function createIndexTable(
  entries: Iterable<IndexEntry>,
  { tree_size, computed_at }: { tree_size: number; computed_at: string },
  giveTurn: YieldToOthers,
): Promise<Buffer> {
  const asOf = toDate(computed_at);
  const rows = function* () {
    for (const entry of entries) yield rowOf(entry, asOf);
  };
  return toParquetBytes(INDEX_TABLE_COLUMNS, { tree_size: String(tree_size), computed_at }, rows(), giveTurn);
}
