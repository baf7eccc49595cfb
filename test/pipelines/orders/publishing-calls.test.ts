import { createHash } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import type { Log, LogRecord } from "../../../infra/log/log.ts";
import { callToRecord, type Leg, type Order } from "../../../pipelines/orders/order.ts";
import { type OrderLog, StepNotSeen } from "../../../pipelines/orders/order-log.ts";
import {
  createPayerNames,
  createSalts,
  PublishingCalls,
  requestBytes,
} from "../../../pipelines/orders/publishing-calls.ts";
import { callKey, kindOfKey } from "../../../pipelines/published/objects.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { commitmentHash } from "../../../pipelines/record/commitment.ts";
import { readRecord } from "../../../pipelines/record/envelope.ts";
import type { OrderShown } from "../../../serving/schemas/orders.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { capOf } from "../../helpers/public-record.ts";

let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;

const sellerOf = (name: string) => world.sellers.find((one) => one.name === name)!;
const specOf = (name: string) => ({ url: sellerOf(name).urls[0]!, payTo: sellerOf(name).payTo, price: "0.010000" });
const viaOf = (name: string, query: string) =>
  `${service.url}/v1/via/${capOf({ url: sellerOf(name).urls[0]! })}?${query}`;
const sha = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const PUBLISH = { headers: { "touchstone-publish": "true" } };

beforeAll(async () => {
  world = await marketBeside();
  service = await sellingOver(world, [specOf("honest-v2"), specOf("thief")]);
});
afterAll(async () => {
  await service?.close();
  await world?.close();
});

/** Every record of paid calls in the log, copies too. */
async function paidRecords(): Promise<LogRecord[]> {
  const all: LogRecord[] = [];
  for (let partition = 0; partition < service.log.partitions; partition++) {
    const { start, end } = await service.log.bounds("observations.paid", partition);
    for (let at = start; at < end; ) {
      const read = await service.log.read("observations.paid", partition, at);
      all.push(...read);
      at = read.at(-1)!.offset + 1;
    }
  }
  return all;
}
const publishedOf = async (order: string) =>
  (await paidRecords()).flatMap((record) => {
    const read = readRecord(record);
    if (!read.ok || read.envelope.type !== "paid.published") return [];
    const body = read.envelope.body as BodyOf<"paid.published">;
    return body.order === order ? [{ record, envelope: read.envelope, body }] : [];
  });

/** The order behind an answer, once its call stands in the record. */
async function recordedOrder(answer: Response): Promise<Order> {
  const order = service.sales.buying.orders.table.get(answer.headers.get("touchstone-order")!)!;
  const looked = async () => {
    await service.recovering.look();
    return order.recorded;
  };
  await expect.poll(looked, { interval: 200 }).toBe(true);
  return order;
}
const bytesAt = async (sha256: string) => decompress((await service.publicStore.get(callKey(sha256)))!.bytes);

test("a published call enters the record with its bytes, under a name that is not the buyer's", async () => {
  const buyer = await officialBuyer(world);
  const answer = await buyer.fetch(viaOf("honest-v2", "a=20&b=22"), PUBLISH);
  expect(answer.status).toBe(200);
  expect(answer.headers.get("touchstone-salt-request")).toBeNull();
  const came = Buffer.from(await answer.arrayBuffer());
  const order = await recordedOrder(answer);
  const [one, ...more] = await publishedOf(order.id);
  expect(more).toEqual([]);
  const { body, record, envelope } = one!;
  expect(body).toMatchObject({
    pass: true,
    delivered: true,
    delivery: 1,
    price: "0.010000",
    response_sha256: sha(came),
  });
  expect(envelope).toMatchObject({
    cap: capOf({ url: sellerOf("honest-v2").urls[0]! }),
    observed_at: order.legs[0]!.result!.at,
  });
  expect(body.tx).toBe(order.legs[0]!.tx);
  expect(Buffer.from(record.value).toString().toLowerCase()).not.toContain(buyer.address.slice(2));
  expect(await bytesAt(body.response_sha256!)).toEqual(came);
  const asked = await bytesAt(body.request_sha256);
  expect(sha(asked)).toBe(body.request_sha256);
  expect(asked.toString()).toMatch(/^GET http.*a=20&b=22\n$/);
  expect(kindOfKey(callKey(body.request_sha256))).toBe("call");

  const again = await recordedOrder(await buyer.fetch(viaOf("honest-v2", "a=1&b=2"), PUBLISH));
  const other = await recordedOrder(await (await officialBuyer(world)).fetch(viaOf("honest-v2", "a=1&b=2"), PUBLISH));
  const [name, sameName, otherName] = await Promise.all(
    [order, again, other].map(async ({ id }) => (await publishedOf(id))[0]!.body.payer),
  );
  expect(sameName).toBe(name);
  expect(otherName).not.toBe(name);
});

