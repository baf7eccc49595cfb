import { canonicalBytes } from "../../infra/canonical.ts";
import type { Store } from "../../infra/store/store.ts";
import type { PublishedFold } from "./fold.ts";
import { HINT_INDEX, HINT_KEYS } from "./objects.ts";
import { swapPublic } from "./writes.ts";

/** Which leaf each hint names, as far as this process knows. */
export type Hinted = Map<string, number>;

/**
 * Name the newest index and keys. Unsigned: a reader proves them by inclusion. Written only when the one that is there
 * is older, so a publication without a new index or new keys writes nothing, and asks nothing.
 */
export async function writeHints(store: Store, fold: PublishedFold, hinted: Hinted): Promise<void> {
  const hint = async (key: string, content: { leaf: number }) => {
    if (hinted.get(key) === content.leaf) return;
    await swapPublic(store, key, (theirs) => (namedBy(theirs) >= content.leaf ? null : canonicalBytes(content)));
    hinted.set(key, content.leaf);
  };
  if (fold.index) await hint(HINT_INDEX, fold.index);
  if (fold.keys) await hint(HINT_KEYS, fold.keys);
}

const namedBy = (hint: { bytes: Uint8Array } | null): number =>
  hint ? (JSON.parse(Buffer.from(hint.bytes).toString("utf8")) as { leaf: number }).leaf : -1;
