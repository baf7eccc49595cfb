import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Clock } from "../../../infra/clock.ts";
import { createLogger } from "../../../infra/telemetry.ts";
import { cosignatureLine, cosignatureTime } from "../../../infra/tree/cosignature.ts";
import { COSIGNATURE, type NoteKey, type NoteSigner, parseNote, parseVkey } from "../../../infra/tree/note.ts";
import { type WitnessAddress, Witnesses, type WitnessesOptions } from "../../../pipelines/4-publish/witnesses.ts";
import { WitnessState } from "../../../pipelines/witness/state.ts";
import { Witness } from "../../../pipelines/witness/witness.ts";
import { type Serving, serve } from "../../../serving/main.ts";
import { createWitnessApp } from "../../../serving/witness-app.ts";
import { noteSigner } from "../../helpers/witnessed.ts";
import { JWKS, listing, TRUST, World } from "./world.ts";

let world: World;
const closing: (() => unknown)[] = [];
beforeEach(async () => {
  world = await World.open();
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  await world.close();
});

/** One of our own witnesses, served. */
async function honest(name: string, port = 0): Promise<WitnessAddress & { serving: Serving; state: WitnessState }> {
  const state = WitnessState.open(join(world.dir, name), `witness.example/${name}`);
  const witness = new Witness(state, [TRUST.log], world.clock);
  const serving = await serve({ app: createWitnessApp(witness, createLogger("silent")), host: "127.0.0.1", port });
  closing.push(
    () => state.close(),
    () => serving.close(),
  );
  return { name, key: parseVkey(witness.vkey, COSIGNATURE), url: serving.url, serving, state };
}

