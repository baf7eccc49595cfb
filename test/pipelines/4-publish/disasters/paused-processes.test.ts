import { describe, expect, it } from "vitest";
import { writeRun } from "../../../../pipelines/4-publish/runs.ts";
import { drawn } from "../../../helpers/drawn.ts";
import { tokenOf } from "../../../helpers/prove-record.ts";
import { publishListings } from "../../../helpers/publishing.ts";
import { cardToken, header, JWKS, line, listing } from "../world.ts";
import { type Around, Calls, idOf, isWrite, type StoreCall } from "./calls.ts";
import { Dead } from "./disasters.ts";
import { Machine } from "./machine.ts";
import { SCENES, type Scene } from "./scenes.ts";

const token = (name: string) => tokenOf({ kind: "listing", ...listing(name) });

/** Falls asleep before or after its call number `at`, until it is woken. */
function pausedAt(at: number, after: boolean) {
  let wake = () => {};
  let slept = () => {};
  const gate = new Promise<void>((resolve) => {
    wake = resolve;
  });
  const asleep = new Promise<void>((resolve) => {
    slept = resolve;
  });
  let calls = 0;
  const around: Around = async (_, work) => {
    const mine = calls++ === at;
    const result = mine && !after ? null : await work();
    if (!mine) return result as Awaited<ReturnType<typeof work>>;
    slept();
    await gate;
    return after ? (result as Awaited<ReturnType<typeof work>>) : work();
  };
  return { around, asleep, wake };
}

/** Every call of a scene's work, reads too, as a recorded run makes them. */
async function recorded(scene: Scene): Promise<{ base: Machine; made: StoreCall[] }> {
  const base = await Machine.open();
  await scene.prepare(base);
  const { publisher, calls } = (await base.copy()).publisher("recorded");
  await scene.work(publisher);
  return { base, made: calls.made };
}

const scenes = await Promise.all(
  Object.entries(SCENES).map(async ([name, scene]) => ({ name, scene, ...(await recorded(scene)) })),
);

describe.each(scenes)("two publishers at once, $name", ({ scene, base, made }) => {
  const steps = made.flatMap((call, at) => [
    { at, after: false, where: `before ${idOf(call)}` },
    { at, after: true, where: `after ${idOf(call)}` },
  ]);

  it.each(steps)("one sleeps $where (call $at): nothing is lost, doubled or taken back", async ({ at, after }) => {
    const machine = await base.copy();
    const { around, asleep, wake } = pausedAt(at, after);
    const working = scene.work(machine.publisher("paused", around).publisher);
    await asleep;
    // Meanwhile another one does the same, and more before and after it.
    const { publisher: rival } = machine.publisher("rival");
    await publishListings(rival, [listing("rival-before")]);
    await scene.work(rival);
    await publishListings(rival, [listing("rival-after")]);
    await machine.prove();
    wake();
    await working;
    await scene.work(machine.publisher("fresh").publisher);
    await machine.prove([...scene.putIn, token("rival-before"), token("rival-after")]);
  });
});

describe("any number of publishers that wait", () => {
  const SEEDS = Array.from({ length: 12 }, (_, i) => ({ seed: 1_000 + i }));

  it.each(SEEDS)("seed $seed: each is killed at some write, and the next in line goes on", async ({ seed }) => {
    const draw = drawn(seed);
    const { scene, base, made } = scenes[Math.floor(draw() * scenes.length)]!;
    const writes = made.filter(isWrite).length;
    const machine = await base.copy();
    const line = Array.from({ length: 6 }, (_, i) => {
      let left = i === 5 ? Number.POSITIVE_INFINITY : Math.floor(draw() * writes);
      let dead = false;
      return machine.publisher(`waiting-${i}`, async (call, work) => {
        if (dead) throw new Dead(idOf(call));
        if (isWrite(call) && left-- <= 0) {
          dead = true;
          if (draw() < 0.5) await work();
          throw new Dead(idOf(call));
        }
        return work();
      }).publisher;
    });
    // All of them look around before the first one begins: what they know then is old when their turn comes.
    for (const publisher of line) await publisher.start();
    for (const publisher of line.slice(0, -1)) {
      await scene.work(publisher).catch((error: unknown) => expect(error).toBeInstanceOf(Dead));
      await machine.prove();
    }
    await scene.work(line.at(-1)!);
    await machine.prove(scene.putIn);
  });
});

describe("a grader that was paused", () => {
  const OLD = "2026-11-21T01:00:00.000Z";
  const NEW = "2026-11-21T03:00:00.000Z";
  const writes = [0, 1, 2].flatMap((at) => [
    { at, after: false },
    { at, after: true },
  ]);

  it.each(writes)(
    "in call $at of writing its run (after: $after): no letter of it stands over a newer one",
    async (step) => {
      const machine = await Machine.open();
      const { publisher } = machine.publisher("publisher");
      await publisher.publishKeys(JWKS);
      await publishListings(publisher, [listing("a"), listing("b")]);
      const { around, asleep, wake } = pausedAt(step.at, step.after);
      const store = new Calls(around).wrap(machine.privateStore, "private");
      const written = writeRun(store, header(OLD, 5), [line("a", OLD, ["A"], "old rows"), line("b", OLD, ["B"])]);
      await Promise.race([asleep, written]);
      await writeRun(machine.privateStore, header(NEW, 9), [line("a", NEW, ["F"], "new rows")]);
      const before = await publisher.takeNewRuns();
      wake();
      const n = await written;
      const after = await publisher.takeNewRuns();
      const runs = [...before, ...after];
      expect(runs.map((run) => run.n)).toEqual([0, 1]);
      // What it says of b is published only where its number was its own before the newer run was taken.
      const taken = runs[n]!.taken;
      expect(runs[n === 0 ? 1 : 0]!.taken).toBe(true);
      expect(publisher.fold.caps.get(line("a", NEW, []).cap)?.cards.map(({ band }) => band)).toEqual(["F"]);
      const putIn = [token("a"), token("b"), cardToken("a", NEW)];
      if (taken) putIn.push(cardToken("a", OLD), cardToken("b", OLD));
      else expect(runs[n]!.reason).toMatch(/behind/);
      await machine.prove();
      const { publisher: fresh } = machine.publisher("fresh");
      await fresh.takeNewRuns();
      expect([...fresh.fold.caps.values()].map((cap) => cap.cards.length)).toEqual(
        [...publisher.fold.caps.values()].map((cap) => cap.cards.length),
      );
      expect(taken).toBe(n === 0);
    },
  );
});
