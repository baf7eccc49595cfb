import type { ServerResponse } from "node:http";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Receiver } from "../../../fixtures/receiver.ts";
import { verifyObject } from "../../../infra/keys/verify.ts";
import { capOf, cardOf, NOW } from "../../helpers/public-record.ts";
import type { TestServing } from "../../helpers/serving.ts";
import { deliver, MUL, postJson, readWatcher, SUM, WatcherTestbed, watch } from "../../helpers/watchers.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

let bed: WatcherTestbed;
let serving: TestServing;
let receiver: Receiver;
beforeEach(async () => {
  bed = await WatcherTestbed.open();
  await bed.card(SUM, { band: "A", composite: 0.9 });
  serving = await bed.serving();
  receiver = await bed.receiver();
});
afterEach(() => bed.close());

describe("a notice", () => {
  test("says what changed, carries the signed card, and verifies under both keys of the keys document", async () => {
    const { watcher_id } = await watch(serving, receiver.url, [SUM.url]);
    const to = await bed.card(SUM, { band: "F", composite: 0.2, flags: ["took_the_money"] });
    await deliver(bed.notifier());
    expect(receiver.notices).toHaveLength(1);
    const [{ id, timestamp, body, signedBy }] = receiver.notices as [(typeof receiver.notices)[0]];
    expect(signedBy).toEqual(["answers", "cards"]);
    expect(timestamp).toBe(Date.parse(NOW) / 1000);
    expect(id).toMatch(/^ntc_[0-9A-HJKMNP-TV-Z]{26}$/);
    expect(body).toMatchObject({
      type: "card.changed",
      watcher_id,
      capability_id: capOf(SUM),
      asked: SUM.url,
      seq: 1,
      change: "band",
      from: { band: "A", tier: "OUTCOME_VERIFIED", composite: 0.9, computed_at: "2026-11-21T06:00:00.000Z", flags: [] },
      to: {
        band: "F",
        tier: "OUTCOME_VERIFIED",
        composite: 0.2,
        computed_at: to.computed_at,
        flags: ["took_the_money"],
      },
      at: NOW,
    });
    const expected = { purpose: "cards" as const, at: new Date(NOW) };
    expect(verifyObject(bed.record.jwks, body.card, expected)).toEqual({ ok: true });
  });

  test.each([
    ["band", { band: "C" as const }],
    ["tier", { tier: "DELIVERY_VERIFIED" as const }],
    ["flags", { flags: ["stale" as const] }],
    ["figures", { composite: 0.89 }],
  ])("%s is the change that it names", async (change, card) => {
    await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "A", composite: 0.9, ...card });
    await deliver(bed.notifier());
    expect(receiver.notices.map(({ body }) => body.change)).toEqual([change]);
  });

  test("a correction of ours before the card is named, and a first card is one", async () => {
    await watch(serving, receiver.url, [SUM.url, MUL.url]);
    const correction = {
      id: "cor_1",
      record_id: null,
      grade_at: null,
      fault: "our_clock",
      says: "late",
      issued_at: NOW,
    };
    const notifier = bed.notifier();
    await bed.record.publish([{ kind: "correction", capability_id: capOf(SUM), body: correction }]);
    await deliver(notifier);
    await bed.card(SUM, { band: "UNRATED", components: null });
    await bed.card(MUL);
    await deliver(notifier);
    expect(receiver.notices.map(({ body }) => [body.capability_id, body.change, body.from?.band ?? null])).toEqual([
      [capOf(SUM), "corrected", "A"],
      [capOf(MUL), "first", null],
    ]);
  });

  test("only the headline of a group of cards makes one, and only of what is watched", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    const deep = await bed.card(MUL);
    const group = [
      { ...deep, capability_id: capOf(SUM), computed_at: "2026-11-21T11:00:00.000Z" },
      {
        ...deep,
        capability_id: capOf(SUM),
        computed_at: "2026-11-21T11:00:00.000Z",
        tier: "LIVENESS_VERIFIED" as const,
      },
    ];
    await bed.record.publish(bed.record.grades(group, "why", 1));
    await deliver(bed.notifier());
    expect(receiver.notices.map(({ body }) => body.to.tier)).toEqual(["LIVENESS_VERIFIED"]);
  });

  test("a url that was never seen is watched until its first card", async () => {
    const unseen = { url: "https://unseen.example/x", method: "POST" as const };
    await watch(serving, receiver.url, [unseen.url]);
    await bed.card(unseen);
    await deliver(bed.notifier());
    expect(receiver.notices.map(({ body }) => [body.capability_id, body.change, body.asked])).toEqual([
      [capOf(unseen), "first", unseen.url],
    ]);
  });

  test("a tool that was never seen is watched until its first card, and no other tool of its server", async () => {
    const tool = { url: "https://unseen.example/mcp", method: "POST" as const, tool: "search" };
    const asked = `${tool.url}#search`;
    await watch(serving, receiver.url, [asked]);
    await bed.card({ ...tool, tool: "other" });
    await bed.card(tool);
    await deliver(bed.notifier());
    expect(receiver.notices.map(({ body }) => [body.capability_id, body.change, body.asked])).toEqual([
      [capOf(tool), "first", asked],
    ]);
  });
});

