import { afterEach, beforeEach, expect, test } from "vitest";
import { handshake, listing } from "./2-ingest/records.ts";
import { openWorld, type World } from "./corrections/world.ts";

const MINUTE = 60_000;
let world: World;
beforeEach(async () => {
  world = await openWorld();
  // Well inside of a block, so that what follows within minutes is the same sample.
  world.pass(10 * MINUTE);
});
afterEach(() => world.close());

const ago = (ms: number): string => new Date(world.clock.now().getTime() - ms).toISOString();
const listings = async (): Promise<number> =>
  (await Promise.all(["a", "b", "c"].map((name) => world.leavesOf(name))))
    .flat()
    .filter((leaf) => leaf.kind === "listing").length;

test("a grade reads endpoints with news or due by time, signs what changed, and says again no listing", async () => {
  for (const name of ["a", "b", "c"])
    await world.append(listing(name, ago(3 * MINUTE)), handshake(name, ago(2 * MINUTE)));
  expect(await world.grade()).toMatchObject({ caps: 3, rows: 3, cards: 3, leftOut: 0 });
  expect(await listings()).toBe(3);

  world.pass(MINUTE);
  expect(await world.grade()).toMatchObject({ caps: 0, rows: 0, cards: 0 });

  await world.append(handshake("b", ago(1_000)));
  world.pass(MINUTE);
  // The same block again: the card says nothing new, so its line is graded and stays out of the run.
  expect(await world.grade()).toMatchObject({ caps: 1, rows: 2, cards: 0, leftOut: 1 });

  await world.append(
    listing("c", ago(1_000), { seller_controlled: true, defects: [{ defect: "bad_entry", says: "an entry" }] }),
  );
  world.pass(MINUTE);
  await world.grade();
  expect(await listings()).toBe(4);

  // Nothing was seen for three days: every card changes by time alone.
  world.pass(3 * 86_400_000);
  expect(await world.grade()).toMatchObject({ caps: 3, cards: 3, leftOut: 0 });
  await world.prove();
});

test("a change that must wait for the next day is looked at then, although nothing came in", async () => {
  const cards: number[] = [];
  // From midnight on, every six hours one more sample: a first card, the day's one change, and one that waits.
  world.pass(12 * 60 * MINUTE);
  for (const hour of [0, 6, 12]) {
    if (hour === 0) await world.append(listing("a", ago(3 * MINUTE)));
    await world.append(handshake("a", ago(2 * MINUTE)));
    cards.push((await world.grade()).cards);
    world.pass(6 * 60 * MINUTE);
  }
  expect(cards).toEqual([1, 1, 0]);
  expect(await world.grade()).toMatchObject({ caps: 0, cards: 0 });
  world.pass(6 * 60 * MINUTE);
  expect(await world.grade()).toMatchObject({ caps: 1, cards: 1, leftOut: 0 });
});
