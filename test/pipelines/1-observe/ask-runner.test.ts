import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { AskRunner, type AskRunnerParts, readOpenAsks } from "../../../pipelines/1-observe/ask-runner.ts";
import { type AskReport, ObserverStopped } from "../../../pipelines/1-observe/observer.ts";
import type { CurrentListing } from "../../../pipelines/1-observe/probe/unplanned.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../../pipelines/record/ids.ts";
import { capOf, delisting, handshake, listing, urlOf } from "../2-ingest/records.ts";
import { openTestWorld, PARTITIONS, type World } from "../2-ingest/world.ts";

const HOUR = 3_600_000;
const T0 = Date.parse("2026-11-15T12:00:00.000Z");
const iso = (ms: number): string => new Date(ms).toISOString();

function askOf(url: string, ms: number, more: Partial<BodyOf<"ask">> = {}) {
  const { host } = new URL(url);
  const body = { url, normalised_url: url, method: null, host, cap: capId("GET", url), ...more };
  const event_id = recordId("ask", host, `${url} ${ms} ${more.not_before ?? ""}`);
  return sealEnvelope(
    { v: 1, type: "ask", event_id, key: host, observed_at: iso(ms), producer: "test/1", body },
    PARTITIONS,
  );
}

let world: World;
let now: number;
let asked: string[];
let answer: (ask: BodyOf<"ask">, said?: CurrentListing) => Promise<AskReport>;
let planned: ReadonlySet<string> | null;
beforeEach(async () => {
  world = await openTestWorld();
  now = T0;
  asked = [];
  planned = null;
  answer = async ({ cap }) => ({ probed: [{ cap, state: "asked" }], listings: 0 });
});
afterEach(() => world.close());

/** A process: nothing but the line, over the same log and lake. */
function line(more: Partial<AskRunnerParts> = {}): AskRunner {
  return new AskRunner({
    lake: world.lake,
    log: world.log,
    observer: {
      probeAsk: (ask, said) => {
        asked.push(ask.normalised_url);
        return answer(ask, said);
      },
      isPlanned: (_day, cap) => planned?.has(cap) ?? null,
    },
    now: () => new Date(now),
    logger: createLogger("silent"),
    metrics: createMetrics(),
    ...more,
  });
}

/** A turn, its looks ended, and what they wrote ingested. */
async function turn(of: AskRunner): Promise<string[]> {
  asked = [];
  await of.startDue();
  await of.waitUntilIdle();
  await world.ingest.pass();
  return asked;
}

async function put(...asks: [url: string, ms: number][]): Promise<void> {
  for (let i = 0; i < asks.length; i += 5_000) {
    await world.append(...asks.slice(i, i + 5_000).map(([url, ms]) => askOf(url, ms)));
  }
  await world.ingest.pass();
}

