import { expect, test } from "vitest";
import { fakeWorld } from "../world.ts";

const CAP = `cap_${"0".repeat(26)}`;
const OF = `rec_${"0".repeat(26)}`;

test("a verdict on a published call goes on record; said again it is a copy, also by another process", async () => {
  const world = fakeWorld();
  world.memory.verdictsFound = [{ of: OF, cap: CAP, kind: "reproduced" }];
  await world.observer.followUpCalls();
  await world.restart().followUpCalls();
  expect(world.log.bodies("paid.followup")).toMatchObject([{ of: OF, kind: "reproduced" }]);
  world.memory.verdictsFound = [];
  await world.observer.followUpCalls();
  expect(world.log.bodies("paid.followup")).toHaveLength(1);
});
