import { expect, test } from "vitest";
import { systemClock } from "../../infra/clock.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { PublishedTree, readCheckpoint } from "../../pipelines/published/reader.ts";
import { Follower } from "../../serving/tables/follower.ts";
import { publishListings } from "../helpers/publishing.ts";
import { JWKS, listing, ORIGIN, TRUST, World } from "../pipelines/4-publish/world.ts";

/** A replica elsewhere has nothing but the public record, and has to say of it what its maker knew. */
async function toldOf(first: boolean, later: boolean): Promise<{ extensions: readonly string[]; simulated: boolean }> {
  const world = await World.open();
  try {
    await world.publisher({ simulatedTime: first }).publishKeys(JWKS);
    await publishListings(world.publisher({ simulatedTime: later }), [listing("a")]);
    const follower = new Follower({
      tree: new PublishedTree(world.publicStore, TRUST),
      ...{ store: world.publicStore, origin: ORIGIN, clock: systemClock },
      ...{ logger: createLogger("silent"), metrics: world.metrics },
    });
    await follower.refresh();
    const { extensions, size } = (await readCheckpoint(world.publicStore, TRUST))!;
    expect(size).toBe(2);
    return { extensions: extensions!, simulated: follower.simulated };
  } finally {
    await world.close();
  }
}

test("a record made in simulated time says so in its checkpoint, and goes on saying so once time is real", async () => {
  expect(await toldOf(true, true)).toEqual({ extensions: ["simulated-time"], simulated: true });
  expect(await toldOf(true, false)).toEqual({ extensions: ["simulated-time"], simulated: true });
});

test("a record made in real time has the three lines of a checkpoint and no more", async () => {
  expect(await toldOf(false, false)).toEqual({ extensions: [], simulated: false });
});
