import type { Chain } from "../../infra/chain/commits.ts";
import { chainFolder } from "../../infra/chain/keys.ts";
import type { Store } from "../../infra/store/store.ts";

/** What is not live stays this long: a reader of an older head may be at it, and a rival may be about to commit it. */
const KEPT_MS = 7 * 86_400_000;
const PAGE = 1_000;

/**
 * Delete data files of a chain that nothing needs: those that a commit removed a week ago, and those that no commit ever
 * added and that are a week old (the writer died, or lost the race and died before it dropped them). The history is only
 * read when there is a file that is not live.
 * @returns how many files were deleted
 */
export async function sweepChain(store: Store, chain: Chain, now: Date): Promise<number> {
  const { live } = await chain.head();
  const needed = new Set(live.flatMap((ref) => [ref.file, ...(ref.rejects ? [ref.rejects.file] : [])]));
  const loose = new Map<string, number>();
  const prefix = `${chainFolder(chain)}/data/`;
  for (let startAfter: string | undefined; ; ) {
    const page = await store.list(prefix, { limit: PAGE, ...(startAfter ? { startAfter } : {}) });
    for (const { key, modifiedAt } of page) if (!needed.has(key)) loose.set(key, modifiedAt.getTime());
    if (page.length < PAGE) break;
    startAfter = page.at(-1)!.key;
  }
  if (loose.size === 0) return 0;
  const moments = await removals(chain);
  let deleted = 0;
  for (const [key, written] of loose) {
    const since = moments.has(key) ? moments.get(key)! : written;
    // A file whose commit came after we read the head is live by now: its moment is unknown, so it stays.
    if (since === null || now.getTime() - since < KEPT_MS) continue;
    await store.delete(key);
    deleted++;
  }
  return deleted;
}

/** Every file that a commit added: when one removed it, or null while it is live. */
async function removals(chain: Chain): Promise<Map<string, number | null>> {
  const moments = new Map<string, number | null>();
  const sides = new Map<string, string>();
  for await (const { add, remove, at } of chain.history()) {
    for (const file of remove) {
      moments.set(file, Date.parse(at));
      const side = sides.get(file);
      if (side) moments.set(side, Date.parse(at));
    }
    for (const { file, rejects } of add) {
      moments.set(file, null);
      if (!rejects) continue;
      moments.set(rejects.file, null);
      sides.set(file, rejects.file);
    }
  }
  return moments;
}