describe("the line of asks", () => {
  test("a flood for one domain: another's only ask is among the first two, and the flood gets five an hour", async () => {
    const flood = Array.from({ length: 10_000 }, (_, i): [string, number] => [
      `https://s${i % 7}.flood.example/${i}`,
      T0 - 60_000 + i,
    ]);
    await put(...flood, ["https://small.org/x", T0 - 1_000]);
    const one = line();
    const first = await turn(one);
    expect(first.slice(0, 2)).toContain("https://small.org/x");
    expect(first.filter((url) => url.includes("flood"))).toEqual(flood.slice(0, 5).map(([url]) => url));
    expect(await turn(one)).toEqual([]);
    now += HOUR - 1;
    expect(await turn(one)).toEqual([]);
    now += 2;
    expect(await turn(one)).toEqual(flood.slice(5, 10).map(([url]) => url));
  });

  test("domains take turns, by the public suffix list with its private part", async () => {
    await put(
      ["https://a.one.example/1", T0 - 9],
      ["https://b.one.example/2", T0 - 8],
      ["https://one.example/3", T0 - 7],
      ["https://x.github.io/1", T0 - 6],
      ["https://y.github.io/1", T0 - 5],
      ["https://two.example/1", T0 - 4],
    );
    expect(await turn(line())).toEqual([
      ...["https://a.one.example/1", "https://x.github.io/1", "https://y.github.io/1", "https://two.example/1"],
      ...["https://b.one.example/2", "https://one.example/3"],
    ]);
  });

  test("names under one platform get a few times a domain's bound together, and another domain is not behind them", async () => {
    const names = Array.from({ length: 30 }, (_, i): [string, number] => [`https://n${i}.vercel.app/`, T0 - 100 + i]);
    await put(...names, ["https://other.example/1", T0 - 4]);
    const begun = await turn(line());
    expect(begun.filter((url) => url.includes("vercel"))).toHaveLength(20);
    expect(begun).toContain("https://other.example/1");
  });

  test("what was begun is not begun twice, whether or not the lake has heard of it; a restart goes on", async () => {
    await put(["https://a.example/1", T0 - 9], ["https://b.example/1", T0 - 8]);
    let finish = () => {};
    const held = new Promise<void>((done) => {
      finish = done;
    });
    answer = async ({ cap, host }) => {
      if (host === "a.example") await held;
      return { probed: [{ cap, state: "silent" }], listings: 0 };
    };
    const one = line();
    expect([await one.startDue(), await one.startDue()]).toEqual([2, 0]);
    finish();
    await one.waitUntilIdle();
    // Their looks are in the log, and not in the lake yet.
    expect(await one.startDue()).toBe(0);
    await world.ingest.pass();
    expect(await turn(line())).toEqual([]);
  });

  test("an ask that found nothing is not looked at again for a day; then a new ask is", async () => {
    const url = "https://nobody.example/1";
    answer = async () => ({ probed: [], listings: 0 });
    await put([url, T0]);
    expect(await turn(line())).toEqual([url]);
    now += 23 * HOUR;
    await put([url, now]);
    expect(await turn(line())).toEqual([]);
    now += 2 * HOUR;
    expect(await turn(line())).toEqual([]);
    await put([url, now]);
    expect(await turn(line())).toEqual([url]);
  });

  test("a handshake closes an ask as well as a look does, so a crash between them costs nothing", async () => {
    const url = "https://known.example/paid";
    await put([url, T0 - HOUR]);
    await world.append(handshake("known", iso(T0 - 1_000)));
    await world.ingest.pass();
    expect(await turn(line())).toEqual([]);
  });

  test("a look that a stop calls off stays in the line, and is no fault", async () => {
    await put(["https://underway.example/1", T0 - 9]);
    const metrics = createMetrics();
    answer = () => Promise.reject(new ObserverStopped());
    expect(await turn(line({ metrics }))).toEqual(["https://underway.example/1"]);
    expect(await metrics.text()).not.toContain("broken");
    expect(await turn(line())).toEqual(["https://underway.example/1"]);
  });

  test("a look that breaks off stays in the line, is left alone for ten minutes and holds nobody up", async () => {
    await put(["https://broken.example/1", T0 - 9], ["https://fine.example/1", T0 - 8]);
    answer = async ({ cap, host }) => {
      if (host === "broken.example") throw new Error("the log is down");
      return { probed: [{ cap, state: "free" }], listings: 0 };
    };
    const one = line();
    expect(await turn(one)).toEqual(["https://broken.example/1", "https://fine.example/1"]);
    expect(await turn(one)).toEqual([]);
    now += 600_000;
    expect(await turn(one)).toEqual(["https://broken.example/1"]);
    // Another process knows nothing of the pause.
    expect(await turn(line())).toEqual(["https://broken.example/1"]);
  });

  test("where observers share the hosts each looks at its own; what changes hands is looked at once", async () => {
    const [one, two] = [new Set(["one.example"]), new Set(["two.example:8443"])];
    const owns = (hosts: Set<string>) => ({ hosts: { owns: (host: string) => hosts.has(host) } });
    const [first, second] = [line(owns(one)), line(owns(two))];
    await put(["https://one.example/a", T0 - 3_000], ["https://two.example:8443/b", T0 - 2_000]);
    expect(await turn(first)).toEqual(["https://one.example/a"]);
    expect(await turn(second)).toEqual(["https://two.example:8443/b"]);
    await put(["https://one.example/c", T0 - 1_000], ["https://two.example:8443/d", T0 - 500]);
    two.add("one.example");
    one.clear();
    expect(await turn(first)).toEqual([]);
    expect((await turn(second)).sort()).toEqual(["https://one.example/c", "https://two.example:8443/d"]);
    expect(await turn(first)).toEqual([]);
  });

  test("an ask has had its time after thirty days", async () => {
    await put(
      ["https://late.example/1", T0 - 30 * 24 * HOUR - 1],
      ["https://still.example/1", T0 - 30 * 24 * HOUR + 1],
    );
    expect((await readOpenAsks(world.lake, new Date(now))).map(({ body }) => JSON.parse(body).host)).toEqual([
      "still.example",
    ]);
  });

  test("an ask that is held back has its turn then, others of its domain before it; a sooner one brings it forward", async () => {
    const held = "https://s.flood.example/held";
    const not_before = iso(now + 2 * HOUR);
    await world.append(
      askOf(held, T0 - 9_000, { not_before }),
      askOf("https://s.flood.example/own", T0 - 1_000),
      askOf("https://bad.example/", T0 - 1_000, { not_before: not_before.replace("2026", "9999") }),
    );
    await world.ingest.pass();
    const one = line();
    expect(await turn(one)).toEqual(["https://s.flood.example/own"]);
    now += 2 * HOUR - 1;
    expect(await turn(one)).toEqual([]);
    now += 1;
    expect(await turn(one)).toEqual([held]);
    const other = "https://s.flood.example/other";
    await world.append(askOf(other, now, { not_before: iso(now + 9 * HOUR) }), askOf(other, now));
    await world.ingest.pass();
    now += 1;
    expect(await turn(one)).toEqual([other]);
  });

  test("what was looked at is looked at again when the ask for it says so", async () => {
    const url = "https://nobody.example/1";
    answer = async () => ({ probed: [], listings: 0 });
    await put([url, T0]);
    const one = line();
    expect(await turn(one)).toEqual([url]);
    await world.append(askOf(url, T0 + HOUR, { not_before: iso(T0 + 24 * HOUR + 1) }));
    await world.ingest.pass();
    now = T0 + 24 * HOUR;
    expect(await turn(one)).toEqual([]);
    now += 1;
    expect(await turn(one)).toEqual([url]);
  });
});

