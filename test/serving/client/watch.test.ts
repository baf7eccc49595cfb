import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { signObject } from "../../../infra/keys/signer.ts";
import { signMessage } from "../../../pipelines/6-notify/notice.ts";
import type { SignedCard } from "../../../pipelines/record/card.ts";
import {
  createWatcher,
  type Notice,
  noticeReceiver,
  readWatcher,
  Service,
  seenInMemory,
  stopWatcher,
} from "../../../serving/client/index.ts";
import { type Serving, serve } from "../../../serving/main.ts";
import { peer } from "../../helpers/client.ts";
import { cardOf } from "../../helpers/public-record.ts";
import { deliver, SUM, WatcherTestbed } from "../../helpers/watchers.ts";

let bed: WatcherTestbed;
let live: Serving;
let service: Service;
beforeAll(async () => {
  bed = await WatcherTestbed.open();
  live = await serve({ app: (await bed.serving()).app, port: 0, host: "127.0.0.1", graceMs: 200 });
  service = new Service({ base: live.url, now: () => bed.clock.now().getTime() });
});
afterAll(async () => {
  await live?.close();
  await bed?.close();
});

/** A receiver on a socket, as somebody would run it. */
async function listening(take: (request: Request) => Promise<Response>) {
  return peer(async (message, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of message) chunks.push(chunk as Buffer);
    const headers = message.headers as Record<string, string>;
    const answer = await take(
      new Request("http://receiver/", { method: "POST", headers, body: Buffer.concat(chunks) }),
    );
    response.writeHead(answer.status).end(await answer.text());
  });
}

test("a watcher is made, told of a card once for each, read and stopped", async () => {
  const told: Notice[] = [];
  let fails = true;
  const onNotice = (notice: Notice): void => {
    if (fails) throw new Error("not now");
    told.push(notice);
  };
  const receiver = await listening(noticeReceiver({ service, onNotice }));
  const made = await createWatcher(service, receiver.url, [SUM.url]);
  expect(made).toMatchObject({ state: "active", token: expect.any(String) });
  const notifier = bed.notifier();
  const card = await bed.card(SUM);
  await deliver(notifier);
  expect(told).toEqual([]);
  fails = false;
  bed.clock.pass(60_000);
  await deliver(notifier);
  expect(told).toMatchObject([{ change: "first", seq: 1, from: null, to: { band: "B" }, asked: SUM.url }]);
  expect(told[0]!.card).toMatchObject(card);
  await expect
    .poll(async () => (await readWatcher(service, made.watcher_id, made.token)).endpoints[0]?.last_seq)
    .toBe(1);
  await stopWatcher(service, made.token);
  await stopWatcher(service, made.token);
  const read = readWatcher(service, made.watcher_id, "wat_x.0.0.x");
  await expect(read).rejects.toMatchObject({ code: "problem", status: 401 });
  await receiver.close();
});

test("a receiver that does not echo makes no watcher", async () => {
  const receiver = await listening(async () => new Response("no"));
  const made = createWatcher(service, receiver.url, [SUM.url]);
  await expect(made).rejects.toMatchObject({ code: "problem", status: 422 });
  await receiver.close();
});

