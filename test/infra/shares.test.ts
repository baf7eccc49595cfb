import { setMaxListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { FairQueue, type Holder, type Place, Places, type PlacesOptions } from "../../infra/shares.ts";
import { fc } from "../helpers/histories.ts";

const never = new AbortController().signal;
setMaxListeners(0, never);
const turn = () => new Promise<void>((done) => setImmediate(done));

/** Holders that came in, in the order in which they did, those that were refused, and how to end each. */
function entering(options: Partial<PlacesOptions> & { size: number }) {
  const places = new Places({ name: "test", ...options });
  const inside: { holder: Holder; place: Place }[] = [];
  const refused: Holder[] = [];
  const enter = async (holder: Holder, signal: AbortSignal = never): Promise<void> => {
    const place = await places.take(holder, signal);
    if (place) inside.push({ holder, place });
    else refused.push(holder);
  };
  const clients = () => inside.map(({ holder }) => holder.client);
  const leave = async (client: string): Promise<void> => {
    inside.splice(clients().indexOf(client), 1)[0]!.place.leave();
    await turn();
  };
  const all = async (...names: string[]): Promise<void> => {
    for (const client of names) void enter({ client });
    await turn();
  };
  return { places, inside, refused, enter, clients, leave, all };
}

describe("places", () => {
  test("one holder alone has half of them; who comes then has one at once", async () => {
    const { all, clients } = entering({ size: 8 });
    await all(...Array.from({ length: 20 }, () => "a"));
    expect(clients()).toEqual(["a", "a", "a", "a"]);
    await all("b");
    expect(clients()).toEqual(["a", "a", "a", "a", "b"]);
  });

  test("every name counts: other clients of one payer, and one domain of many clients, have one share", async () => {
    const { places } = entering({ size: 8 });
    const taken = (of: (i: number) => Holder) => Array.from({ length: 8 }, (_, i) => places.tryTake(of(i)));
    const paid = taken((i) => ({ payer: "p", client: `c${i}` }));
    expect(paid.filter(Boolean)).toHaveLength(4);
    for (const place of paid) place?.leave();
    expect(taken((i) => ({ client: `c${i}`, domain: "d" })).filter(Boolean)).toHaveLength(4);
  });

  test("who holds least goes first, not who came first", async () => {
    const { all, clients, leave } = entering({ size: 4 });
    await all("a", "a", "a", "b", "c", "a", "a", "d");
    expect(clients()).toEqual(["a", "a", "b", "c"]);
    await leave("b");
    expect(clients()).toEqual(["a", "a", "c", "d"]);
  });

  test("what is kept is for those it is kept for, who have the rest as well", async () => {
    const { places } = entering({ size: 4, kept: 2 });
    const general = ["a", "b", "c"].map((client) => places.tryTake({ client }));
    expect(general.map(Boolean)).toEqual([true, true, false]);
    const reserved = ["d", "e", "f"].map((client) => places.tryTake({ client, reserved: true }));
    expect(reserved.map(Boolean)).toEqual([true, true, false]);
    for (const place of general) place?.leave();
    expect(places.tryTake({ client: "g", reserved: true })).not.toBeNull();
    expect(places.tryTake({ client: "h" })).not.toBeNull();
  });

  test("where too many wait, one of whoever has most is refused", async () => {
    const { all, refused, clients, leave } = entering({ size: 2, waiting: 3 });
    await all("a", "b", "a", "a", "a", "a");
    expect(refused.map(({ client }) => client)).toEqual(["a"]);
    await all("c");
    expect(refused.map(({ client }) => client)).toEqual(["a", "a"]);
    await leave("b");
    expect(clients()).toEqual(["a", "c"]);
  });

  test("work that failed counts against who sent it, and is forgotten by halves", async () => {
    let now = 0;
    const { places, all, clients, leave } = entering({ size: 2, now: () => now });
    places.addDebt({ client: "a" }, 5);
    await all("b", "c", "a", "d");
    await leave("b");
    await leave("c");
    // "a" waits until nobody else holds one, though it came before "d".
    expect(clients()).toEqual(["d"]);
    await leave("d");
    expect(clients()).toEqual(["a"]);
    await leave("a");
    now += 3_600_000;
    await all("b", "a");
    expect(clients()).toEqual(["b", "a"]);
  });

  test("a place moves to another domain where that has a share left", async () => {
    const { places } = entering({ size: 4 });
    const mine = places.tryTake({ client: "a", domain: "x" })!;
    const others = [1, 2].map((i) => places.tryTake({ client: `o${i}`, domain: "y" }));
    expect(others.every(Boolean)).toBe(true);
    expect(mine.move({ client: "a", domain: "y" })).toBe(false);
    others[0]!.leave();
    expect(mine.move({ client: "a", domain: "y" })).toBe(true);
    expect(places.heldCountOf({ domain: "x" })).toBe(0);
    mine.leave();
    mine.leave();
    expect(places.takenCount).toBe(1);
  });

  test("one that is called off in the line is passed over, and places that nobody could have are refused", async () => {
    const { enter, all, clients, refused, leave } = entering({ size: 2 });
    const stop = new AbortController();
    await all("a", "b");
    void enter({ client: "c" }, stop.signal);
    await all("d");
    stop.abort();
    await turn();
    await leave("a");
    expect([clients(), refused]).toEqual([["b", "d"], [{ client: "c" }]]);
    expect(() => new Places({ name: "none", size: 4, kept: 4 })).toThrow(/none is left/);
  });

  test("whatever comes and goes: the bounds hold, and nobody waits who should not", async () => {
    const holder = fc.record({
      client: fc.constantFrom("a", "b", "c", "d"),
      domain: fc.constantFrom("x", "y", undefined),
      reserved: fc.boolean(),
    });
    const [SIZE, KEPT] = [6, 2];
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(holder, fc.nat(9)), { maxLength: 60 }), async (history) => {
        const { places, inside, enter } = entering({ size: SIZE, kept: KEPT, now: () => 0 });
        const waiting: Holder[] = [];
        const has = (one: Holder): number =>
          Math.max(
            inside.filter(({ holder: { client } }) => client === one.client).length,
            one.domain === undefined ? 0 : inside.filter(({ holder: { domain } }) => domain === one.domain).length,
          );
        const free = ({ reserved }: Holder): number => {
          const first = inside.filter((one) => one.holder.reserved).length;
          return SIZE - inside.length - (reserved ? 0 : Math.max(0, KEPT - first));
        };
        for (const [one, what] of history) {
          if (what < 6) {
            waiting.push(one);
            const before = has(one);
            const room = free(one);
            void enter(one).then(() => waiting.splice(waiting.indexOf(one), 1));
            await turn();
            // Whoever has less than what is free has one at once, and nobody else.
            expect(!waiting.includes(one)).toBe(before < room);
          } else if (inside.length > 0) inside.splice(what % inside.length, 1)[0]!.place.leave();
          await turn();
          expect(places.takenCount).toBe(inside.length);
          expect(inside.filter((each) => !each.holder.reserved).length).toBeLessThanOrEqual(SIZE - KEPT);
          for (const each of waiting) expect(has(each)).toBeGreaterThanOrEqual(free(each));
        }
        while (inside.length > 0) {
          inside.shift()!.place.leave();
          await turn();
        }
        expect([places.takenCount, waiting]).toEqual([0, []]);
        for (const client of ["a", "b", "c", "d"]) expect(places.heldCountOf({ client })).toBe(0);
      }),
      { numRuns: 100 },
    );
  });
});