test("a failed call whose seller took the money enters the record too; its buyer is not charged", async () => {
  const answer = await (await officialBuyer(world)).fetch(viaOf("thief", "a=1&b=2"), PUBLISH);
  expect(answer.status).toBe(502);
  const order = await recordedOrder(answer);
  expect(order.charged).toBeNull();
  const [one] = await publishedOf(order.id);
  expect(one!.body).toMatchObject({ pass: false, tx: order.legs[0]!.tx, leg: 0 });
  expect(one!.body.checks.some(({ ok }) => !ok)).toBe(true);
});

test("without the flag two commitments are all, and the salts that the buyer has open them", async () => {
  const buyer = await officialBuyer(world);
  const answer = await buyer.fetch(viaOf("honest-v2", "a=5&b=6"));
  const came = Buffer.from(await answer.arrayBuffer());
  const order = await recordedOrder(answer);
  expect(await publishedOf(order.id)).toEqual([]);
  const shown = (await (await fetch(`${service.url}/v1/orders/${order.id}`)).json()) as OrderShown;
  const salts = {
    request: answer.headers.get("touchstone-salt-request")!,
    response: answer.headers.get("touchstone-salt-response")!,
  };
  expect(shown.salts).toEqual(salts);
  const leg = shown.legs[0]!;
  const asked = Buffer.from(`${leg.method} ${leg.url}\n`);
  const expected = [
    commitmentHash(Buffer.from(salts.request, "hex"), asked),
    commitmentHash(Buffer.from(salts.response, "hex"), came),
  ];
  const texts = (await paidRecords()).map(({ value }) => Buffer.from(value).toString());
  for (const sha256 of expected) expect(texts.filter((text) => text.includes(sha256))).toHaveLength(1);
  for (const text of texts) {
    expect(text).not.toContain(salts.request);
    expect(text).not.toContain(salts.response);
  }
  expect(await service.publicStore.get(callKey(sha(came)))).toBeNull();
  expect(await service.publicStore.get(callKey(sha(asked)))).toBeNull();
});

test("a crash between the record and the last step makes a copy, never a second one", async () => {
  const { orders } = service.sales.buying;
  const order = await recordedOrder(await (await officialBuyer(world)).fetch(viaOf("honest-v2", "a=7&b=8"), PUBLISH));
  const before = await publishedOf(order.id);
  // The order as it stood before the step: whoever finds it so does everything again.
  const found: Order = { ...order, recorded: false };
  const steps: string[] = [];
  const publishing = new PublishingCalls({
    orders: {
      read: orders.read.bind(orders),
      step: async (_order, ...made) => {
        steps.push(...made.map(({ state }) => state));
        throw new StepNotSeen("the log is gone");
      },
    },
    log: service.log,
    publicStore: service.publicStore,
    objects: service.sales.buying.objects,
    nameOf: createPayerNames(Buffer.alloc(32, 9)),
    logger: { warn: () => {}, error: () => {} },
    metrics: { count: () => {} },
  });
  await expect(publishing.record(found)).rejects.toThrow(StepNotSeen);
  expect(steps).toEqual(["recorded"]);
  const after = await publishedOf(order.id);
  expect(after).toHaveLength(2);
  const [first, copy] = after.map(({ record }) => record);
  expect(copy!.eventId).toBe(first!.eventId);
  expect(Buffer.compare(copy!.value, before[0]!.record.value)).toBe(0);
});