describe("order and number", () => {
  test("each endpoint counts its own notices, which come in the order of the tree", async () => {
    await watch(serving, receiver.url, [SUM.url, MUL.url]);
    for (const [spec, band] of [
      [SUM, "B"],
      [MUL, "C"],
      [SUM, "C"],
      [SUM, "D"],
      [MUL, "B"],
    ] as const) {
      await bed.card(spec, { band });
    }
    await deliver(bed.notifier());
    const seen = receiver.notices.map(({ body }) => [
      body.capability_id === capOf(SUM) ? "sum" : "mul",
      body.seq,
      body.to.band,
    ]);
    expect(seen).toEqual([
      ["sum", 1, "B"],
      ["mul", 1, "C"],
      ["sum", 2, "C"],
      ["sum", 3, "D"],
      ["mul", 2, "B"],
    ]);
    expect(receiver.notices.map(({ body }) => body.from?.band ?? null)).toEqual(["A", null, "B", "C", "C"]);
  });

  // Delivers thousands of notices.
  test("more notices than are held in memory all come, each once", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    receiver.answer = 503;
    const notifier = bed.notifier({ perDomainMinute: 100_000 });
    for (let i = 0; i < 230; i++) await bed.card(SUM, { composite: i / 1000 });
    await deliver(notifier);
    receiver.answer = 200;
    receiver.notices.length = 0;
    bed.clock.pass(6_000);
    for (let i = 0; i < 4; i++) await deliver(notifier);
    expect(receiver.notices.map(({ body }) => body.seq)).toEqual(Array.from({ length: 230 }, (_, i) => i + 1));
  });
});

describe("a receiver that does not take it", () => {
  /** Attempts until the clock has passed `ms`, at which offsets. */
  async function attempts(stepMs: number, untilMs: number): Promise<number[]> {
    const notifier = bed.notifier();
    const at: number[] = [];
    for (let passed = 0; passed <= untilMs; passed += stepMs, bed.clock.pass(stepMs)) {
      const before = receiver.notices.length;
      await deliver(notifier);
      if (receiver.notices.length > before) at.push(passed);
    }
    return at;
  }

  test("is tried now, then after 5 s, 5 min, 30 min; the notice keeps its id and its bytes", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    receiver.answer = 500;
    expect(await attempts(5_000, 36 * MINUTE)).toEqual([0, 5_000, 305_000, 2_105_000]);
    expect(receiver.ids).toHaveLength(1);
    expect(new Set(receiver.notices.map(({ body }) => JSON.stringify(body))).size).toBe(1);
    expect(new Set(receiver.notices.map(({ timestamp }) => timestamp)).size).toBe(4);
  });

  test("goes on after 2, 5, 10, 10 hours and is disabled after five days, which a read shows", async () => {
    const made = await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    receiver.answer = 500;
    const at = await attempts(30 * MINUTE, 130 * HOUR);
    expect(at.slice(-1)).toEqual([120 * HOUR]);
    expect(at.length).toBeGreaterThan(8);
    const read = (await (await readWatcher(serving, made)).json()) as {
      state: string;
      says: string;
      deliveries: object[];
    };
    expect(read.state).toBe("disabled");
    expect(read.says).toContain("answered 500");
    expect(read.deliveries[0]).toMatchObject({ delivered: false, status: 500, seq: 1 });
  });

  test("asks for more time with Retry-After, and gets it up to a day", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    receiver.answer = (response) => response.writeHead(429, { "retry-after": "7200" }).end();
    expect(await attempts(10 * MINUTE, 3 * HOUR)).toEqual([0, 2 * HOUR]);
    receiver.answer = (response) => response.writeHead(503, { "retry-after": "999999999" }).end();
    bed.clock.pass(24 * HOUR);
    await attempts(HOUR, 0);
    receiver.notices.length = 0;
    bed.clock.pass(25 * HOUR);
    expect(await attempts(HOUR, 0)).toEqual([0]);
  });

  test("says 410 and gets nothing more", async () => {
    const made = await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    receiver.answer = 410;
    const notifier = bed.notifier();
    await deliver(notifier);
    await bed.card(SUM, { band: "C" });
    bed.clock.pass(HOUR);
    await deliver(notifier);
    expect(receiver.notices).toHaveLength(1);
    const read = (await (await readWatcher(serving, made)).json()) as { state: string; says: string };
    expect([read.state, read.says]).toEqual(["stopped", "the receiver answered 410 Gone"]);
  });

  test("redirects, and is not followed", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    const other = await bed.receiver();
    receiver.answer = (response) => response.writeHead(307, { location: other.url }).end();
    await deliver(bed.notifier());
    expect([receiver.notices.length, other.notices.length]).toEqual([1, 0]);
    const failed = (await bed.told()).find(({ type }) => type === "watcher.failed");
    expect(failed?.body).toMatchObject({ status: 307, says: "answered 307" });
  });

  test("never ends its body: what it sends is bounded and dropped", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    receiver.answer = (response) => {
      response.writeHead(200);
      const chunk = Buffer.alloc(65_536);
      const more = (): void => {
        while (!response.destroyed && response.write(chunk));
      };
      response.on("drain", more);
      more();
    };
    await deliver(bed.notifier());
    const failed = (await bed.told()).find(({ type }) => type === "watcher.failed");
    expect(failed?.body).toMatchObject({ status: 200 });
    expect(failed?.body.says).toMatch(/past 65536 bytes/);
  });
});