async function lying(answer: RequestListener): Promise<string> {
  const server: Server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The world's time as a machine's, which witnesses' times are compared with. */
const realTime = (monotonic = () => performance.now()): Clock => ({
  ...{
    now: () => world.clock.now(),
    monotonic,
    simulated: false,
    jumps: false,
    sleep: (ms, signal) => world.clock.sleep(ms, signal),
  },
});

const asking = (witnesses: readonly WitnessAddress[], more: Partial<WitnessesOptions> = {}): Witnesses =>
  new Witnesses({
    // Only who never answers is waited for so long.
    ...{ witnesses, quorum: 0, patienceMs: 60_000, belowQuorum: "publish" },
    ...{ clock: realTime(), logger: createLogger("silent"), metrics: world.metrics, ...more },
  });

const published = async () => parseNote((await world.publicStore.get("checkpoint"))!.bytes);
const sizeIn = async () => Number((await published()).text.split("\n")[1]);
const hasCosigned = async (key: NoteKey): Promise<boolean> => cosignatureTime(await published(), key) !== null;
/** How often a submission to it ended so. */
const resultsOf = async (name: string): Promise<Record<string, number>> =>
  Object.fromEntries(
    [...(await world.metrics.text()).matchAll(/submissions_total\{witness="(\w+)",result="(\w+)"\} (\d+)/g)]
      .filter(([, witness]) => witness === name)
      .map(([, , result, times]) => [result!, Number(times)]),
  );

test("each checkpoint has the cosignatures of all, with the proof from the size that each has", async () => {
  const [one, two] = [await honest("one"), await honest("two")];
  const publisher = world.publisher({ witnesses: asking([one]) });
  await publisher.publishKeys(JWKS);
  await publisher.publishLeaves([{ kind: "listing", ...listing("a") }]);
  expect([await sizeIn(), await hasCosigned(one.key)]).toEqual([2, true]);
  // A restart, with a second witness that has nothing yet, and one whose size is not known any more.
  const again = world.publisher({ witnesses: asking([one, two]) });
  await again.publishLeaves([{ kind: "listing", ...listing("b") }]);
  await again.publishLeaves([{ kind: "listing", ...listing("c") }]);
  expect([await sizeIn(), await hasCosigned(one.key), await hasCosigned(two.key)]).toEqual([4, true, true]);
  world.clock.set("2026-11-21T04:10:00.000Z");
  await again.refreshCheckpoint();
  expect(cosignatureTime(await published(), two.key)).toBe(Date.parse("2026-11-21T04:10:00.000Z"));
  const [gauge] = await world.metrics.gauges("touchstone_witness_cosigned_seconds");
  expect(gauge!.value).toBe(Date.parse("2026-11-21T04:10:00.000Z") / 1000);
});

test("a publisher that died between the witness and its checkpoint goes on with the same root", async () => {
  const one = await honest("one");
  const first = world.publisher({ witnesses: asking([one]) });
  await first.publishKeys(JWKS);
  // Everything is done but the swap of the checkpoint.
  const broken = world.publisher({
    witnesses: asking([one]),
    publicStore: new Proxy(world.publicStore, {
      get(store, member) {
        const value: unknown = Reflect.get(store, member);
        if (member === "swap") return () => Promise.reject(new Error("killed"));
        return typeof value === "function" ? value.bind(store) : value;
      },
    }),
  });
  await expect(broken.publishLeaves([{ kind: "listing", ...listing("a") }])).rejects.toThrow("killed");
  expect([await sizeIn(), one.state.lastCosigned(TRUST.log.name)!.size]).toEqual([1, 2]);
  await world.publisher({ witnesses: asking([one]) }).start();
  expect([await sizeIn(), await hasCosigned(one.key)]).toEqual([2, true]);
});

describe("a witness that", () => {
  const key = noteSigner("witness.example/bad", 21);
  const cosigned = (text: string, by: NoteSigner = key, at = world.clock.now()) => cosignatureLine(text, by, at);
  /** Text of the checkpoint in a request. */
  const bodyOf = async (request: AsyncIterable<Buffer>): Promise<string> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const whole = Buffer.concat(chunks).toString();
    const note = whole.slice(whole.indexOf("\n\n") + 2);
    return note.slice(0, note.indexOf("\n\n") + 1);
  };
  const says =
    (status: number, answer: (text: string) => string, type = "text/plain"): RequestListener =>
    async (request, response) => {
      const text = await bodyOf(request);
      response.writeHead(status, { "content-type": type }).end(answer(text));
    };
  const SIZE = "text/x.tlog.size";
  const table: [string, RequestListener, string][] = [
    ["signs with another key", says(200, (text) => cosigned(text, noteSigner("witness.example/bad", 22))), "garbage"],
    ["signs under another name", says(200, (text) => cosigned(text, noteSigner("witness.example/x", 21))), "garbage"],
    ["signs another checkpoint", says(200, () => cosigned("record.example/tree\n7\nAAAA\n")), "garbage"],
    [
      "answers with an old signature",
      says(200, (text) => cosigned(text, key, new Date("2026-11-20T00:00:00Z"))),
      "garbage",
    ],
    ["signs in the future", says(200, (text) => cosigned(text, key, new Date("2026-11-22T00:00:00Z"))), "garbage"],
    ["answers with garbage", says(200, () => "hello"), "garbage"],
    ["answers with nothing", says(200, () => ""), "garbage"],
    ["answers with a megabyte", says(200, () => "x".repeat(1_000_000)), "garbage"],
    ["names a larger size than ours", says(409, () => "999\n", SIZE), "ahead"],
    ["names the size that it was told", says(409, () => "0\n", SIZE), "garbage"],
    ["names no size", says(409, () => "many\n", SIZE), "garbage"],
    ["names a size as another type", says(409, () => "1\n"), "garbage"],
    ["does not know us", says(404, () => ""), "refused"],
    ["refuses our key", says(403, () => ""), "refused"],
    ["sees a fork", says(422, () => ""), "refused"],
    ["is broken", says(500, () => ""), "down"],
    [
      "sends us elsewhere",
      (_, response) => response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(),
      "refused",
    ],
    ["hangs up", (request) => request.destroy(), "down"],
    ["never answers", () => undefined, "late"],
    [
      "drips",
      (_, response) => {
        response.writeHead(200);
        const timer = setInterval(() => response.write("x"), 50);
        response.once("close", () => clearInterval(timer));
      },
      "late",
    ],
  ];
  test.each(table)("%s costs the publication no more than the patience", async (_name, answer, result) => {
    const good = await honest("good");
    const bad = { name: "bad", key, url: await lying(answer) };
    // The good one answers within it, however slow the machine is.
    const patience = result === "late" ? { patienceMs: 2_000 } : {};
    const publisher = world.publisher({ witnesses: asking([bad, good], patience) });
    await publisher.publishKeys(JWKS);
    expect([await sizeIn(), await hasCosigned(good.key), await hasCosigned(key)]).toEqual([1, true, false]);
    // The patience is the end of each wait (nothing else ends one with who never answers), and there is one wait.
    expect(await resultsOf("bad")).toEqual({ [result]: 1 });
  });

  test("claims another size each time is left after three requests", async () => {
    let requests = 0;
    const bad = {
      name: "bad",
      key,
      url: await lying((request, response) => says(409, () => `${++requests}\n`, SIZE)(request, response)),
    };
    const drafts = ["a", "b", "c", "d", "e"].map((name) => ({ kind: "listing" as const, ...listing(name) }));
    await world.publisher({ witnesses: asking([bad]) }).publishLeaves(drafts);
    expect([requests, await sizeIn()]).toEqual([3, 5]);
  });

  test("is down for days is asked seldom, and goes on from its size when it is back", async () => {
    const one = await honest("one");
    await one.serving.close();
    let steady = 0;
    const clock = realTime(() => steady);
    const publisher = world.publisher({ witnesses: asking([one], { clock }) });
    for (let i = 0; i < 6; i++) await publisher.publishLeaves([{ kind: "listing", ...listing(`d${i}`) }]);
    expect(await world.metrics.text()).toContain('{witness="one",result="down"} 3');
    const back = await serve({
      app: createWitnessApp(new Witness(one.state, [TRUST.log], world.clock), createLogger("silent")),
      ...{ host: "127.0.0.1", port: one.serving.port },
    });
    closing.push(() => back.close());
    await publisher.publishLeaves([{ kind: "listing", ...listing("e") }]);
    expect(await hasCosigned(one.key)).toBe(false);
    steady += 10_000;
    await publisher.publishLeaves([{ kind: "listing", ...listing("f") }]);
    expect([await sizeIn(), await hasCosigned(one.key)]).toEqual([8, true]);
  });
});

test("below the quorum a checkpoint is held where the settings say so, and published once enough have cosigned", async () => {
  const one = await honest("one");
  const gone = { name: "gone", key: noteSigner("witness.example/gone", 5), url: "http://127.0.0.1:1" };
  const holding = (all: WitnessAddress[]) => asking(all, { quorum: 1, belowQuorum: "hold" });
  const publisher = world.publisher({ witnesses: holding([gone]) });
  await expect(publisher.publishLeaves([{ kind: "listing", ...listing("a") }])).rejects.toThrow("0 of 1 cosignatures");
  expect(await world.publicStore.get("checkpoint")).toBeNull();
  await world.publisher({ witnesses: holding([gone, one]) }).start();
  expect([await sizeIn(), await hasCosigned(one.key)]).toEqual([1, true]);
});
