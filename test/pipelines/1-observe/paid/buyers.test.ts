import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Payers, PayersQuery } from "../../../../infra/rails/rails.ts";
import { ChainDown } from "../../../../infra/rails/rpc.ts";
import { measureConcentration } from "../../../../pipelines/1-observe/paid/buyers.ts";
import type { PaidPayee } from "../../../../pipelines/record/memory.ts";
import { payOnce } from "../day.ts";
import { ASSET, type FakeWorld, fakeWorld, honest, NETWORK, PAY_TO, SELLER } from "../world.ts";

const OTHER = "0x00000000000000000000000000000000000000e5";
const DAY_S = 86_400;
/** The start of the running day by the chain's time. */
const TODAY_S = 20_833 * DAY_S;

const capOf = (n: number): string => `cap_${String(n).padStart(26, "0")}`;
const payee = (n: number, over: Partial<PaidPayee> = {}): PaidPayee => ({
  ...{ cap: capOf(n), url: `${SELLER}/${n}`, network: NETWORK, asset: ASSET, payTo: PAY_TO, lastReadAt: null },
  ...over,
});
const paidBy = (...amounts: [string, number, bigint][]): Payers => ({
  payers: new Map(amounts.map(([from, transfers, amountAtomic]) => [from, { transfers, amountAtomic }])),
  ...{ fromBlock: 10, toBlock: 20, whole: true },
});

/** A world whose chain notes what it is asked. */
function asking(answer: (query: PayersQuery) => Payers | null, payeesPerLook = 5) {
  const world = fakeWorld({ payeesPerRead: payeesPerLook });
  const asked: PayersQuery[] = [];
  world.rail.time = TODAY_S + 30_000;
  world.rail.payersOf = async (query) => {
    asked.push(query);
    return answer(query);
  };
  return { world, asked, read: () => world.log.bodies("payee.buyers") };
}
const told = (world: FakeWorld) =>
  world.log.envelopes().flatMap(({ type, cap }) => (type === "payee.buyers" ? [cap] : []));

test("our own wallets are counted apart, and the days are over for long enough", async () => {
  const ours = "0x1111111111111111111111111111111111111111";
  const { world, asked, read } = asking(() =>
    paidBy([ours, 12, 240_000n], [OTHER, 1, 3_000_000n], [`${OTHER}6`, 2, 1_000_000n]),
  );
  await payOnce(world, honest(world.rail));
  world.memory.payeesFound = [payee(1), payee(2), payee(3, { payTo: OTHER })];
  expect(await world.observer.readBuyers()).toBe(2);
  // Seven days that ended a whole day before the running one: the evidence that names our wallets is out.
  const window = { since: TODAY_S - 8 * DAY_S, until: TODAY_S - DAY_S };
  expect(asked).toMatchObject([
    { to: PAY_TO, ...window },
    { to: OTHER, ...window },
  ]);
  expect(told(world)).toEqual([1, 2, 3].map(capOf));
  const [first, second, third] = read();
  expect(first).toEqual({
    ...{ network: NETWORK, asset: ASSET, pay_to: PAY_TO, ...window, from_block: 10, to_block: 20, whole: true },
    ...{ payers: 2, transfers: 3, total: "4.000000", largest_share: 0.75, effective_payers: 1.6 },
    ours: { transfers: 12, total: "0.240000" },
  });
  expect(second).toEqual(first);
  // None of our calls was to pay there: what it got from that wallet is anybody's.
  expect(third).toMatchObject({ payers: 3, transfers: 15, ours: { transfers: 0, total: "0.000000" } });
});

test("never read goes first, then read longest ago, and nobody within a week; so many a look", async () => {
  const { world, asked } = asking(() => paidBy(), 2);
  const before = (days: number, ms = 0) => new Date(world.clock.now().getTime() - days * 86_400_000 - ms).toISOString();
  const at = (n: number, read: string | null, over = {}) =>
    payee(n, { payTo: `${OTHER}${n}`, lastReadAt: read, ...over });
  world.memory.payeesFound = [at(1, before(6)), at(2, before(7)), at(3, before(9)), at(4, null)];
  // Two endpoints of one payee: it was read for one of them yesterday.
  world.memory.payeesFound.push(at(5, null), at(6, before(1), { payTo: `${OTHER}5` }));
  expect(await world.observer.readBuyers()).toBe(2);
  expect(asked.map(({ to }) => to)).toEqual([`${OTHER}4`, `${OTHER}3`]);
  expect(await world.restart({ payeesPerRead: 0 }).readBuyers()).toBe(0);
  world.observer.stop();
  expect(await world.observer.readBuyers()).toBe(0);
  expect(asked).toHaveLength(2);
});

test("a chain that is down, or too young, is left alone, and another one is read", async () => {
  const { world, asked, read } = asking(({ network }) => {
    if (network === "eip155:1") throw new ChainDown("nobody answers");
    return network === "eip155:2" ? null : paidBy([OTHER, 1, 5n]);
  });
  const on = (n: number, network: string) => payee(n, { network, payTo: `${OTHER}${n}` });
  world.memory.payeesFound = [on(1, "eip155:1"), on(2, "eip155:1"), on(3, "eip155:2"), on(4, "eip155:2"), payee(5)];
  expect(await world.observer.readBuyers()).toBe(1);
  expect(asked.map(({ network }) => network)).toEqual(["eip155:1", "eip155:2", NETWORK]);
  expect(read()).toMatchObject([{ payers: 1, total: "0.000005", effective_payers: 1, largest_share: 1 }]);
  expect(told(world)).toEqual([capOf(5)]);
});

describe("concentration", () => {
  test.each<[string, bigint[], number | null, number | null]>([
    ["nobody", [], null, null],
    ["one", [7n], 1, 1],
    ["two equals", [5n, 5n], 0.5, 2],
    ["three equals", [1n, 1n, 1n], 0.3333, 3],
    // Shares of 30, 30, 20 and 20 %: 1 / (0.09 + 0.09 + 0.04 + 0.04).
    ["four", [30n, 30n, 20n, 20n], 0.3, 3.84],
    ["one among many small ones", [900n, ...Array<bigint>(100).fill(1n)], 0.9, 1.23],
    ["past what a number holds", [10n ** 30n, 10n ** 30n], 0.5, 2],
  ])("of %s", (_name, amounts, largest_share, effective_payers) => {
    expect(measureConcentration(amounts)).toEqual({ largest_share, effective_payers });
  });

  test("between one and as many as there are, whatever the unit, and fewer once two pay as one", () => {
    const amounts = fc.array(fc.bigInt({ min: 1n, max: 10n ** 18n }), { minLength: 2, maxLength: 40 });
    fc.assert(
      fc.property(amounts, (some) => {
        const { largest_share, effective_payers } = measureConcentration(some);
        expect(effective_payers).toBeGreaterThanOrEqual(1);
        expect(effective_payers).toBeLessThanOrEqual(some.length);
        // Its square is a part of the sum, and no share is larger: 1/s <= n <= 1/s^2, but for the rounding.
        expect(effective_payers).toBeGreaterThanOrEqual(1 / (largest_share! + 1e-4) - 0.01);
        expect(effective_payers).toBeLessThanOrEqual(1 / largest_share! ** 2);
        expect(measureConcentration(some.map((one) => one * 10n ** 12n))).toEqual({ largest_share, effective_payers });
        const [first, second, ...rest] = some;
        expect(measureConcentration([first! + second!, ...rest]).effective_payers).toBeLessThanOrEqual(
          effective_payers!,
        );
      }),
    );
  });
});
