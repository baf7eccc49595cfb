import { expect, it } from "vitest";
import { type Chain, openChain } from "../../../infra/chain/commits.ts";
import type { Store } from "../../../infra/store/store.ts";
import { fc } from "../../helpers/histories.ts";
import { AT, bytesOf, compact, FOLDER, historyOf, memoryStore, PLACE, put } from "./make.ts";

/** Holds every call back for as many turns of the loop as the schedule says, so that fast-check picks the interleaving. */
function delayed(store: Store, turns: readonly number[]): Store {
  let call = 0;
  const wait = async () => {
    for (let i = turns[call++ % turns.length] ?? 0; i > 0; i--) await new Promise((resolve) => setImmediate(resolve));
  };
  const late =
    <A extends unknown[], R>(work: (...args: A) => Promise<R>) =>
    async (...args: A): Promise<R> => {
      await wait();
      const result = await work.apply(store, args);
      await wait();
      return result;
    };
  return {
    ...{ get: late(store.get), getRange: late(store.getRange), head: late(store.head), list: late(store.list) },
    ...{ create: late(store.create), swap: late(store.swap), delete: late(store.delete), close: late(store.close) },
  };
}

interface Tally {
  won: number;
  lost: number;
  removed: number;
}

/** Do the jobs as ingest would: on a lost race drop the file and go on from the new head. 0 = compact, n = n records. */
async function work(chain: Chain, jobs: readonly number[]): Promise<Tally> {
  const tally = { won: 0, lost: 0, removed: 0 };
  for (const n of jobs) {
    const { next: first, live } = await chain.head();
    if (n === 0 && live.length === 0) continue;
    let won: boolean;
    let added = [];
    if (n === 0) {
      const before = live.length;
      ({ won, added } = await compact(chain));
      if (won) tally.removed += before;
    } else {
      added = [await put(chain, first, first + n - 1)];
      const lastEventId = `rec_${first + n - 1}`;
      ({ won } = await chain.commit({ first, next: first + n, lastEventId, add: added, remove: [], at: AT }));
    }
    if (won) tally.won++;
    else {
      tally.lost++;
      for (const ref of added) expect(await chain.dropSegment(ref)).toBe(true);
    }
  }
  return tally;
}

it("two writers race for every number: one wins, nothing is lost, doubled or left over", async () => {
  const jobs = fc.array(fc.nat(3), { minLength: 1, maxLength: 6 });
  const turns = fc.array(fc.nat(12), { minLength: 1, maxLength: 20 });
  let races = 0;
  const property = fc.asyncProperty(jobs, jobs, turns, turns, async (jobsA, jobsB, turnsA, turnsB) => {
    const store = await memoryStore();
    const [a, b] = [openChain(delayed(store, turnsA), PLACE), openChain(delayed(store, turnsB), PLACE)];
    const tallies = await Promise.all([work(a, jobsA), work(b, jobsB)]);
    races += tallies[0].lost + tallies[1].lost;

    const head = await openChain(store, PLACE).head();
    expect(await a.head()).toEqual(head);
    expect(await b.head()).toEqual(head);
    expect(head.n + 1).toBe(tallies[0].won + tallies[1].won);
    const history = await historyOf(a);
    expect(history.map((c) => c.n)).toEqual(history.map((_, i) => i));

    // The live files hold 0 .. next - 1, each position once, with the right bytes.
    let position = 0;
    for (const ref of head.live) {
      expect(ref.first).toBe(position);
      expect(Buffer.from(await a.readSegment(ref)).equals(bytesOf(ref.first, ref.last))).toBe(true);
      position = ref.last + 1;
    }
    expect(position).toBe(head.next);

    // Every file in the store was committed once; losers left nothing.
    const committed = history.flatMap((c) => c.add.map((ref) => ref.file)).sort();
    expect(new Set(committed).size).toBe(committed.length);
    expect((await store.list(`${FOLDER}/data/`)).map((o) => o.key)).toEqual(committed);
  });
  await fc.assert(property, { numRuns: 60 });
  expect(races).toBeGreaterThan(20);
});
