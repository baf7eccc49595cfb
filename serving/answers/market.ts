import { NO_CARD } from "../../pipelines/published/index-lines.ts";
import type { IndexLine } from "../../pipelines/record/leaf.ts";
import { headlineOf, isListed, type ListedEntry, leafOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";

/**
 * One line of the market index: an endpoint and the card that a check shows. Members are in the order of RFC 8785, so
 * that the text is the line that the published shards hold.
 */
export function indexLine(entry: ListedEntry): IndexLine {
  const headline = headlineOf(entry);
  const leaf = headline ? leafOf(headline) : null;
  return {
    band: leaf?.card.band ?? "UNRATED",
    capability_id: entry.cap,
    card: leaf?.card ?? null,
    class: entry.class,
    defects: [...entry.defects],
    description: entry.description,
    leaf: headline?.leaf ?? null,
    method: entry.method,
    sample_count: leaf ? (leaf.card.sample_count ?? null) : 0,
    tier: leaf && headline?.measured ? leaf.card.tier : null,
    tool: entry.tool,
    url: entry.url,
    why: leaf?.why ?? NO_CARD,
  };
}

/** Every listed endpoint of the view, one JSON text a line. Begun on one view, it ends on it. */
export function* indexLines(view: View): Generator<string> {
  for (const entry of view.entries.values()) if (isListed(entry)) yield JSON.stringify(indexLine(entry));
}
