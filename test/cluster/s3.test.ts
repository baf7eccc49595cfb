import { randomBytes } from "node:crypto";
import { HeadObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { type S3Server, startS3Server } from "../../fixtures/cluster/versitygw.ts";
import { type Fault, type FaultProxy, startFaultProxy } from "../../fixtures/faults/http-proxy.ts";
import { createClient, openS3Store, probeStore } from "../../infra/store/s3/s3.ts";
import { PART_BYTES } from "../../infra/store/s3/write.ts";
import { type Store, StoreDown, StoreUnfit } from "../../infra/store/store.ts";
import { storeContract } from "../infra/store/contract.ts";
import { S3_FAULTS } from "./engine-testbed.ts";

let server: S3Server;
beforeAll(async () => {
  server = await startS3Server();
});
afterAll(() => server.stop());

storeContract("S3", async () => {
  const own = await startS3Server();
  const place = await own.place("contract", "some/folder");
  return { open: () => openS3Store(place), dispose: () => own.stop() };
});

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");

describe("an S3 store beyond the contract", () => {
  it("keeps type, caching and coding for readers of the bucket itself", async () => {
    const place = await server.place("headers");
    const store = await openS3Store(place);
    const meta = { contentType: "text/plain; charset=utf-8", cacheControl: "no-store", contentEncoding: "gzip" };
    await store.create("tile/entries/000", Buffer.from("packed"), meta);
    const client = createClient(place);
    const head = await client.send(new HeadObjectCommand({ Bucket: "headers", Key: "tile/entries/000" }));
    expect([head.ContentType, head.CacheControl, head.ContentEncoding]).toEqual(Object.values(meta));
    client.destroy();
    await store.close();
  });

  it("writes large objects in parts, and only one of two creators", async () => {
    const store = await openS3Store(await server.place("parts"));
    const bytes = randomBytes(2 * PART_BYTES + 12_345);
    const other = Buffer.alloc(bytes.length, 7);
    expect(await store.create("big", bytes)).toEqual({ result: "created" });
    expect(await store.create("big", other)).toEqual({ result: "exists" });
    const { etag } = (await store.head("big"))!;
    expect(await store.swap("big", other, '"1-stale"')).toEqual({ result: "lost" });
    expect(Buffer.from((await store.get("big"))!.bytes).equals(bytes)).toBe(true);
    expect((await store.swap("big", other, etag)).result).toBe("swapped");
    expect(text((await store.getRange("big", PART_BYTES, PART_BYTES + 4))!)).toBe("\u0007\u0007\u0007\u0007");
    await store.close();
  });

  it("lists more than a page", async () => {
    const store = await openS3Store(await server.place("many"), { probe: false });
    const names = Array.from({ length: 1_030 }, (_, i) => `n/${String(i).padStart(5, "0")}`);
    for (let at = 0; at < names.length; at += 50) {
      await Promise.all(names.slice(at, at + 50).map((name) => store.create(name, Buffer.from("x"))));
    }
    expect((await store.list("n/", { limit: 5_000 })).map(({ key }) => key)).toEqual(names);
    await store.close();
  });

  it.each([-5, 5])("is written by a machine whose clock is %i hours off", async (hours) => {
    const place = await server.place(`clock-${hours < 0 ? "behind" : "ahead"}`);
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + hours * 3_600_000 });
    try {
      const store = await openS3Store(place);
      // All of them find out at once.
      const names = ["a", "b", "c", "d"];
      const made = await Promise.all(names.map((name) => store.create(name, Buffer.from(name))));
      expect(made.map(({ result }) => result)).toEqual(names.map(() => "created"));
      expect(await store.create("a", Buffer.from("other"))).toEqual({ result: "exists" });
      expect(text((await store.get("a"))!.bytes)).toBe("a");
      await store.close();
      // Its first request has no body to answer with.
      const reader = await openS3Store(place, { probe: false });
      expect(await reader.head("b")).toMatchObject({ size: 1 });
      await reader.close();
    } finally {
      vi.useRealTimers();
    }
  });

  it("says at start that it is kept out", async () => {
    const place = await server.place("closed");
    await expect(openS3Store({ ...place, secretAccessKey: "wrong" })).rejects.toThrow(StoreUnfit);
    await expect(openS3Store({ ...place, bucket: "nobody-made-this" })).rejects.toThrow();
  });
});