describe("a line of entries", () => {
  const filled = (size: number, ...of: [string, number][]) => {
    const line = new FairQueue<string>({ name: "test", size });
    for (const [client, n] of of) for (let i = 0; i < n; i++) line.admit({ client }, `${client}${i}`);
    return line;
  };

  test("whoever has fewer pushes out the newest of whoever has most, until all have the same", () => {
    const line = filled(6, ["a", 4], ["b", 2]);
    expect(line.admit({ client: "c" }, "c0")).toBe("a3");
    expect(line.admit({ client: "c" }, "c1")).toBe("a2");
    expect(line.admit({ client: "c" }, "c2")).toBeUndefined();
    expect(line.admit({ client: "d" }, "d0")).toMatch(/1$/);
    expect(line.admit({ client: "d" }, "d1")).toBeUndefined();
    expect(line.length).toBe(6);
  });

  test("nobody pushes out an entry of his own, under any of his names", () => {
    const line = new FairQueue<string>({ name: "test", size: 3 });
    for (const n of ["1", "2", "3"]) line.admit({ client: `c${n}`, domain: "d" }, n);
    expect(line.wouldEvict({ client: "c4", domain: "d" })).toBeUndefined();
    expect(line.wouldEvict({ client: "c4", domain: "e" })).toBe("3");
  });

  test("as a plain model has it: the bound holds, and a push always makes shares more equal", () => {
    const step = fc.tuple(fc.constantFrom("a", "b", "c", "d", "e"), fc.boolean());
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (history) => {
        const line = new FairQueue<number>({ name: "test", size: 8 });
        const model = new Map<number, string>();
        const count = (client: string) => [...model.values()].filter((one) => one === client).length;
        for (const [n, [client, comes]] of history.entries()) {
          if (!comes) {
            const first = [...model].find(([, one]) => one === client);
            if (first) {
              line.remove(first[0]);
              model.delete(first[0]);
            }
            continue;
          }
          const most = Math.max(0, ...["a", "b", "c", "d", "e"].map(count));
          const out = line.admit({ client }, n);
          if (model.size < 8) expect(out).toBeNull();
          else if (count(client) + 1 < most) {
            const of = model.get(out!)!;
            expect(count(of)).toBe(most);
            expect(out).toBe([...model].filter(([, one]) => one === of).at(-1)![0]);
            model.delete(out!);
          } else expect(out).toBeUndefined();
          if (out !== undefined) model.set(n, client);
          expect(line.length).toBe(model.size);
        }
      }),
      { numRuns: 300 },
    );
  });
});
