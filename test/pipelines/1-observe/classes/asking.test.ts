import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { FixedClock } from "../../../../infra/clock.ts";
import { createLogger, createMetrics } from "../../../../infra/telemetry.ts";
import { ClassQuestions } from "../../../../pipelines/1-observe/classes/asking.ts";
import { createClassMaps, NO_CLASS_MAPS } from "../../../../pipelines/1-observe/classes/mapping-file.ts";
import type { Recorder } from "../../../../pipelines/1-observe/recorder.ts";
import type { BodyOf } from "../../../../pipelines/record/bodies.ts";
import { plantedHtml, plantedPage } from "../../../../pipelines/record/classes/planted.ts";
import { variantOf } from "../../../../pipelines/record/classes.ts";
import { createPageSource } from "../../../../pipelines/roles/classes.ts";
import { END, listAndPlan, START } from "../day.ts";
import { answer, DAY, type FakeWorld, fakeWorld, type Handler, item, SELLER, terms402, wellKnown } from "../world.ts";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const fail = (...says: string[]): never => {
  throw new Error(says.join("\n"));
};
const schemaOf = (name: string) => ({ type: "object", properties: { [name]: { type: "string" } }, required: [name] });
/** A seller of one path that answers what `does` makes of the text in its query; it lists what `change` says. */
const hasher =
  (world: FakeWorld, does: (text: string, url: URL) => unknown, change: Record<string, unknown> = {}): Handler =>
  (asked) => {
    const url = new URL(asked.url);
    if (url.pathname === "/.well-known/x402") {
      const own = {
        class: undefined,
        example: { query: { text: "abc" } },
        outputSchema: schemaOf("sha256"),
        ...change,
      };
      return answer(200, wellKnown(item(own)));
    }
    if (asked.payment === undefined) return terms402();
    world.rail.settle(asked.payment);
    return answer(200, does(url.searchParams.get("text") ?? "", url));
  };

/** One whole day of calls: four paid ones. */
async function day(world: FakeWorld, handler: Handler): Promise<void> {
  await world.observer.observeSpan(await listAndPlan(world, handler), START, END);
}
const paid = (world: FakeWorld) => {
  const results = new Map(world.log.bodies("paid.result").map((one) => [one.intent, one]));
  const intents = world.log.envelopes().filter((one) => one.type === "paid.intent");
  return intents.map(({ event_id, body }) => {
    const intent = body as BodyOf<"paid.intent">;
    return { intent, asked: intent.known_answer, result: results.get(event_id)! };
  });
};

