import { randomBytes } from "node:crypto";
import { request } from "node:http";
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Serving, serve } from "../../serving/main.ts";
import { cardOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";

const SHARD = `index/shard/${"ab".repeat(32)}.ndjson.zst`;
const CALL = `call/${"cd".repeat(32)}.zst`;
const bytes = randomBytes(2_500_000);

let record: PublicRecord;
let serving: TestServing;
let server: Serving;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    ...Array.from({ length: 300 }, (_, i) => ({ url: `https://s${i}.example/x` })).flatMap((spec) => [
      [listingDraft(spec)],
      record.grades([cardOf(spec)], "B."),
    ]),
  );
  await record.store.create(SHARD, bytes);
  await record.store.create(CALL, bytes.subarray(0, 100));
  serving = await servingOver(record, { limits: { reads_per_minute: 100_000, trusted_proxies: ["127.0.0.1"] } });
  server = await serve({ app: serving.app, port: 0, host: "127.0.0.1", graceMs: 200 });
});
afterAll(async () => {
  await server.close();
  await record.close();
});

const get = (path: string, headers: Record<string, string> = {}) => fetch(server.url + path, { headers });
const bodyOf = async (response: Response) => Buffer.from(await response.arrayBuffer());

describe("Range on what never changes", () => {
  const size = bytes.length;
  test.each<[string, number, number, number]>([
    ["bytes=0-0", 206, 0, 1],
    ["bytes=10-19", 206, 10, 20],
    ["bytes=2499990-", 206, 2_499_990, size],
    ["bytes=-5", 206, size - 5, size],
    ["bytes=-99999999", 206, 0, size],
    ["bytes=100-99999999", 206, 100, size],
    ["bytes=5-4", 200, 0, size],
    ["bytes=0-1,3-4", 200, 0, size],
    ["lines=0-1", 200, 0, size],
    ["bytes=-", 200, 0, size],
  ])("%s: %i, bytes %i to %i", async (range, status, start, end) => {
    const response = await get(`/${SHARD}`, { range });
    expect(response.status).toBe(status);
    expect(response.headers.get("content-length")).toBe(String(end - start));
    expect(response.headers.get("content-range")).toBe(status === 206 ? `bytes ${start}-${end - 1}/${size}` : null);
    expect((await bodyOf(response)).equals(bytes.subarray(start, end))).toBe(true);
  });

  test.each(["bytes=2500000-", "bytes=99999999-100000000", "bytes=-0"])("%s lies outside: 416", async (range) => {
    const response = await get(`/${SHARD}`, { range });
    expect([response.status, response.headers.get("content-range")]).toEqual([416, "bytes */2500000"]);
    expect(response.headers.get("cache-control")).toBe("no-store");
  });

  test("If-Range: the part of these bytes, or the whole of others", async () => {
    const etag = (await get(`/${SHARD}`)).headers.get("etag")!;
    expect((await get(`/${SHARD}`, { range: "bytes=0-9", "if-range": etag })).status).toBe(206);
    expect((await get(`/${SHARD}`, { range: "bytes=0-9", "if-range": '"other"' })).status).toBe(200);
    expect((await get(`/${SHARD}`, { "if-none-match": etag })).status).toBe(304);
  });

  test("headers: immutable, zstd without Content-Encoding", async () => {
    const { headers } = await fetch(`${server.url}/${SHARD}`, { method: "HEAD" });
    expect(Object.fromEntries(headers)).toMatchObject({
      ...{ "content-type": "application/zstd", "cache-control": "public, max-age=31536000, immutable" },
      ...{ "accept-ranges": "bytes", "content-length": String(size) },
    });
    expect(headers.get("content-encoding")).toBeNull();
  });

  test("what a buyer published is an attachment", async () => {
    const { headers } = await get(`/${CALL}`);
    expect([headers.get("content-disposition"), headers.get("x-content-type-options")]).toEqual([
      "attachment",
      "nosniff",
    ]);
  });

  test("a bundle is announced as gzip, and a client unpacks it", async () => {
    const response = await get("/tile/entries/000");
    expect(response.headers.get("content-encoding")).toBe("gzip");
    expect((await bodyOf(response)).readUInt16BE(0)).toBeGreaterThan(100);
  });

  test("the checkpoint has no range and is never kept", async () => {
    const response = await get("/checkpoint", { range: "bytes=0-1" });
    expect([response.status, response.headers.get("cache-control")]).toEqual([200, "no-store"]);
  });
});

