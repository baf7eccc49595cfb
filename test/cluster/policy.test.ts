import { afterAll, beforeAll, expect, it } from "vitest";
import { prepareBuckets } from "../../commands/buckets.ts";
import { startGateway } from "../../fixtures/cluster/versitygw.ts";
import { sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import { openS3Store } from "../../infra/store/s3/s3.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import type { Order } from "../../pipelines/orders/order.ts";
import { OBJECTS_FOLDER, OrderObjects } from "../../pipelines/orders/order-objects.ts";
import { SourceDown } from "../../pipelines/published/errors.ts";
import { HttpSource, StoreSource } from "../../pipelines/published/open-source.ts";
import { EvidenceBodies } from "../../serving/work/evidence-bodies.ts";

/** The bucket policies of the deployment on a real store with users of its own (infra/deploy/s3). */
const ROOT = { keyId: "root", key: "root-secret" };
const USERS = {
  ...{ publisher: "publisher-secret", owner: "owner-secret", pipeline: "pipeline-secret" },
  seller: "seller-secret",
};
const NAMES = {
  ...{ public: "ts-public", private: "ts-private", orders: "ts-orders" },
  ...{ publisher: "publisher", owner: "owner", pipeline: "pipeline", seller: "seller" },
};

let server: Awaited<ReturnType<typeof startGateway>>;
let url: string;
let missing: string[];

beforeAll(async () => {
  server = await startGateway(ROOT, USERS);
  url = server.url;
  const operator = { endpoint: url, region: "us-east-1", ...ROOT };
  missing = await prepareBuckets(operator, NAMES);
  // Twice is as good as once.
  expect(await prepareBuckets(operator, NAMES)).toEqual(missing);
});

afterAll(() => server.stop());

const open = (user: keyof typeof USERS, bucket: string, probe = true) =>
  openS3Store(
    {
      ...{ bucket, prefix: "", region: "us-east-1", endpoint: url },
      ...{ accessKeyId: user, secretAccessKey: USERS[user] },
    },
    { probe },
  );
const anybody = async (bucket: string, key: string, method = "GET") =>
  (await fetch(`${url}/${bucket}/${key}`, { method, ...(method === "PUT" ? { body: "x" } : {}) })).status;

const SEGMENT = "segment/0.ndjson.zst";
const PARTIAL = "tile/0/000.p/5";
const RUN = "runs/00000000000000000001";

it("the publisher passes the probe, writes what is public, and deletes only what expires", async () => {
  const store = await open("publisher", NAMES.public);
  for (const key of [SEGMENT, PARTIAL, "checkpoint", "live/0.1.arrow"]) {
    expect(await store.create(key, Buffer.from(key))).toEqual({ result: "created" });
  }
  const head = (await store.head("checkpoint"))!;
  expect(await store.swap("checkpoint", Buffer.from("next"), head.etag)).toMatchObject({ result: "swapped" });
  expect((await store.list("tile/")).map(({ key }) => key)).toEqual([PARTIAL]);
  await expect(store.create(RUN, Buffer.from("x"))).rejects.toThrow();
  for (const key of [SEGMENT, "checkpoint"]) await expect(store.delete(key)).rejects.toThrow();
  await store.delete(PARTIAL);
  await store.delete("live/0.1.arrow");
  expect(await store.head(PARTIAL)).toBeNull();
  expect(await store.head(SEGMENT)).not.toBeNull();
  await store.close();
});

it("a selling replica keeps, reads and removes what bought calls hold, and nobody else comes near it", async () => {
  const store = await open("seller", NAMES.orders);
  const objects = new OrderObjects(store, { count: () => {} });
  const order = { id: `ord_${"0".repeat(26)}`, createdAt: "2026-11-01T00:00:00.000Z" } as Order;
  const bytes = Buffer.from('{"sum":42}');
  const named = { sha256: sha256hex(bytes), size: bytes.length };
  await objects.put(order, 0, "answer", bytes);
  await objects.put(order, 0, "answer", bytes);
  const again = await open("seller", NAMES.orders);
  expect(await new OrderObjects(again, { count: () => {} }).get(order, 0, "answer", named)).toEqual(bytes);
  const [kept] = await again.list(OBJECTS_FOLDER);
  expect(kept).toMatchObject({ size: bytes.length });
  expect(await anybody(NAMES.orders, kept!.key)).toBe(403);
  for (const user of ["publisher", "owner", "pipeline"] as const)
    await expect(open(user, NAMES.orders), user).rejects.toThrow();
  await expect(open("seller", NAMES.private)).rejects.toThrow();
  await objects.remove(order, 0, "answer");
  await objects.remove(order, 0, "answer");
  expect(await objects.get(order, 0, "answer", named)).toBeNull();
  await store.close();
  await again.close();
});

it("a selling replica keeps fetched bodies, and publishes calls into the public bucket and nothing else there", async () => {
  const store = await open("seller", NAMES.orders);
  const bodies = new EvidenceBodies({
    ...{ store, clock: systemClock, logger: createLogger("silent"), metrics: createMetrics() },
  });
  const { id } = await bodies.keep(Buffer.from("a page"));
  expect(await bodies.read(id)).toEqual(Buffer.from("a page"));
  await store.close();
  const publicStore = await open("seller", NAMES.public);
  const call = `call/${"ab".repeat(32)}.zst`;
  expect(await publicStore.create(call, Buffer.from("a call"))).toEqual({ result: "created" });
  for (const key of ["segment/2.ndjson.zst", "checkpoint", "live/2.1.arrow", "archive/y.json"])
    await expect(publicStore.create(key, Buffer.from("x")), key).rejects.toThrow();
  for (const key of [call, SEGMENT]) await expect(publicStore.delete(key), key).rejects.toThrow();
  await publicStore.close();
});

it("owners pass the probe, write their tables and evidence, and can neither publish nor take anything away", async () => {
  const store = await open("owner", NAMES.public);
  const theirs = ["live/1.1.arrow", "evidence/2026-11-01/00.0123456789abcdef.ndjson.zst"];
  for (const key of theirs) expect(await store.create(key, Buffer.from(key))).toEqual({ result: "created" });
  const view = "live/view.json";
  expect(await store.swap(view, Buffer.from("{}"), null)).toMatchObject({ result: "swapped" });
  expect((await store.list("live/")).map(({ key }) => key)).toEqual(["live/1.1.arrow", view]);
  for (const key of ["segment/1.ndjson.zst", "archive/x.json", "tile/0/001", "keys/9.json", "hint/index.json"]) {
    await expect(store.create(key, Buffer.from("x")), key).rejects.toThrow();
  }
  const head = (await store.head("checkpoint"))!;
  await expect(store.swap("checkpoint", Buffer.from("forged"), head.etag)).rejects.toThrow();
  for (const key of [...theirs, "checkpoint"]) await expect(store.delete(key), key).rejects.toThrow();
  expect(String(Buffer.from((await store.get("checkpoint"))!.bytes))).toBe("next");
  await store.close();
  await expect(open("owner", NAMES.private)).rejects.toThrow();
});

it("anybody reads what is public, as a mirror does, and writes or lists nothing", async () => {
  const source = new HttpSource(`${url}/${NAMES.public}`, { clock: systemClock });
  expect(String(Buffer.from((await source.get(SEGMENT, 1_000))!))).toBe(SEGMENT);
  await source.close();
  expect(await anybody(NAMES.public, "checkpoint")).toBe(200);
  for (const method of ["PUT", "DELETE"]) expect(await anybody(NAMES.public, SEGMENT, method)).toBe(403);
  expect(await anybody(NAMES.public, "")).toBe(403);
});

it("what is missing is missing to whoever reads and may not list, and a bucket that is closed is not empty", async () => {
  // Amazon refuses both; this store has 404 for what is missing where anybody may read, and 403 where nobody may.
  expect([403, 404]).toContain(await anybody(NAMES.public, "index/9.json"));
  expect(await anybody(NAMES.public, RUN)).toBe(403);
  const missing = ["index/9.json", "tile/1/007", "segment/9.ndjson.zst", RUN];
  const source = new HttpSource(`${url}/${NAMES.public}`, { clock: systemClock });
  for (const key of missing) expect(await source.get(key, 100), key).toBeNull();
  expect(String(Buffer.from((await source.get(SEGMENT, 100))!))).toBe(SEGMENT);
  await source.close();
  // Credentials that nothing was given to are anybody's.
  const other = new StoreSource("s3://public", await open("pipeline", NAMES.public, false));
  for (const key of missing) expect(await other.get(key, 100), key).toBeNull();
  expect(String(Buffer.from((await other.get(SEGMENT, 100))!))).toBe(SEGMENT);
  await other.close();
  const closed = new HttpSource(`${url}/${NAMES.private}`, { clock: systemClock });
  for (const key of ["checkpoint", RUN]) await expect(closed.get(key, 100)).rejects.toThrow(SourceDown);
  await closed.close();
});

it("the private bucket opens for the pipeline alone, and each has its own credentials only", async () => {
  const store = await open("pipeline", NAMES.private);
  expect(await store.create(RUN, Buffer.from("run"))).toEqual({ result: "created" });
  expect(await store.create("lake/1/asks/0/data/a.parquet", Buffer.from("x"))).toEqual({ result: "created" });
  await expect(store.delete(RUN)).rejects.toThrow();
  const commit = "lake/1/asks/0/commit/00000000000000000001.json";
  expect(await store.create(commit, Buffer.from("{}"))).toEqual({ result: "created" });
  await expect(store.delete(commit)).rejects.toThrow();
  await store.delete("lake/1/asks/0/data/a.parquet");
  const said = "owners/archive/00";
  expect(await store.create(said, Buffer.from("x"))).toEqual({ result: "created" });
  await expect(store.delete(said)).rejects.toThrow();
  await store.close();
  expect(await anybody(NAMES.private, RUN)).toBe(403);
  await expect(open("publisher", NAMES.private)).rejects.toThrow();
  await expect(open("pipeline", NAMES.public)).rejects.toThrow();
});

it("what this store does not have is told", () => {
  for (const what of missing) expect(what).toMatch(/^(?:access block|lifecycle) of ts-(?:public|private|orders)$/);
});