describe("what was listed after the day's plan was drawn", () => {
  test("is probed the same day, as its listing says, once; what the plan calls is left to it", async () => {
    const said: (CurrentListing | undefined)[] = [];
    answer = async ({ cap }, one) => {
      said.push(one);
      return { probed: [{ cap, state: "asked" }], listings: 0 };
    };
    await world.append(listing("old", iso(T0 - 36 * HOUR)), listing("planned", iso(T0 - 9_000)));
    await world.append(listing("late", iso(T0 - 8_000)), listing("gone", iso(T0 - 7_000)));
    await world.append(delisting("gone", iso(T0 - 6_000)), listing("seen", iso(T0 - 5_000)));
    await world.append(handshake("seen", iso(T0 - 4_000)));
    await world.ingest.pass();
    const one = line();
    expect(await turn(one)).toEqual([]);
    planned = new Set([capOf("planned")]);
    expect(await turn(one)).toEqual([urlOf("late")]);
    expect(said).toMatchObject([{ cap: capOf("late"), url: urlOf("late"), method: "GET", own: false }]);
    expect(await turn(one)).toEqual([]);
    expect(await turn(line())).toEqual([]);
  });

  test("comes after what was asked for, five of a domain an hour, and only on hosts that are ours", async () => {
    planned = new Set();
    const names = Array.from({ length: 8 }, (_, i) => `n${i}.big`);
    await world.append(...names.map((name, i) => listing(name, iso(T0 - 10_000 + i))));
    await put(["https://small.org/x", T0 - 1_000]);
    expect(await turn(line({ hosts: { owns: (host) => host === "small.org" } }))).toEqual(["https://small.org/x"]);
    const newest = names.reverse().map(urlOf);
    expect(await turn(line())).toEqual(newest.slice(0, 5));
    now += HOUR + 1;
    await put(["https://small.org/y", now - 1]);
    expect(await turn(line())).toEqual(["https://small.org/y", ...newest.slice(5)]);
  });
});
