import { setMaxListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { Gate } from "../../../infra/egress/gate.ts";
import { fc } from "../../helpers/histories.ts";

const never = new AbortController().signal;
setMaxListeners(0, never);
const turn = () => new Promise<void>((done) => setImmediate(done));

/** Fetches that came in, in the order in which they did, and how to end each. */
function entering(gate: Gate) {
  const inside: { pool: string; leave: () => void }[] = [];
  const refused: string[] = [];
  const enter = async (pool: string, signal: AbortSignal = never): Promise<void> => {
    const leave = await gate.enter(signal, pool);
    if (!leave) refused.push(pool);
    else inside.push({ pool, leave });
  };
  const pools = () => inside.map(({ pool }) => pool);
  const leave = (pool: string): void => inside.splice(pools().indexOf(pool), 1)[0]!.leave();
  return { inside, refused, enter, pools, leave };
}

describe("places and pools", () => {
  it("a pool has no more than its most, and others go past those of it that wait", async () => {
    const { enter, pools, leave } = entering(new Gate(4, 10, { asks: { most: 2 } }));
    for (const pool of ["asks", "asks", "asks", "asks", "x", "x", "x"]) void enter(pool);
    await turn();
    expect(pools()).toEqual(["asks", "asks", "x", "x"]);
    leave("asks");
    await turn();
    expect(pools()).toEqual(["asks", "x", "x", "asks"]);
    leave("x");
    await turn();
    expect(pools()).toEqual(["asks", "x", "asks", "x"]);
  });

  it("places that are kept stay empty until their pool comes, and it may have more when there are", async () => {
    const { enter, pools, leave } = entering(new Gate(4, 10, { paid: { kept: 2 } }));
    for (const pool of ["x", "x", "x", "x"]) void enter(pool);
    await turn();
    expect(pools()).toEqual(["x", "x"]);
    for (const pool of ["paid", "paid", "paid"]) void enter(pool);
    await turn();
    expect(pools()).toEqual(["x", "x", "paid", "paid"]);
    leave("x");
    await turn();
    // The free place is anybody's, first come first served.
    expect(pools()).toEqual(["x", "paid", "paid", "x"]);
    leave("paid");
    await turn();
    expect(pools()).toEqual(["x", "paid", "x", "paid"]);
  });

  it("each pool has a line of its own: a full one refuses nobody else", async () => {
    const { enter, refused, pools } = entering(new Gate(2, 2, { asks: { most: 1 } }));
    for (const pool of ["asks", "asks", "asks", "asks", "x", "x", "x", "x"]) void enter(pool);
    await turn();
    expect([pools(), refused]).toEqual([
      ["asks", "x"],
      ["asks", "x"],
    ]);
  });

  it("one that is called off in the line is passed over", async () => {
    const { enter, pools, refused, leave } = entering(new Gate(1, 5));
    const stop = new AbortController();
    void enter("a");
    void enter("b", stop.signal);
    void enter("c");
    await turn();
    stop.abort();
    await turn();
    leave("a");
    await turn();
    expect([pools(), refused]).toEqual([["c"], ["b"]]);
  });

  it("pools that could not work are refused", () => {
    expect(() => new Gate(4, 10, { paid: { kept: 4 } })).toThrow(/none is left/);
    expect(() => new Gate(4, 10, { asks: { most: 0 } })).toThrow(/asks/);
  });

  it("whatever comes and goes: the bounds hold, and nobody who has room waits", async () => {
    const shares = { asks: { most: 2 }, paid: { kept: 2 } };
    const steps = fc.array(fc.tuple(fc.constantFrom("asks", "paid", "x"), fc.boolean()), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(steps, async (history) => {
        const { enter, pools, leave } = entering(new Gate(5, 1_000, shares));
        const wanted = { asks: 0, paid: 0, x: 0 };
        for (const [pool, comes] of history) {
          const name = pool as keyof typeof wanted;
          if (comes) {
            wanted[name]++;
            void enter(pool);
          } else if (pools().includes(pool)) {
            wanted[name]--;
            leave(pool);
          }
          await turn();
          const held = (one: string): number => pools().filter((other) => other === one).length;
          const waiting = (one: keyof typeof wanted): number => wanted[one] - held(one);
          const general = held("asks") + held("x") + Math.max(0, held("paid") - 2);
          expect(held("asks")).toBeLessThanOrEqual(2);
          expect(general).toBeLessThanOrEqual(3);
          if (waiting("paid") > 0) expect(held("paid")).toBeGreaterThanOrEqual(2);
          if (waiting("x") + waiting("paid") > 0) expect(general).toBe(3);
          if (waiting("asks") > 0) expect(held("asks") === 2 || general === 3).toBe(true);
        }
      }),
      { numRuns: 60 },
    );
  });
});