describe("streams", () => {
  test("a feed that breaks off on our side does not look whole", async () => {
    const reader = serving.follower.snapshot!.reader;
    const entries = reader.entries.bind(reader);
    let asked = 0;
    reader.entries = (n) => (asked++ === 0 ? entries(n) : Promise.reject(new Error("the disk is gone")));
    try {
      const response = await get("/v1/trust/feed");
      expect(response.status).toBe(200);
      await expect(response.text()).rejects.toThrow();
    } finally {
      reader.entries = entries;
    }
  });

  test("a client that takes nothing stops the reading, one that goes ends it", async () => {
    const { reader } = serving.follower.snapshot!;
    const leaves = reader.leaves.bind(reader);
    let read = 0;
    let ended = false;
    reader.leaves = async function* () {
      const { value } = await leaves(1, 2).next();
      try {
        for (; ; read++) yield value!;
      } finally {
        ended = true;
      }
    };
    try {
      const asked = request({ port: server.port, host: "127.0.0.1", path: "/v1/trust/feed" });
      asked.on("error", () => {});
      asked.end();
      await new Promise((resolve) => asked.once("response", (response) => resolve(response.pause())));
      const still = async () => {
        const before = read;
        await new Promise((resolve) => setTimeout(resolve, 60));
        return before > 0 && read === before;
      };
      await expect.poll(still, { interval: 20 }).toBe(true);
      expect(ended).toBe(false);
      asked.destroy();
      await expect.poll(() => ended).toBe(true);
    } finally {
      reader.leaves = leaves;
    }
  });

  test("zstd and gzip over a socket give the same lines", async () => {
    const plain = await (await get("/v1/trust/feed", { "accept-encoding": "identity" })).text();
    expect(plain.split("\n")).toHaveLength(301);
    expect(await (await get("/v1/trust/feed", { "accept-encoding": "gzip" })).text()).toBe(plain);
  });
});

describe("the socket", () => {
  test.each([
    "/keys/../../private/generation/00000000000000000000",
    "/tile/../../keys/keyring.json",
    "//etc/passwd",
    "/docs/..%2f..%2fREADME",
  ])("a path that climbs reaches nothing: %s", async (path) => {
    const status = await new Promise((resolve, reject) => {
      const asked = request({ port: server.port, host: "127.0.0.1", path }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      asked.on("error", reject);
      asked.end();
    });
    expect(status).toBe(404);
  });

  test("X-Forwarded-For names the client only behind a proxy that we know", async () => {
    const limited = await servingOver(record, { limits: { checks_per_minute: 1, trusted_proxies: ["127.0.0.0/8"] } });
    const open = await servingOver(record, { limits: { checks_per_minute: 1 } });
    const path = checkPath({ url: "https://s1.example/x" });
    for (const [app, second] of [
      [limited.app, 200],
      [open.app, 429],
    ] as const) {
      const own = await serve({ app, port: 0, host: "127.0.0.1" });
      const ask = async (client: string) =>
        (await fetch(own.url + path, { headers: { "x-forwarded-for": client } })).status;
      expect(await ask("203.0.113.1")).toBe(200);
      expect(await ask("203.0.113.2")).toBe(second);
      expect(await ask("203.0.113.1")).toBe(429);
      await own.close();
    }
  });

  test("a port that is taken is named", async () => {
    const second = serve({ app: serving.app, port: server.port, host: "127.0.0.1" });
    await expect(second).rejects.toMatchObject({ code: "port" });
    await expect(second).rejects.toThrow(`port ${server.port} of 127.0.0.1: another process listens there already`);
  });

  test("closing waits for an answer under way, and not for an idle socket", async () => {
    const own = await serve({ app: serving.app, port: 0, host: "127.0.0.1", graceMs: 100_000 });
    await fetch(`${own.url}/livez`);
    const idle = connect(own.port, "127.0.0.1");
    await new Promise((resolve) => idle.once("connect", resolve));
    const { reader } = serving.follower.snapshot!;
    const leaves = reader.leaves.bind(reader);
    let asked = false;
    let goOn = () => {};
    const held = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    reader.leaves = async function* (...range) {
      asked = true;
      await held;
      yield* leaves(...range);
    };
    try {
      const answer = fetch(`${own.url}/v1/trust/feed`).then((response) => response.text());
      await expect.poll(() => asked).toBe(true);
      const begun = performance.now();
      const closing = own.close();
      goOn();
      expect((await answer).split("\n")).toHaveLength(301);
      idle.destroy();
      await closing;
      expect(performance.now() - begun).toBeLessThan(90_000);
    } finally {
      reader.leaves = leaves;
    }
    await expect(fetch(`${own.url}/livez`)).rejects.toThrow();
  });

  test("closing cuts what lasts longer than the grace", async () => {
    const own = await serve({ app: serving.app, port: 0, host: "127.0.0.1", graceMs: 50 });
    const slow = request({ port: own.port, host: "127.0.0.1", path: "/livez", method: "POST" });
    slow.on("error", () => {});
    slow.write("x");
    await new Promise((resolve) => setTimeout(resolve, 30));
    await own.close();
  });
});
