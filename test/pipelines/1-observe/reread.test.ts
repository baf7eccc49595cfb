import { expect, test } from "vitest";
import { END, listAndPlan, START } from "./day.ts";
import { answer, entry, fakeWorld, type Handler, item, terms402, wellKnown } from "./world.ts";

/** Dearer at every second asking; its own listing names the price of the moment, unless it `forgets` to. */
function creeper(
  rail: ReturnType<typeof fakeWorld>["rail"],
  forgets: boolean,
): { seller: Handler; reads: () => number } {
  let amount = 10_000;
  let asks = 0;
  let reads = 0;
  const seller: Handler = (asked) => {
    const { pathname, searchParams } = new URL(asked.url);
    if (pathname === "/.well-known/x402") {
      reads++;
      const listed = String(forgets ? 10_000 : amount);
      return answer(200, wellKnown(item({ accepts: [entry({ amount: listed })] })));
    }
    if (asked.payment === undefined) {
      if (asks++ % 2 === 0) amount += 100;
      return terms402([entry({ amount: String(amount) })]);
    }
    rail.settle(asked.payment);
    return answer(200, { sum: Number(searchParams.get("a")) + Number(searchParams.get("b")) });
  };
  return { seller, reads: () => reads };
}

async function aDay(forgets: boolean) {
  const world = fakeWorld();
  const { seller, reads } = creeper(world.rail, forgets);
  const plan = await listAndPlan(world, seller);
  await world.observer.observeSpan(plan, START, END);
  const honest = [...world.log.bodies("handshake"), ...world.log.bodies("paid.result")].map((one) => one.honest);
  return { honest, reads: reads() };
}

test("a price that rises with its own listing is honest at every asking: the listing is read again, by the record's time", async () => {
  const { honest } = await aDay(false);
  expect(honest).toEqual(Array(8).fill(true));
});

test("a 402 above a listing that stays behind is not honest, and one minute holds one reading at most", async () => {
  const { honest, reads } = await aDay(true);
  expect(honest).toEqual(Array(8).fill(false));
  // The first reading, then one a block: probe and paid call of a block share their minute.
  expect(reads).toBeLessThanOrEqual(1 + 4);
});
