import type { Clock } from "../../infra/clock.ts";
import type { Store } from "../../infra/store/store.ts";

/** Promise of publication.md: a partial tile is there for 48 hours at least. */
const KEPT_MS = 48 * 3_600_000;

/**
 * Delete partial tiles and partial entry bundles that are older than 48 hours and whose full one is there: readers of
 * an old checkpoint cut theirs from it (C2SP tlog-tiles, Partial Tiles). One that is not full yet is always kept.
 * @returns how many were deleted.
 */
export async function sweepPartials(store: Store, clock: Clock): Promise<number> {
  const before = clock.now().getTime() - KEPT_MS;
  const full = new Map<string, boolean>();
  let swept = 0;
  for (let startAfter: string | undefined; ; ) {
    const page = await store.list("tile/", startAfter ? { startAfter } : {});
    for (const { key, modifiedAt } of page) {
      const whole = /^(.*)\.p\/\d+$/.exec(key)?.[1];
      if (whole === undefined || modifiedAt.getTime() > before) continue;
      if (!full.has(whole)) full.set(whole, (await store.head(whole)) !== null);
      if (!full.get(whole)) continue;
      await store.delete(key);
      swept++;
    }
    startAfter = page.at(-1)?.key;
    if (!startAfter) return swept;
  }
}