/** A publisher of one POST call of {@link BODY} whose objects are these. @returns what it wrote */
function publishingOf(objects: Record<string, Buffer>, movedAt: number) {
  const url = "https://seller.example/";
  const hashes = {
    body_sha256: sha(BODY),
    body_bytes: BODY.length,
    sha256: sha(requestBytes({ method: "POST", url }, BODY)),
  };
  const result = {
    pass: false,
    status: 200,
    sha256: sha(CAME),
    size: CAME.length,
    at: "2026-11-23T12:00:00.000Z",
    checks: [],
  };
  const { legs } = orderWith({}, { leg: 0, result: { ...result, delivered: true, latency_ms: 1, content_type: null } });
  const order = { ...orderWith({ legs, movedAt, id: "ord_0", publish: true, payer: "0xb", intentAt: 1 }) } as Order;
  Object.assign(order.legs[0]!, { cap: capOf({ url }), payTo: "0xs", price: "0.010000", tx: `0x${"1".repeat(64)}` });
  const steps: object[] = [];
  const removed: string[] = [];
  const appended: unknown[] = [];
  const append: Log["append"] = async (records) => {
    appended.push(...records);
    return [];
  };
  const step: OrderLog["step"] = async (of, ...made) => {
    steps.push(...made);
    of.recorded = true;
  };
  const intent = {
    leg: 0,
    network: "eip155:1",
    asset: "0xa",
    request: { url, method: "POST", headers: {}, ...hashes },
  };
  const publishing = new PublishingCalls({
    orders: { read: async () => intent as never, step },
    log: { partitions: 2, append },
    publicStore: service.publicStore,
    objects: {
      get: async (_order, _leg, kind) => objects[kind] ?? null,
      remove: async (_order, leg, kind) => void removed.push(`${leg}.${kind}`),
    },
    nameOf: createPayerNames(Buffer.alloc(32, 9)),
    logger: { warn: () => {}, error: () => {} },
    metrics: { count: () => {} },
  });
  return { record: () => publishing.record(order), order, steps, removed, appended };
}
const BODY = Buffer.from('{"a":20}');
const CAME = Buffer.from('{"sum":1}');

test("a POST is published with its body, out of the objects of its order; then an uncharged order has none", async () => {
  const { record, steps, removed, appended } = publishingOf({ request: BODY, answer: CAME }, Date.now());
  await record();
  expect([appended.length, steps]).toEqual([1, [{ state: "recorded" }]]);
  const asked = requestBytes({ method: "POST", url: "https://seller.example/" }, BODY);
  expect(await bytesAt(sha(asked))).toEqual(asked);
  expect(await bytesAt(sha(CAME))).toEqual(CAME);
  expect(removed).toEqual(["0.request", "0.answer"]);
});

test.each([
  ["the body", { answer: CAME }],
  ["the answer", { request: BODY }],
  ["another body than was sent", { request: Buffer.from("{}"), answer: CAME }],
])("%s is gone: looked for again for a day, then the order ends without a record of its call", async (_, objects) => {
  const young = publishingOf(objects, Date.now() - 86_000_000);
  await expect(young.record()).rejects.toThrow(StepNotSeen);
  const old = publishingOf(objects, Date.now() - 86_401_000);
  await old.record();
  expect([young.steps, old.steps]).toEqual([[], [{ state: "recorded", lost: true }]]);
  expect([young.appended, old.appended]).toEqual([[], []]);
});

const leg = (more: object): Leg =>
  ({ fate: "paid", result: { pass: false }, checked: { pass: false, fault: "seller" }, ...more }) as unknown as Leg;
const orderWith = (more: object, ofLeg: object = {}): Order =>
  ({ state: "released", final: true, recorded: false, legs: [leg(ofLeg)], ...more }) as unknown as Order;
const passed = { result: { pass: true }, checked: { pass: true, fault: null } };

test.each<[string, Order, boolean]>([
  ["failed, the seller has the money", orderWith({}), true],
  ["failed, and sent back to a buyer whom somebody charged", orderWith({ state: "refunded" }), true],
  ["passed, the buyer was charged", orderWith({ state: "settled" }, passed), true],
  ["passed, and nobody paid us", orderWith({ state: "written_off" }, passed), false],
  ["passed, not charged yet", orderWith({ state: "settle_unknown" }, passed), false],
  ["failed, the seller never took it", orderWith({}, { fate: "unpaid" }), false],
  ["failed, the chain is not sure yet", orderWith({}, { fate: "unknown" }), false],
  ["lost by a crash of ours", orderWith({}, { result: null, checked: { pass: false, fault: "ours" } }), false],
  ["on record already", orderWith({ recorded: true }), false],
  ["nothing was bought", orderWith({ legs: [] }), false],
])("%s: goes on record %#", (_name, order, goes) => {
  expect(callToRecord(order) !== null).toBe(goes);
});

test("a request's bytes are what its sha256 is over, and salts are never twice the same", () => {
  const request = { method: "POST" as const, url: "https://a.example/x" };
  expect(requestBytes(request, Buffer.from("{}")).toString()).toBe("POST https://a.example/x\n{}");
  const [a, b] = [createSalts(), createSalts()];
  expect(new Set([a.request, a.response, b.request, b.response]).size).toBe(4);
  expect(createPayerNames(Buffer.alloc(32, 1))("0xAB")).toBe(createPayerNames(Buffer.alloc(32, 1))("0xab"));
  expect(createPayerNames(Buffer.alloc(32, 1))("0xab")).not.toBe(createPayerNames(Buffer.alloc(32, 2))("0xab"));
});
