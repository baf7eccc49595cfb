import { expect, test } from "vitest";
import { VIEW } from "../../../pipelines/published/objects.ts";
import { encodeVolatile } from "../../../pipelines/record/volatile-arrow.ts";
import { NO_VOLATILE_ROWS, type VolatileRows } from "../../../serving/tables/view.ts";
import { loadVolatile } from "../../../serving/tables/volatile.ts";
import { fc } from "../../helpers/histories.ts";
import { capOf, rowOf } from "../../helpers/public-record.ts";
import { TurnsSeen } from "../../helpers/turns.ts";

const SPECS = Array.from({ length: 8 }, (_, i) => ({ url: `https://s${i}.example/x` }));
const FILES = 10;

/** Objects as a public store would give them out, and how often each was read. */
class Objects {
  readonly bytes = new Map<string, Uint8Array>();
  readonly reads: string[] = [];
  #writes = 0;

  put(key: string, bytes: Uint8Array): void {
    this.bytes.set(key, bytes);
    this.#writes++;
  }

  readonly get = async (key: string) => {
    if (key !== VIEW) this.reads.push(key);
    const bytes = this.bytes.get(key);
    return bytes ? { key, bytes, size: bytes.length, etag: String(this.#writes), modifiedAt: new Date(0) } : null;
  };

  view(live: readonly string[], n: number): void {
    const view = { v: 1, at: "x", index: null, tree_size: 0, live, positions: { t: { "0": n } } };
    this.put(VIEW, Buffer.from(JSON.stringify(view)));
  }
}

const rowsOf = ({ rows }: VolatileRows): Map<string, number> =>
  new Map([...rows.values()].map((row) => [row.capability_id, row.probes]));

// Draws histories.
test("whatever files a view names, who followed has what a newcomer reads", async () => {
  // Every endpoint is in one of two tables.
  const file = fc.uniqueArray(fc.nat(SPECS.length / 2 - 1), { maxLength: 3 });
  const files = fc.array(file, { minLength: FILES, maxLength: FILES });
  const names = Array.from({ length: FILES }, (_, i) => `live/${i % 2}.${i}.arrow`);
  // In the order of their making mostly, as owners name them; now and then in any.
  const view = fc.oneof(fc.subarray(names), fc.shuffledSubarray(names));
  await fc.assert(
    fc.asyncProperty(files, fc.array(view, { minLength: 1, maxLength: 12 }), async (made, views) => {
      const store = new Objects();
      for (const [i, some] of made.entries())
        store.put(names[i]!, await encodeVolatile(some.map((who) => rowOf(SPECS[2 * who + (i % 2)]!, { probes: i }))));
      let followed = NO_VOLATILE_ROWS;
      for (const [n, live] of views.entries()) {
        store.view(live, n);
        const before = rowsOf(followed);
        const { volatile, newRows } = await loadVolatile(store, followed);
        const newcomer = await loadVolatile(store, NO_VOLATILE_ROWS);
        expect(rowsOf(volatile)).toEqual(rowsOf(newcomer.volatile));
        expect([...volatile.files]).toEqual([...newcomer.volatile.files]);
        // What is new in it came, and the view that was held stays as it was.
        const told = new Map([...newRows].map((row) => [row.capability_id, row.probes]));
        for (const [cap, probes] of rowsOf(volatile))
          if (before.get(cap) !== probes) expect(told.get(cap)).toBe(probes);
        expect(rowsOf(followed)).toEqual(before);
        followed = volatile;
      }
    }),
    { numRuns: 60 },
  );
});

test("what was folded is not read again, also when files before it go", async () => {
  const store = new Objects();
  const [a, b] = [SPECS[0]!, SPECS[1]!];
  store.put("live/0.1.arrow", await encodeVolatile([rowOf(a, { probes: 1 }), rowOf(b, { probes: 1 })]));
  store.put("live/0.2.arrow", await encodeVolatile([rowOf(a, { probes: 2 })]));
  store.put("live/0.3.arrow", await encodeVolatile([rowOf(b, { probes: 3 })]));
  let held = NO_VOLATILE_ROWS;
  for (const [n, live] of [
    ["live/0.1.arrow"],
    ["live/0.1.arrow", "live/0.2.arrow"],
    ["live/0.2.arrow", "live/0.3.arrow"],
  ].entries()) {
    store.view(live, n);
    held = (await loadVolatile(store, held)).volatile;
  }
  expect(store.reads).toEqual(["live/0.1.arrow", "live/0.2.arrow", "live/0.3.arrow"]);
  expect(rowsOf(held)).toEqual(
    new Map([
      [capOf(a), 2],
      [capOf(b), 3],
    ]),
  );
  // A file that still had the newest row of an endpoint goes without another one in its place: all is read anew.
  store.view(["live/0.3.arrow"], 3);
  held = (await loadVolatile(store, held)).volatile;
  expect([...rowsOf(held)]).toEqual([[capOf(b), 3]]);
  expect(store.reads.slice(3)).toEqual(["live/0.3.arrow"]);
});

test("however many rows came, few of them are taken in one turn of the loop", async () => {
  const store = new Objects();
  const rows = Array.from({ length: 1_000 }, (_, i) => rowOf({ url: `https://s${i}.example/x` }, { probes: i }));
  store.put("live/0.1.arrow", await encodeVolatile(rows));
  store.view(["live/0.1.arrow"], 0);
  // Nothing in memory takes a turn to read.
  const seen = new TurnsSeen();
  const { volatile } = await loadVolatile(store, NO_VOLATILE_ROWS);
  expect(seen.end().turns).toBeGreaterThanOrEqual(Math.floor(1_000 / 128));
  expect(volatile.rows.size).toBe(1_000);
});