/** A store that says yes to everything, as servers without conditional writes do. */
const careless = (inner: Store, broken: "create" | "swap"): Store => ({
  get: (key) => inner.get(key),
  getRange: (key, start, end) => inner.getRange(key, start, end),
  head: (key) => inner.head(key),
  list: (prefix) => inner.list(prefix),
  delete: (key) => inner.delete(key),
  close: () => inner.close(),
  create: (key, bytes) => (broken === "create" ? Promise.resolve({ result: "created" }) : inner.create(key, bytes)),
  swap: async (key, bytes, expected) =>
    broken === "swap" ? { result: "swapped", etag: "x" } : inner.swap(key, bytes, expected),
});

it.each(["create", "swap"] as const)("a store whose %s asks no condition is refused by the probe", async (broken) => {
  const store = await openS3Store(await server.place(`careless-${broken}`));
  await expect(probeStore(careless(store, broken))).rejects.toThrow(StoreUnfit);
  expect(await store.list("probe/")).toEqual([]);
  await store.close();
});

describe("faults on the way", () => {
  let proxy: FaultProxy;
  let store: Store;
  beforeAll(async () => {
    proxy = await startFaultProxy(server.url);
    store = await openS3Store({ ...(await server.place("faults")), endpoint: proxy.url });
  });
  afterAll(async () => {
    await store.close();
    await proxy.close();
  });
  afterEach(() => {
    proxy.choose = () => null;
  });

  /** This fault for the first request of a method, then none. */
  const once = (method: string, fault: Fault): void => {
    let done = false;
    proxy.choose = (asked) => {
      if (done || asked !== method) return null;
      done = true;
      return fault;
    };
  };

  it.each(S3_FAULTS)("a creation met by '%s' is ours, once, with our bytes", async (fault) => {
    const key = `create/${fault.replaceAll(" ", "-")}`;
    once("PUT", fault);
    expect(await store.create(key, Buffer.from("ours"))).toEqual({ result: "created" });
    expect(text((await store.get(key))!.bytes)).toBe("ours");
  });

  it.each(S3_FAULTS)(
    "a creation met by '%s' that another has won is not ours, though the bytes are the same",
    async (fault) => {
      const key = `lost/${fault.replaceAll(" ", "-")}`;
      await store.create(key, Buffer.from("same"));
      once("PUT", fault);
      expect(await store.create(key, Buffer.from("same"))).toEqual({ result: "exists" });
    },
  );

  it.each(S3_FAULTS)("a swap met by '%s' is done once, and its etag is the newest", async (fault) => {
    const key = `swap/${fault.replaceAll(" ", "-")}`;
    await store.create(key, Buffer.from("0"));
    const { etag } = (await store.head(key))!;
    once("PUT", fault);
    const swapped = await store.swap(key, Buffer.from("1"), etag);
    expect(swapped).toEqual({ result: "swapped", etag: (await store.head(key))!.etag });
    expect(await store.swap(key, Buffer.from("2"), etag)).toEqual({ result: "lost" });
  });

  it.each(S3_FAULTS)("a read met by '%s' gives the whole object or is tried again", async (fault) => {
    const bytes = randomBytes(100_000);
    const key = `read/${fault.replaceAll(" ", "-")}`;
    await store.create(key, bytes);
    once("GET", fault);
    expect(Buffer.from((await store.get(key))!.bytes).equals(bytes)).toBe(true);
    once("GET", fault);
    expect(Buffer.from((await store.getRange(key, 10, 60_000))!).equals(bytes.subarray(10, 60_000))).toBe(true);
  });

  it("a store that stays down is said to be down after a bounded number of tries", async () => {
    proxy.choose = () => "503 before";
    const before = proxy.seen.length;
    await expect(store.create("down", Buffer.from("x"))).rejects.toThrow(StoreDown);
    expect(proxy.seen.length - before).toBe(6);
  });
});