describe("a seller whose schema fits one question of one class", () => {
  test("is mapped in the record before the first payment; the first calls are controls until one passes", async () => {
    const world = fakeWorld();
    await day(
      world,
      hasher(world, (text) => ({ sha256: sha256(text) })),
    );
    const types = world.log.envelopes().map((one) => one.type);
    expect(types.filter((type) => type === "class.mapped")).toHaveLength(1);
    expect(types.indexOf("class.mapped")).toBeLessThan(types.indexOf("paid.intent"));
    const [{ mapping, dropped }] = world.log.bodies("class.mapped") as [BodyOf<"class.mapped">];
    expect([mapping, dropped]).toMatchObject([
      { class: "encodings", variant: "sha256", by: "schema", input: { query: { text: "{text}" } }, answer: "/sha256" },
      false,
    ]);
    const calls = paid(world);
    expect(calls.map(({ asked, result }) => [asked?.control, result.fault, result.outcome])).toEqual([
      [true, "ours", 1],
      ...Array.from({ length: 3 }, () => [false, null, 1]),
    ]);
    expect(calls[0]!.result.says).toMatch(/a control input/);
    expect(
      calls.every(({ intent }) => intent.input === "known_answer" && intent.known_answer?.mapping === mapping!.id),
    ).toBe(true);
  });

  test("what is recorded is enough to score an answer again", async () => {
    const world = fakeWorld();
    await day(
      world,
      hasher(world, (text) => ({ sha256: sha256(text) })),
    );
    for (const { intent, asked, result } of paid(world)) {
      const text = new URL(intent.url).searchParams.get("text")!;
      expect(asked!.truth).toBe(sha256(text));
      expect(variantOf(asked!)!.score(sha256(text), asked!.truth)).toBe(result.outcome);
    }
  });

  test("one that does another thing costs it nothing: three controls, then its own example", async () => {
    const world = fakeWorld();
    const other = hasher(world, () => ({ sha256: "is my name" }));
    await day(world, other);
    const calls = paid(world);
    expect(calls.map(({ intent, result }) => [intent.input, result.fault, result.outcome])).toEqual([
      ...Array.from({ length: 3 }, () => ["known_answer", "ours", 0]),
      ["example", null, null],
    ]);
    expect(world.log.bodies("class.mapped").map(({ dropped }) => dropped)).toEqual([false, true]);
  });

  test("the record's word on the trials holds after a restart, and is not written again", async () => {
    const world = fakeWorld();
    await day(
      world,
      hasher(world, (text) => ({ sha256: sha256(text) })),
    );
    const { mapping } = world.log.bodies("class.mapped")[0]!;
    const [one] = await world.memory.listed();
    const appended: unknown[] = [];
    const recorder = { append: async (drafts: unknown[]) => appended.push(...drafts) } as unknown as Recorder;
    const metrics = createMetrics();
    const asking = new ClassQuestions({
      maps: NO_CLASS_MAPS,
      sources: {},
      recorder,
      metrics,
      logger: createLogger("silent"),
    });
    const ask = async (trials: { dropped: boolean; controls: number; passed: boolean }) => {
      const mapped = { id: mapping!.id, ...trials };
      const asked = await asking.createQuestion({ ...one!, mapped }, null, Buffer.alloc(32, 1));
      await asking.recordMapping({ ...one!, mapped }, asked, world.clock);
      return [asked.known !== null, asked.isControl, asked.dropped, appended.length];
    };
    expect(await ask({ dropped: false, controls: 1, passed: false })).toEqual([true, true, false, 0]);
    expect(await ask({ dropped: false, controls: 2, passed: true })).toEqual([true, false, false, 0]);
    expect(await ask({ dropped: true, controls: 0, passed: false })).toEqual([false, false, true, 0]);
    expect(await ask({ dropped: false, controls: 3, passed: false })).toEqual([false, false, true, 1]);
  });

  test.each<[string, Record<string, unknown>]>([
    ["a name more in the input", { example: { query: { text: "abc", lang: "en" } } }],
    ["two questions' answers", { outputSchema: { type: "object", properties: { sha256: {}, md5: {} } } }],
    ["no schema of the answer", { outputSchema: undefined }],
    ["another class's words", { example: { query: { country: "Peru" } }, outputSchema: schemaOf("capital") }],
  ])("%s: nobody is mapped", async (_, change) => {
    const world = fakeWorld();
    await day(
      world,
      hasher(world, () => ({ sha256: "x" }), change),
    );
    expect(world.log.bodies("class.mapped")).toEqual([]);
    expect(paid(world).every(({ asked }) => asked === undefined)).toBe(true);
  });
});

describe("a seller that names its class", () => {
  const named = (change: object = {}) => ({
    ...{ class: "geo-facts", example: { query: { country: "Peru" } }, outputSchema: schemaOf("alpha2") },
    ...change,
  });
  test("is asked in the class's form, counts at once, and no mapping is written", async () => {
    const world = fakeWorld();
    await day(
      world,
      hasher(world, (_, url) => ({ alpha2: url.searchParams.get("country") }), named()),
    );
    expect(world.log.bodies("class.mapped")).toEqual([]);
    expect(
      paid(world).map(({ asked, result }) => [asked?.variant, asked?.control, result.fault, result.outcome]),
    ).toEqual(Array.from({ length: 4 }, () => ["alpha2", false, null, 0]));
  });
  test("and shows no example of any of its questions keeps its own example", async () => {
    const world = fakeWorld();
    await day(
      world,
      hasher(world, () => ({ alpha2: "x" }), named({ example: { query: { place: "Peru" } } })),
    );
    expect(paid(world).map(({ intent, result }) => [intent.input, result.outcome])).toEqual(
      Array.from({ length: 4 }, () => ["example", null]),
    );
  });
});

describe("an operator's mapping", () => {
  const maps = createClassMaps(
    {
      version: 1,
      mappings: [
        {
          match: { url: `${SELLER}/sum` },
          ...{
            class: "encodings",
            variant: "base64",
            input: { query: { text: "{text}", mode: "b64" } },
            answer: "/out/0",
          },
        },
      ],
    },
    fail,
  );
  test("goes before what the seller says, and begins with control inputs", async () => {
    const world = fakeWorld();
    const seller = hasher(world, (text) => ({ out: [Buffer.from(text).toString("base64")] }), { class: "geo-facts" });
    world.observer = world.restart({}, { classes: { maps } });
    await day(world, seller);
    expect(paid(world).map(({ asked, result }) => [asked?.control, result.fault, result.outcome])).toEqual([
      ...[[true, "ours", 1]],
      ...Array.from({ length: 3 }, () => [false, null, 1]),
    ]);
    expect(new URL(paid(world)[0]!.intent.url).searchParams.get("mode")).toBe("b64");
  });
});