describe("the receiver", () => {
  let told: Notice[];
  let take: (request: Request) => Promise<Response>;
  beforeEach(() => {
    told = [];
    take = noticeReceiver({
      service,
      onNotice: (notice) => void told.push(notice),
      isOurs: (id) => id !== "wat_other",
    });
  });

  const both = () => [bed.record.keys.cards, bed.record.keys.answers];
  const card = (): SignedCard => bed.record.sign(cardOf(SUM));
  const bodyOf = (signed: SignedCard, more: object = {}) => ({
    ...{ type: "card.changed", watcher_id: "wat_ours", capability_id: signed.capability_id, asked: SUM.url, seq: 1 },
    ...{
      change: "first",
      from: null,
      to: standing(signed),
      card: signed,
      leaf: 3,
      at: "2026-11-21T12:00:00.000Z",
      ...more,
    },
  });
  const standing = ({ band, tier, composite, computed_at, flags }: SignedCard) => ({
    ...{ band, tier, composite, computed_at, flags },
  });
  const request = ({ headers, body }: { headers: Record<string, string>; body: Buffer<ArrayBufferLike> }): Request =>
    new Request("https://receiver.example/", { method: "POST", headers, body: new Uint8Array(body) });
  const message = (body: unknown, { id = "ntc_1", at = bed.clock.now(), signers = both() } = {}) =>
    signMessage(id, JSON.stringify(body), at, signers);
  const status = async (body: unknown, options = {}): Promise<number> =>
    (await take(request(message(body, options)))).status;

  test("hands a notice on once, however often it comes, and acknowledges each time", async () => {
    const sent = message(bodyOf(card()));
    expect([(await take(request(sent))).status, (await take(request(sent))).status]).toEqual([204, 204]);
    expect(told).toHaveLength(1);
    expect(await status(bodyOf(card()), { id: "ntc_2" })).toBe(204);
    expect(told).toHaveLength(2);
  });

  test("asks for patience while the first of two is not taken yet", async () => {
    let taken: (() => void) | undefined;
    const onNotice = () => new Promise<void>((resolve) => (taken = resolve));
    const slow = noticeReceiver({ service, onNotice });
    const sent = message(bodyOf(card()));
    const first = slow(request(sent));
    // Signatures are checked in any order: the second is sent only once the first is being taken.
    await expect.poll(() => taken).toBeDefined();
    expect((await slow(request(sent))).status).toBe(503);
    taken!();
    expect((await first).status).toBe(204);
    expect((await slow(request(sent))).status).toBe(204);
  });

  test("refuses what is old, or of a clock that runs ahead", async () => {
    const now = bed.clock.now().getTime();
    expect(await status(bodyOf(card()), { at: new Date(now - 301_000) })).toBe(400);
    expect(await status(bodyOf(card()), { at: new Date(now + 301_000) })).toBe(400);
    const later = message(bodyOf(card()));
    later.headers["webhook-timestamp"] = String(Math.floor(now / 1000) + 1);
    expect((await take(request(later))).status).toBe(401);
  });

  test.each<[string, () => Parameters<typeof status>]>([
    ["only the key for answers signed", () => [bodyOf(card()), { signers: [bed.record.keys.answers] }]],
    ["nobody signed", () => [bodyOf(card()), { signers: [] }]],
    ["says another letter than its card", () => [bodyOf(card(), { to: { ...standing(card()), band: "A" } })]],
    ["is about another endpoint than its card", () => [bodyOf(card(), { capability_id: `cap_${"0".repeat(26)}` })]],
    ["holds a card that was changed", () => [bodyOf({ ...card(), band: "A" }, {})]],
    ["holds a card under the key for answers", () => [bodyOf(signObject(bed.record.keys.answers, cardOf(SUM)))]],
    ["holds no card", () => [bodyOf(card(), { card: null })]],
  ])("refuses a notice that %s", async (_, made) => {
    expect(await status(...made())).toBe(401);
    expect(told).toEqual([]);
  });

  test("refuses a body that was changed on the way", async () => {
    const sent = message(bodyOf(card()));
    const body = Buffer.from(sent.body.toString().replace('"seq":1', '"seq":2'));
    expect((await take(request({ ...sent, body }))).status).toBe(401);
  });

  test("stops watchers that are not ours, and acknowledges kinds that it does not know", async () => {
    expect(await status(bodyOf(card(), { watcher_id: "wat_other" }))).toBe(410);
    expect(await status({ type: "card.moved" })).toBe(204);
    expect(told).toEqual([]);
  });

  test("echoes a challenge that the key for answers signed, and no other", async () => {
    const challenge = { type: "watcher.challenge", challenge: "abc", watcher_id: "wat_1" };
    const [cards, answers] = both();
    const echoed = await take(request(message(challenge, { signers: [answers!] })));
    expect([echoed.status, await echoed.text()]).toEqual([200, "abc"]);
    expect(await status(challenge, { signers: [cards!] })).toBe(401);
    expect(await status({ ...challenge, challenge: 7 }, { signers: [answers!] })).toBe(400);
  });

  test.each([
    ["no headers", {}, "{}"],
    ["no JSON", { "webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1a,AAAA" }, "{"],
    [
      "a signature that is no base64",
      { "webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1a,?" },
      "{}",
    ],
    ["a megabyte", { "webhook-id": "a", "webhook-timestamp": "1" }, "x".repeat(1_000_000)],
  ])("does not understand %s", async (_, headers, body) => {
    const sent = new Request("https://receiver.example/", { method: "POST", headers, body });
    expect((await take(sent)).status).toBe(400);
    expect((await take(new Request("https://receiver.example/"))).status).toBe(405);
  });

  test("remembers a bounded number of ids, the newest", async () => {
    const seen = seenInMemory();
    for (let n = 0; n <= 10_000; n++) {
      expect(await seen.begin(`ntc_${n}`)).toBe("new");
      await seen.end(`ntc_${n}`, true);
    }
    expect([await seen.begin("ntc_10000"), await seen.begin("ntc_0")]).toEqual(["done", "new"]);
  });
});
