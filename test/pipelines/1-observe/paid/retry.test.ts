import { describe, expect, test } from "vitest";
import type { RetryOutcome } from "../../../../pipelines/record/vocabulary.ts";
import { END, listAndPlan, payOnce, START } from "../day.ts";
import {
  answer,
  CONTROL,
  entry,
  type FakeWorld,
  fakeWorld,
  type Handler,
  honest,
  paying,
  sumOf,
  terms402,
  transport,
} from "../world.ts";

/** A world whose record knows of no retry yet. */
function due(): FakeWorld {
  const world = fakeWorld();
  world.memory.retriesDue = true;
  return world;
}

/** Serves a payment once as an honest seller does, and says `again` to the same one. */
function onceThen(world: FakeWorld, again: Handler): Handler {
  const seen = new Set<string>();
  return paying(world.rail, (asked, n) => {
    if (seen.has(asked.payment!)) return again(asked, n);
    seen.add(asked.payment!);
    world.rail.settle(asked.payment!);
    return answer(200, { sum: sumOf(asked.url) });
  });
}

const retried = (world: FakeWorld) => world.log.bodies("paid.followup").filter(({ kind }) => kind === "retried");

describe("the proof of a call that was answered, shown once more", () => {
  test.each<[string, Handler, RetryOutcome, object]>([
    [
      "the same bytes",
      (asked) => answer(200, { sum: sumOf(asked.url) }),
      "answered",
      { status: 200, same_bytes: true },
    ],
    ["other bytes", (a) => answer(200, { sum: sumOf(a.url), t: 1 }), "answered", { status: 200, same_bytes: false }],
    ["a 402", () => terms402(), "asked_again", { status: 402, same_bytes: null }],
    ["used already", () => answer(409, { error: "used" }), "refused", { status: 409, same_bytes: null }],
    ["a wall", () => answer(429, "slow down"), "refused", { status: 429, same_bytes: null }],
    ["an error page", () => answer(500, { error: "boom" }), "failed", { status: 500, same_bytes: null }],
    ["nothing at all", () => answer(200, ""), "failed", { status: 200, same_bytes: null }],
  ])("%s", async (_name, again, outcome, beside) => {
    const world = due();
    await payOnce(world, onceThen(world, again));
    expect(retried(world)).toMatchObject([{ kind: "retried", retried: { outcome, ...beside } }]);
    const [first, second, ...more] = world.egress.paid();
    expect(more).toEqual([]);
    // The same bytes to the same place: nothing new was signed, so there is nothing that could be charged.
    expect([second!.payment, second!.url]).toEqual([first!.payment, first!.url]);
    expect(world.rail.signed).toHaveLength(1);
    expect(world.rail.settled.size).toBe(1);
  });

  test("leaves the call as it was: the same records but the one more, and no sample of it", async () => {
    const of = async (isDue: boolean) => {
      const world = fakeWorld();
      world.memory.retriesDue = isDue;
      const report = await payOnce(
        world,
        onceThen(world, () => answer(500, "broken")),
      );
      const rows = world.log.envelopes().map(({ type }) => type);
      // Its clock reads how long the machine took.
      const one = { ...(await world.memory.listed())[0]!, lastTried: null };
      // Real time goes on between the two.
      const result = world.log.bodies("paid.result").map((body) => ({ ...body, answered_time: 0 }));
      return { report, rows, one, result };
    };
    const [without, with_] = [await of(false), await of(true)];
    expect(with_.rows).toEqual([...without.rows, "paid.followup"]);
    const { report, one, result } = without;
    expect({ ...with_, rows: null }).toEqual({ report, one, result, rows: null });
  });

  test("once a week for each endpoint, whichever process looks", async () => {
    const world = due();
    const plan = await listAndPlan(world, honest(world.rail));
    await world.observer.observeSpan(plan, START, END);
    expect(world.log.bodies("paid.intent").length).toBeGreaterThan(1);
    expect(retried(world)).toHaveLength(1);
    const [cap] = (await world.memory.listed()).map((one) => one.cap);
    const at = world.log.envelopes().find(({ type }) => type === "paid.followup")!.observed_at;
    expect(await world.memory.wasRetriedSince(cap!, at)).toBe(true);
    // Another process knows it of the record.
    await world.restart().observeSpan({ ...plan, day: plan.day }, START, END);
    expect(retried(world)).toHaveLength(1);
  });

  test("not of a blind wallet: what shows a proof twice would be told from a customer", async () => {
    const world = due();
    const plan = await listAndPlan(world, honest(world.rail));
    const blind = plan.lines.map((line) => ({
      ...line,
      calls: line.calls.flatMap((call) => (call.kind === "paid" ? [{ ...call, blind: true }] : [])),
    }));
    await world.observer.observeSpan({ ...plan, lines: blind }, START, END);
    expect(world.egress.paid().length).toBeGreaterThan(0);
    expect(retried(world)).toEqual([]);
    expect(world.egress.paid()).toHaveLength(world.rail.signed.length);
  });

  test.each<[string, (world: FakeWorld) => Handler]>([
    ["no money moved", (world) => paying(world.rail, (asked) => answer(200, { sum: sumOf(asked.url) }))],
    [
      "the first answer was worth nothing",
      (world) =>
        paying(world.rail, (asked) => {
          world.rail.settle(asked.payment!);
          return answer(500, { error: "x" });
        }),
    ],
    [
      "the authorization is over",
      (world) =>
        paying(world.rail, (asked) => {
          world.rail.settle(asked.payment!);
          world.rail.time += 3_600;
          return answer(200, { sum: sumOf(asked.url) });
        }),
    ],
  ])("not where %s", async (_name, handler) => {
    const world = due();
    await payOnce(world, handler(world));
    expect(world.egress.paid()).toHaveLength(1);
    expect(retried(world)).toEqual([]);
  });

  test("a showing that we could not make says nothing, and a chain that is down costs no call its result", async () => {
    const cut = due();
    await payOnce(
      cut,
      onceThen(cut, () => {
        cut.egress.sellers.set(CONTROL, () => transport("unreachable"));
        return transport("reset");
      }),
    );
    expect([cut.egress.paid().length, retried(cut)]).toEqual([2, []]);
    const down = due();
    let asked = 0;
    down.rail.head = () => {
      asked++;
      return Promise.reject(new Error("the chain does not answer"));
    };
    const report = await payOnce(down, honest(down.rail));
    expect(report).toMatchObject({ paid: 1, broken: 0 });
    expect([asked, retried(down)]).toEqual([1, []]);
    expect(down.log.bodies("paid.result")).toMatchObject([{ fault: null, watched: true }]);
  });
});

test("a proof that is shown because nothing had come says the same of a retry, in the same words", async () => {
  const world = fakeWorld();
  let n = 0;
  const handler = paying(world.rail, (asked) => {
    world.rail.settle(asked.payment!);
    return [answer(200, ""), terms402([entry()]), answer(200, { sum: sumOf(asked.url) })][n++]!;
  });
  await payOnce(world, handler);
  expect(world.log.bodies("paid.followup")).toMatchObject([
    { kind: "shown_again", retried: { outcome: "asked_again", status: 402 } },
    { kind: "shown_again", retried: { outcome: "answered", status: 200, same_bytes: null } },
  ]);
});
