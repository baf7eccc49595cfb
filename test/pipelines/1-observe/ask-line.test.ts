import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { AskLine, type AskLineParts, openAsks } from "../../../pipelines/1-observe/ask-line.ts";
import type { AskReport } from "../../../pipelines/1-observe/observer.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../../pipelines/record/ids.ts";
import { handshake } from "../2-ingest/records.ts";
import { openTestWorld, PARTITIONS, type World } from "../2-ingest/world.ts";

const HOUR = 3_600_000;
const T0 = Date.parse("2026-11-15T12:00:00.000Z");
const iso = (ms: number): string => new Date(ms).toISOString();

function askOf(url: string, ms: number) {
  const { host } = new URL(url);
  const body = { url, normalised_url: url, method: null, host, cap: capId("GET", url) };
  const event_id = recordId("ask", host, `${url} ${ms}`);
  return sealEnvelope(
    { v: 1, type: "ask", event_id, key: host, observed_at: iso(ms), producer: "test/1", body },
    PARTITIONS,
  );
}

let world: World;
let now: number;
let asked: string[];
let answer: (ask: BodyOf<"ask">) => Promise<AskReport>;
beforeEach(async () => {
  world = await openTestWorld();
  now = T0;
  asked = [];
  answer = async ({ cap }) => ({ probed: [{ cap, state: "asked" }], listings: 0 });
});
afterEach(() => world.close());

/** A process: nothing but the line, over the same log and lake. */
function line(more: Partial<AskLineParts> = {}): AskLine {
  return new AskLine({
    lake: world.lake,
    log: world.log,
    observer: {
      ask: (ask) => {
        asked.push(ask.normalised_url);
        return answer(ask);
      },
    },
    now: () => new Date(now),
    logger: createLogger("silent"),
    metrics: createMetrics(),
    ...more,
  });
}

/** A turn, its looks ended, and what they wrote ingested. */
async function turn(of: AskLine): Promise<string[]> {
  asked = [];
  await of.turn();
  await of.idle();
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
    expect([await one.turn(), await one.turn()]).toEqual([2, 0]);
    finish();
    await one.idle();
    // Their looks are in the log, and not in the lake yet.
    expect(await one.turn()).toBe(0);
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
    expect((await openAsks(world.lake, new Date(now))).map(({ body }) => JSON.parse(body).host)).toEqual([
      "still.example",
    ]);
  });
});
