import { expect, test } from "vitest";
import { fc } from "../../helpers/histories.ts";
import { RealNode } from "../../helpers/real-chain.ts";
import { battle, fought, HOLDINGS, PAYEES, served, survives } from "./adversaries.ts";

/** So many of them. */
const RUNS = Number(process.env.BATTLES ?? 20_000);

test(`in ${RUNS} battles no loss is larger than it can be, and honest buyers are served`, {
  timeout: 3_600_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(battle, async (moves) => survives(await fought(moves))),
    { numRuns: RUNS },
  );
  console.log(`honest buyers: ${served.settled} of ${served.asked} calls were served`);
  expect(served.settled / served.asked).toBeGreaterThan(0.95);
});

/** So many on a node's chain: its token verifies signatures and balances, and the protocol's facilitator charges. */
const REAL = Math.ceil(Number(process.env.HISTORIES ?? 100) / 2);

test(`nor in ${REAL} battles on a real chain`, { timeout: 1_800_000 }, async () => {
  const node = await RealNode.open(HOLDINGS, PAYEES);
  try {
    await fc.assert(
      fc.asyncProperty(battle, async (moves) => {
        const chain = await node.fresh(1);
        try {
          await survives(await fought(moves, chain));
        } finally {
          await chain.over();
        }
      }),
      // Another course of the same battle proves nothing of the one that failed.
      { numRuns: REAL, endOnFailure: true },
    );
  } finally {
    await node.close();
  }
});