describe("a planted page", () => {
  const secret = Buffer.alloc(32, 9);
  const clock = new FixedClock(`${DAY}T12:00:00.000Z`);
  const source = createPageSource("https://t.example", secret, clock);
  const page = (url: string, now = clock.now()) => plantedPage(secret, new URL(url).pathname.slice(3), now);

  test("holds what it is looked through for, another one for another question", async () => {
    const [one, two] = [source(Buffer.alloc(32, 1)), source(Buffer.alloc(32, 2))];
    const html = plantedHtml(page(one.url)!);
    const { score } = variantOf({ class: "planted-page", variant: "read" })!;
    expect([score(html, one.facts), score(html, two.facts) < 0.5]).toEqual([1, true]);
    // What a reader makes of it, without markup.
    expect(score(html.replace(/<[^>]*>/g, " "), one.facts)).toBe(1);
    expect(html).toContain('name="robots" content="noindex');
  });

  test("is served around its day alone, and nothing is served for a token that is not ours", () => {
    const { url } = source(Buffer.alloc(32, 1));
    const at = (day: string) => page(url, new Date(`2026-11-${day}T12:00:00Z`));
    expect(
      ["31", "01", "02", "03", "04"].map(
        (day) => (day === "31" ? page(url, new Date("2026-10-31T12:00:00Z")) : at(day)) !== null,
      ),
    ).toEqual([...[false, true, true, true, false]]);
    const token = new URL(url).pathname.slice(3);
    const turned = token.slice(0, -1) + (token.endsWith("0") ? "1" : "0");
    for (const wrong of [turned, "", "x", token.toUpperCase(), `${token}0`]) {
      expect(plantedPage(secret, wrong, clock.now()), wrong).toBeNull();
    }
    expect(plantedPage(Buffer.alloc(32, 8), token, clock.now())).toBeNull();
  });

  test("a source that is down leaves the seller its own example", async () => {
    const world = fakeWorld();
    const down = async () => {
      throw new Error("no node");
    };
    const metrics = createMetrics();
    world.observer = world.restart({}, { metrics, classes: { sources: { block: down } } });
    const listed = {
      ...{
        class: "chain-data",
        example: { query: { block: "1", network: "eip155:1" } },
        outputSchema: schemaOf("hash"),
      },
    };
    await day(
      world,
      hasher(world, () => ({ hash: "x" }), listed),
    );
    expect(paid(world).map(({ intent, result }) => [intent.input, result.fault])).toEqual(
      Array.from({ length: 4 }, () => ["example", null]),
    );
  });
});

describe("rows that the operator knows", () => {
  const days = Array.from({ length: 20 }, (_, n) => ({ asks: { day: `2019-03-${10 + n}` }, answer: n / 2 }));
  const maps = createClassMaps(
    {
      version: 1,
      rows: { kew: { within: 0.25, rows: days } },
      mappings: [
        {
          match: { host: new URL(SELLER).host },
          ...{ class: "known-rows", rows: "kew", input: { query: { text: "{day}" } }, answer: "/weather/t" },
        },
      ],
    },
    fail,
  );
  const told = (day: string, off: number) => ({
    weather: { t: days.find(({ asks }) => asks.day === day)!.answer + off },
  });

  test.each([
    ["near enough", 0.25, 1],
    ["past what the rows allow", 0.5, 0],
  ])("an answer that is %s", async (_, off, outcome) => {
    const world = fakeWorld();
    const dealt = { n: 0 };
    world.observer = world.restart({}, { classes: { maps } });
    // The control input passes: from then on answers count.
    await day(
      world,
      hasher(world, (text) => told(text, dealt.n++ === 0 ? 0 : off), { outputSchema: undefined }),
    );
    const calls = paid(world);
    expect(calls.map(({ asked, result }) => [asked?.class, asked?.control, result.outcome])).toEqual([
      ["known-rows", true, 1],
      ...Array.from({ length: 3 }, () => ["known-rows", false, outcome]),
    ]);
    for (const { asked, intent } of calls) {
      const known = days.find(({ asks }) => asks.day === new URL(intent.url).searchParams.get("text"));
      expect(asked!.truth).toEqual([known!.answer, 0.25]);
    }
  });
});
