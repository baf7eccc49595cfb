import { afterAll, beforeAll, expect, test } from "vitest";
import { fc } from "../../helpers/histories.ts";
import { FLOAT, SELLERS } from "../../helpers/order-world.ts";
import { RealNode } from "../../helpers/real-chain.ts";
import { agreesWithItself, type History, HOLDINGS, history, holds, lived } from "./histories.ts";

/**
 * The histories of the fake chain on a node's: its token verifies signatures and nonces, the protocol's facilitator
 * charges, and blocks that vanish are the node's own. What is done at once ends in an order of its own each time, so a
 * seed draws a history, not its course.
 */
const RUNS = Number(process.env.HISTORIES ?? 100);

/** With blocks that vanish after every third of its happenings, in turns with what stood in them and without. */
const shaken = (drawn: History): History => ({
  ...drawn,
  happenings: drawn.happenings.flatMap((one, n) =>
    n % 3 === 2 ? [one, { do: "reorg" as const, depth: 1 + (n % 11), again: n % 2 === 0 }] : [one],
  ),
});

let node: RealNode;

beforeAll(async () => {
  const payees = SELLERS.map((seller) => `0x${seller.replaceAll(" ", "")}`);
  node = await RealNode.open(HOLDINGS, [...payees, "0xself"]);
});
afterAll(() => node?.close());

/** What is kept in the middle of a transaction is drawn by the machine's own pace, so it takes some rounds. */
test("a chain whose states were kept amid payments agrees with itself", async () => {
  let wentBack = 0;
  for (let round = 0; round < 30; round++) {
    const chain = await node.fresh(12);
    const inTurn = async (times: number, act: () => Promise<unknown>) => {
      for (let n = 0; n < times; n++) await act();
    };
    const pays = () => inTurn(5, () => chain.transfer(FLOAT, "0xself", 10_000n));
    const keeps = () => inTurn(4, () => chain.turn());
    await Promise.all([pays(), pays(), pays(), keeps(), keeps(), keeps()]);
    await chain.reorg(1 + (round % 10), round % 2 === 0);
    if (chain.vanished > 0) wentBack++;
    await agreesWithItself(chain);
    await chain.over();
  }
  // On an idle machine most rounds go back; beside eleven other processes 3 of 30 did.
  expect(wentBack).toBeGreaterThan(0);
});

test(`no history of ${RUNS} on a real chain breaks an invariant`, { timeout: 1_800_000 }, async () => {
  const seen = { histories: 0, orders: 0, vanished: 0 };
  const began = performance.now();
  await fc.assert(
    fc.asyncProperty(history, async (drawn) => {
      const chain = await node.fresh(drawn.confirmations);
      try {
        const world = await lived(shaken(drawn), chain);
        await holds(world);
        seen.histories++;
        seen.orders += [...world.table().all()].length;
        seen.vanished += chain.vanished;
      } finally {
        await chain.over();
      }
    }),
    // Another course of the same history proves nothing of the one that failed.
    { numRuns: RUNS, endOnFailure: true },
  );
  const seconds = Math.round((performance.now() - began) / 1000);
  process.stdout.write(
    `${seen.histories} histories on a real chain, ${seen.orders} orders, ${seen.vanished} blocks vanished, ${seconds} s\n`,
  );
  expect(seen.orders).toBeGreaterThan(RUNS / 2);
});
