import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Lake, Statements } from "../../../infra/lake/duckdb.ts";
import type { Store } from "../../../infra/store/store.ts";
import type { Ingest } from "../../../pipelines/2-ingest/ingest.ts";
import { type Breach, failing } from "./failing.ts";
import { proveIngest } from "./prove-ingest.ts";
import { at, garbage, intent, result, settlement } from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

/** Every place where a pass over one segment can break off, and the pass that follows. */
let world: World;
let cases = 0;
beforeAll(async () => {
  world = await openTestWorld();
  await world.ingest.pass();
});
afterAll(() => world.close());

/** A paid call and bytes that nobody reads, all of one partition. */
async function arrive(): Promise<string> {
  const name = `seam${cases++}`;
  const sent = intent(name, at("07:00:00"));
  const { topic, partition } = sent;
  await world.append(
    sent,
    result(name, sent.eventId, at("07:00:02")),
    { ...garbage(name, "{"), topic, partition },
    settlement(name, sent.eventId, at("07:00:05")),
  );
  return sent.eventId;
}

async function breakAndMend(broken: Ingest, reached: () => boolean): Promise<void> {
  const id = await arrive();
  await expect(broken.pass()).rejects.toThrow(/broken/);
  expect(reached()).toBe(true);
  const next = await world.rival({ lake: world.lake });
  await next.pass();
  expect(await world.lake.all("SELECT settled, delivered FROM every_sample WHERE obs_id = $id", { id })).toEqual([
    { settled: true, delivered: true },
  ]);
  await proveIngest(world);
}

const WRITES = ["segment", "rejected file", "commit"];
const MOMENTS = ["before", "after"] as const;

/** A lake whose nth statement inside its next load breaks. */
function failingLoad(lake: Lake, n: number): { broken: Lake; reached: () => boolean; statements: () => number } {
  let reached = false;
  let statements = 0;
  const breaking = <S extends Pick<Statements, "run">>(on: S): S => ({
    ...on,
    run: async (text, params) => {
      if (statements++ === n) {
        reached = true;
        throw new Error("broken in the middle");
      }
      await on.run(text, params);
    },
  });
  const transaction: Lake["transaction"] = (work, stage) =>
    lake.transaction((tx) => work(breaking(tx)), stage && ((connection) => stage(breaking(connection))));
  const broken = new Proxy(lake, {
    get(target, name) {
      if (name === "transaction") return transaction;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  return { broken, reached: () => reached, statements: () => statements };
}
/** Statements of a load of paid records; the test below holds it to that. */
const STATEMENTS = 10;

describe("a pass that breaks off is made good by the next one", () => {
  test.each(WRITES.flatMap((what, n) => MOMENTS.map((when) => [when, what, n] as const)))(
    "%s the %s is written",
    async (when, _what, n) => {
      const breach: Breach<Store> = { method: "create", n, when };
      const { broken, reached } = failing(world.store, breach);
      await breakAndMend(await world.rival({ privateStore: broken, lake: world.lake }), reached);
    },
  );

  test.each(MOMENTS)("%s the lake's transaction", async (when) => {
    const breach: Breach<Lake> = { method: "transaction", n: 0, when };
    const { broken, reached } = failing(world.lake, breach);
    await breakAndMend(await world.rival({ lake: broken }), reached);
  });

  test.each([0, 3, 6, STATEMENTS - 1])("statement %i of the load", async (n) => {
    const { broken, reached } = failingLoad(world.lake, n);
    await breakAndMend(await world.rival({ lake: broken }), reached);
  });

  test("the tables above end where a pass ends", async () => {
    await arrive();
    const store = failing(world.store, { method: "create", n: WRITES.length, when: "before" });
    const lake = failingLoad(world.lake, STATEMENTS);
    const whole = await world.rival({ privateStore: store.broken, lake: lake.broken });
    await whole.pass();
    expect([store.reached(), lake.reached(), lake.statements()]).toEqual([false, false, STATEMENTS]);
  });

  test("the same ingester goes on after a throw", async () => {
    const { broken } = failing(world.store, { method: "create", n: 2, when: "after" } satisfies Breach<Store>);
    const ingest = await world.rival({ privateStore: broken, lake: world.lake });
    await arrive();
    await expect(ingest.pass()).rejects.toThrow("broken after it");
    await ingest.pass();
    await proveIngest(world);
  });

  test("an engine that gave up is replaced and loaded again, in the same call", async () => {
    const before = await world.lake.all("SELECT * EXCLUDE (row) FROM every_sample ORDER BY obs_id");
    const id = await arrive();
    let gaveUp = false;
    const broken = new Proxy(world.lake, {
      get(target, name) {
        const value = Reflect.get(target, name, target) as unknown;
        if (name !== "transaction" || gaveUp) return typeof value === "function" ? value.bind(target) : value;
        return async () => {
          gaveUp = true;
          throw new Error("FATAL Error: database has been invalidated because of a previous fatal error");
        };
      },
    });
    await (await world.rival({ lake: broken })).pass();
    expect(world.lake.aside?.reason).toContain("invalidated");
    const after = await world.lake.all<{ obs_id: string }>("SELECT * EXCLUDE (row) FROM every_sample ORDER BY obs_id");
    expect(after.filter((row) => row.obs_id !== id)).toEqual(before);
    await proveIngest(world);
  });
});
