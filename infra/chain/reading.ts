import type { Store } from "../store/store.ts";
import { type Commit, parseCommit, SNAPSHOT_EVERY } from "./commit.ts";
import { BadProposal, DamagedChain } from "./errors.ts";
import { commitKey, commitNumber } from "./keys.ts";
import { type ChainHead, EMPTY_HEAD, follow, headOfSnapshot } from "./succession.ts";

/**
 * The newest head, going on from one that is known (EMPTY_HEAD for none). Opens at most SNAPSHOT_EVERY commits however
 * long the chain is, and the next one alone when nothing happened.
 * @throws DamagedChain naming the commit that is missing or unsound.
 */
export async function readHead(store: Store, folder: string, known: ChainHead): Promise<ChainHead> {
  let head = known;
  if (known.n >= 0) {
    for (let i = 0; i < SNAPSHOT_EVERY; i++) {
      const commit = await readCommit(store, folder, head.n + 1);
      if (!commit) return head;
      head = checked(folder, commit.n, () => follow(head, commit, folder));
    }
  }
  const last = await findLast(store, folder, head.n);
  return last === head.n ? head : loadHead(store, folder, last);
}

/** One commit, or null when it is not there. @throws DamagedChain when it cannot be read as one. */
async function readCommit(store: Store, folder: string, n: number): Promise<Commit | null> {
  const key = commitKey(folder, n);
  const found = await store.get(key);
  return found && parseCommit(found.bytes, key, n);
}

/** Every commit in order, each proven to follow from the one before. @throws DamagedChain */
export async function* readHistory(store: Store, folder: string): AsyncGenerator<Commit> {
  const last = await findLast(store, folder, EMPTY_HEAD.n);
  let head = EMPTY_HEAD;
  for (let n = 0; n <= last; n += SNAPSHOT_EVERY) {
    for (const commit of await readRange(store, folder, n, Math.min(n + SNAPSHOT_EVERY - 1, last))) {
      head = checked(folder, commit.n, () => follow(head, commit, folder));
      yield commit;
    }
  }
}

async function loadHead(store: Store, folder: string, last: number): Promise<ChainHead> {
  const base = last - (last % SNAPSHOT_EVERY);
  const [snapshot, ...later] = await readRange(store, folder, base, last);
  let head = checked(folder, base, () => headOfSnapshot(snapshot!, folder));
  if (base === 0) head = checked(folder, 0, () => follow(EMPTY_HEAD, snapshot!, folder));
  for (const commit of later) head = checked(folder, commit.n, () => follow(head, commit, folder));
  return head;
}

/** At most SNAPSHOT_EVERY at once. */
function readRange(store: Store, folder: string, first: number, last: number): Promise<Commit[]> {
  return Promise.all(
    Array.from({ length: last - first + 1 }, async (_, i) => {
      const commit = await readCommit(store, folder, first + i);
      if (!commit) throw new DamagedChain(commitKey(folder, first + i), "is missing, later commits exist");
      return commit;
    }),
  );
}

/**
 * Number of the last commit, -1 when there is none: doubling steps from `known`, then halving. A missing commit would
 * look like the end, and the next writer would fill the hole with another history, so one listing asks what lies beyond.
 */
async function findLast(store: Store, folder: string, known: number): Promise<number> {
  const has = async (n: number) => (await store.head(commitKey(folder, n))) !== null;
  let low = known;
  for (;;) {
    let step = 1;
    while (await has(low + step)) {
      low += step;
      step *= 2;
    }
    let high = low + step;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (await has(middle)) low = middle;
      else high = middle;
    }
    const startAfter = low < 0 ? `${folder}/commit/` : commitKey(folder, low);
    const [beyond] = await store.list(`${folder}/commit/`, { startAfter, limit: 1 });
    if (!beyond) return low;
    if (commitNumber(beyond.key) === null) throw new DamagedChain(beyond.key, "is no commit");
    // Written between the probe and the listing: search on. Else it is a hole.
    if (!(await has(low + 1))) throw new DamagedChain(commitKey(folder, low + 1), "is missing, later commits exist");
  }
}

/** A rule broken by what is stored is damage, and the commit that shows it is named. */
function checked<T>(folder: string, n: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof BadProposal)
      throw new DamagedChain(commitKey(folder, n), `is unsound: ${error.message}`, error);
    throw error;
  }
}
