import { afterEach, describe, expect, test } from "vitest";
import { resolveTo } from "../../../infra/egress/address.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { ownLoop } from "../../../infra/loop-watch.ts";
import { ASKS_AT_ONCE, POOLS } from "../../../pipelines/1-observe/queue.ts";
import { capId } from "../../../pipelines/record/ids.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { stranger } from "../../infra/egress/stranger.ts";
import { END, firstPaidOnly, START, salt } from "./day.ts";
import { realSeller } from "./real-seller.ts";
import { CAPS, DAY, fakeWorld, honest } from "./world.ts";

const open: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const thing of open.splice(0).reverse()) await thing.close();
});
const keep = <T extends { close(): Promise<unknown> }>(thing: T): T => {
  open.push(thing);
  return thing;
};

const askOf = (url: string) => ({
  url,
  normalised_url: url,
  method: null,
  host: new URL(url).host,
  cap: capId("GET", url),
});

/** An observer with the real way out and the places it has in production; names lead to this machine. */
function observing(hostsAtOnce: number) {
  const fake = fakeWorld();
  const hour = { headersMs: 3_600_000, totalMs: 3_600_000 };
  const inner = keep(
    createEgress({
      ...{ allowLoopback: true, userAgent: "touchstone-test", pools: POOLS, resolve: resolveTo("127.0.0.1") },
      limits: { handshake: hour },
    }),
  );
  // No deadline ends a tarpit while the test looks: however slow the machine is, they all hold what they hold.
  const isTarpit = (url: string) => /^t\d+\.test$/.test(new URL(url).hostname);
  const egress: Egress = {
    validate: inner.validate.bind(inner),
    close: inner.close.bind(inner),
    fetch: ({ deadlineMs, ...request }) => inner.fetch(isTarpit(request.url) ? request : { ...request, deadlineMs }),
  };
  const observer = fake.restart({ controlUrls: [], hostsAtOnce }, { egress, loop: ownLoop });
  return { ...fake, egress, observer };
}

describe("tarpits that somebody asked for", () => {
  // Few hosts at once: the observer's own line would hold the paid call. Many: the places of egress would.
  test.each([4, 128])("with %i hosts at once, hold up no paid call", async (hostsAtOnce) => {
    const world = observing(hostsAtOnce);
    const seller = keep(await realSeller(honest(world.rail)));
    const origin = `http://seller.test:${seller.port}`;
    await world.observer.intakeSeller(origin);
    const plan = planDay({ day: DAY, salt, listed: await world.memory.listed(), caps: CAPS, now: START });
    const tarpit = keep(await stranger(() => {}));
    let ended = 0;
    const asks = Array.from({ length: 100 }, (_, i) =>
      world.observer.probeAsk(askOf(`http://t${i}.test:${tarpit.port}/x`)).finally(() => ended++),
    );
    await expect.poll(() => tarpit.connections()).toBeGreaterThanOrEqual(Math.min(hostsAtOnce, ASKS_AT_ONCE));
    const report = await world.observer.observeSpan(firstPaidOnly(plan), START, END);
    expect(report).toMatchObject({ paid: 1, unpaid: 0 });
    // A paid call that waited for one of them would have seen it end.
    expect(ended).toBe(0);
    expect(tarpit.connections()).toBeLessThanOrEqual(ASKS_AT_ONCE);
    expect(world.log.bodies("paid.result")).toMatchObject([{ delivered: true, fault: null }]);
    await world.egress.close();
    await Promise.allSettled(asks);
  });

  test("another path of the seller's own host is asked for: its paid call does not wait in their line", async () => {
    const world = observing(4);
    const seller = keep(await realSeller(honest(world.rail)));
    const origin = `http://seller.test:${seller.port}`;
    await world.observer.intakeSeller(origin);
    const plan = planDay({ day: DAY, salt, listed: await world.memory.listed(), caps: CAPS, now: START });
    const tarpit = keep(await stranger(() => {}));
    const urls = Array.from({ length: 50 }, (_, i) => `http://t${i}.test:${tarpit.port}/x`);
    const asks = [...urls, `${origin}/other`].map((url) => world.observer.probeAsk(askOf(url)));
    await expect.poll(() => tarpit.connections()).toBe(ASKS_AT_ONCE);
    expect(await world.observer.observeSpan(firstPaidOnly(plan), START, END)).toMatchObject({ paid: 1 });
    expect(tarpit.connections()).toBe(ASKS_AT_ONCE);
    await world.egress.close();
    await Promise.allSettled(asks);
  });
});