describe("nobody waits for another", () => {
  test("a receiver that hangs holds up neither another one nor the turn", async () => {
    const slow = await bed.receiver();
    await watch(serving, slow.url, [SUM.url]);
    await watch(serving, receiver.url, [SUM.url]);
    slow.answer = () => {};
    for (const band of ["B", "C", "D"] as const) await bed.card(SUM, { band });
    const notifier = bed.notifier();
    await notifier.runOnce();
    await expect.poll(() => receiver.notices.length).toBe(3);
    expect(slow.notices).toHaveLength(1);
    await notifier.stop();
  });

  test("a domain has so many attempts in a minute and no more", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    for (let i = 0; i < 7; i++) await bed.card(SUM, { composite: i / 10 });
    const notifier = bed.notifier({ perDomainMinute: 3 });
    const counts: number[] = [];
    for (let i = 0; i < 3; i++, bed.clock.pass(MINUTE)) {
      await deliver(notifier);
      await deliver(notifier);
      counts.push(receiver.notices.length);
    }
    expect(counts).toEqual([3, 6, 7]);
  });
});

describe("restart, and another process", () => {
  test("a process that takes over repeats nothing that was recorded and loses nothing that was not", async () => {
    await watch(serving, receiver.url, [SUM.url, MUL.url]);
    await bed.card(SUM, { band: "B" });
    const first = bed.notifier();
    await deliver(first);
    await bed.card(SUM, { band: "C" });
    await bed.card(MUL, { band: "C" });
    const second = bed.notifier();
    await deliver(second);
    await deliver(first);
    await bed.card(SUM, { band: "D" });
    await deliver(first);
    await deliver(second);
    expect(receiver.notices.map(({ body }) => [body.seq, body.to.band])).toEqual([
      [1, "B"],
      [2, "C"],
      [1, "C"],
      [3, "D"],
    ]);
  });

  test("a correction is named after a restart too, so that a notice has one body", async () => {
    await bed.card(MUL, { band: "A" });
    await serving.follower.refresh();
    await watch(serving, receiver.url, [SUM.url, MUL.url]);
    const correction = (spec: { url: string }, id: string) => {
      const body = { id, record_id: null, grade_at: null, fault: "our_clock", says: "late", issued_at: NOW };
      return { kind: "correction" as const, capability_id: capOf(spec), body };
    };
    const computed_at = "2026-11-21T11:00:00.000Z";
    const graded = [SUM, MUL].map((spec) => bed.record.grades([cardOf(spec, { computed_at, band: "C" })], "why"));
    await bed.record.publish([correction(SUM, "cor_1"), correction(MUL, "cor_2")], ...graded);
    let answers = 0;
    receiver.answer = (response) => response.writeHead(++answers === 2 ? 503 : 200).end();
    await deliver(bed.notifier());
    bed.clock.pass(6_000);
    // Another card of the first, without a correction, comes in between.
    await bed.card(SUM, { band: "D" });
    await deliver(bed.notifier());
    const [sum, mul] = [SUM, MUL].map(capOf);
    expect(receiver.notices.map(({ body }) => [body.capability_id, body.change])).toEqual([
      [sum, "corrected"],
      [mul, "corrected"],
      [mul, "corrected"],
      [sum, "band"],
    ]);
    expect(receiver.notices[2]!.body).toEqual(receiver.notices[1]!.body);
  });

  test("the schedule of a failing notice goes on where it was", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    receiver.answer = 500;
    await deliver(bed.notifier());
    await deliver(bed.notifier());
    expect(receiver.notices).toHaveLength(1);
    bed.clock.pass(5_000);
    await deliver(bed.notifier());
    await deliver(bed.notifier());
    expect(receiver.notices).toHaveLength(2);
    bed.clock.pass(5 * MINUTE);
    receiver.answer = 200;
    await deliver(bed.notifier());
    await deliver(bed.notifier());
    expect(receiver.notices).toHaveLength(3);
    expect(receiver.ids).toHaveLength(1);
  });

  test("what was called off is nobody's failure and is sent again", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    receiver.answer = () => {};
    const first = bed.notifier();
    await first.runOnce();
    await expect.poll(() => receiver.notices.length).toBe(1);
    await first.stop();
    receiver.answer = 200;
    await deliver(bed.notifier());
    expect([receiver.notices.length, receiver.ids.length]).toEqual([2, 1]);
    expect((await bed.told()).map(({ type }) => type)).toEqual(["watcher.created", "watcher.delivered"]);
  });

  test("a log that is down after a delivery: nothing is sent until it says so, and then nothing again", async () => {
    await watch(serving, receiver.url, [SUM.url]);
    await bed.card(SUM, { band: "B" });
    await bed.card(SUM, { band: "C" });
    const { log } = bed;
    let down = true;
    const append: typeof log.append = async (records) => {
      if (down) throw new Error("no broker");
      return log.append(records);
    };
    const shaky = { append, read: log.read.bind(log), bounds: log.bounds.bind(log), partitions: log.partitions };
    const notifier = bed.notifier({ log: shaky });
    for (let i = 0; i < 3; i++, bed.clock.pass(10_000)) await deliver(notifier);
    expect(receiver.notices).toHaveLength(1);
    down = false;
    await deliver(notifier);
    expect(receiver.notices.map(({ body }) => body.to.band)).toEqual(["B", "C"]);
  });

  test("a stop that comes while a notice is on its way is before the next one, though no turn was between", async () => {
    const made = await watch(serving, receiver.url, [SUM.url]);
    const { token } = made;
    for (const band of ["B", "C", "D"] as const) await bed.card(SUM, { band });
    receiver.answer = async (response) => {
      await postJson(serving, "/v1/watchers/stop", undefined, token);
      response.writeHead(204).end();
    };
    await deliver(bed.notifier());
    expect(receiver.notices.map(({ body }) => body.to.band)).toEqual(["B"]);
    const read = (await (await readWatcher(serving, made)).json()) as object;
    expect(read).toMatchObject({ state: "stopped", pending: 0, endpoints: [{ last_seq: 1 }] });
  });

  test("a stop that comes while its watcher waits for its neighbours is before its notice", async () => {
    const three = [];
    for (let i = 0; i < 3; i++) three.push(await watch(serving, receiver.url, [SUM.url]));
    await bed.card(SUM, { band: "B" });
    const held: ServerResponse[] = [];
    receiver.answer = (response) => void held.push(response);
    const notifier = bed.notifier();
    await notifier.runOnce();
    await expect.poll(() => held.length).toBe(2);
    const served = receiver.notices.map(({ body }) => body.watcher_id);
    const waits = three.find(({ watcher_id }) => !served.includes(watcher_id))!;
    await postJson(serving, "/v1/watchers/stop", undefined, waits.token);
    for (const response of held) response.writeHead(204).end();
    await notifier.waitUntilIdle();
    expect(receiver.notices).toHaveLength(2);
  });

  test("a stop that was answered is before every later notice, whoever answered it", async () => {
    const { token } = await watch(serving, receiver.url, [SUM.url]);
    const notifier = bed.notifier();
    await bed.card(SUM, { band: "B" });
    receiver.answer = 500;
    await deliver(notifier);
    const other = await bed.serving();
    expect((await postJson(other, "/v1/watchers/stop", undefined, token)).status).toBe(200);
    bed.clock.pass(HOUR);
    await deliver(notifier);
    await bed.card(SUM, { band: "C" });
    await deliver(notifier);
    expect(receiver.notices).toHaveLength(1);
  });
});
