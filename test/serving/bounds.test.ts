import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Limits } from "../../infra/config.ts";
import { createMetrics } from "../../infra/telemetry.ts";
import { Limiter } from "../../serving/http/limits.ts";
import { Problem } from "../../serving/http/problem.ts";
import { Streams } from "../../serving/http/streams.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { capOf, cardOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

/** What one client can hold of ours, tried with real sockets: loopback has a client for each of its addresses. */
const SUM = { url: "https://seller.example/sum" };
const SEGMENT = "segment/7.ndjson.zst";
const MB = 1024 * 1024;
const SEGMENT_MB = 24;
const SEGMENT_BYTES = SEGMENT_MB * MB;
const metrics = createMetrics();

let record: PublicRecord;
const open: { close(): unknown }[] = [];
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM)], "B."));
  await record.store.create(SEGMENT, Buffer.alloc(SEGMENT_BYTES, "x"));
});
afterAll(() => record.close());
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

interface Testbed {
  server: Serving;
  serving: TestServing;
  counter(line: RegExp): Promise<number>;
  /** A socket of the client at this address, 127.0.0.x. */
  socket(text: string, from?: string): Promise<Socket>;
  /** Status line, headers and what came of the body, once that is enough. */
  ask(path: string, from?: string, headers?: string): Promise<{ status: number; head: string; body: string }>;
  /** The first leaf of the record, again and again, at every read of the feed; how many feeds are being read. */
  endless(): Promise<{ reading: () => number; read: () => number }>;
}

async function bed(limits: Partial<Limits>): Promise<Testbed> {
  const serving = await servingOver(record, { metrics, limits: { ...limits, reads_per_minute: 1e6 } });
  const server = await serve({ app: serving.app, port: 0, host: "127.0.0.1", graceMs: 50, limits, metrics });
  open.push(server);
  const before = new Map<string, number>();
  const read = async (line: RegExp) => Number(line.exec(await metrics.text())?.[1] ?? 0);
  for (const line of [...Object.values(CUT), SOCKETS_REFUSED]) before.set(line.source, await read(line));
  const socket = async (text: string, from = "127.0.0.1"): Promise<Socket> => {
    const made = connect({ port: server.port, host: "127.0.0.1", localAddress: from });
    made.on("error", () => undefined);
    open.push({ close: () => made.destroy() });
    await once(made, "connect");
    made.write(text);
    return made;
  };
  const ask: Testbed["ask"] = async (path, from, headers = "") => {
    const asking = await socket(`GET ${path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n${headers}\r\n`, from);
    let text = "";
    for await (const chunk of asking) {
      text += (chunk as Buffer).toString("latin1");
      // An endless feed that should have been refused.
      if (text.length > 2 * SEGMENT_BYTES) break;
    }
    const [head, body] = [text.split("\r\n\r\n", 1)[0]!, text.slice(text.indexOf("\r\n\r\n") + 4)];
    return { status: Number(head.split(" ")[1] ?? 0), head, body };
  };
  const endless: Testbed["endless"] = async () => {
    const { reader } = serving.follower.snapshot!;
    const leaves = reader.leaves.bind(reader);
    const { value } = await leaves(1, 2).next();
    let [reading, read] = [0, 0];
    reader.leaves = async function* () {
      reading++;
      try {
        for (; ; read++) yield value!;
      } finally {
        reading--;
      }
    };
    open.push({
      close: () => {
        reader.leaves = leaves;
      },
    });
    return { reading: () => reading, read: () => read };
  };
  return {
    ...{ server, serving, socket, ask, endless },
    counter: async (line) => (await read(line)) - (before.get(line.source) ?? 0),
  };
}

const CUT = {
  slow_reader: /touchstone_http_sockets_cut_total\{reason="slow_reader"\} (\d+)/,
  slow_writer: /touchstone_http_sockets_cut_total\{reason="slow_writer"\} (\d+)/,
  pipelined: /touchstone_http_sockets_cut_total\{reason="pipelined"\} (\d+)/,
};
const SOCKETS_REFUSED = /touchstone_http_sockets_refused_total\{bound="client"\} (\d+)/;
const STREAMS = /touchstone_http_streams (\d+)/;
const FEED = "GET /v1/trust/feed HTTP/1.1\r\nhost: h\r\naccept-encoding: identity\r\n\r\n";
const isOpen = (socket: Socket): boolean => !socket.destroyed && !socket.readableEnded;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe("a slow reader", () => {
  test("of the whole feed is cut while others are served", async () => {
    const { socket, ask, endless, counter } = await bed({ slow_after_s: 1, min_bytes_per_s: 100_000 });
    const { reading } = await endless();
    const slow = await socket(FEED);
    slow.pause();
    await expect.poll(reading).toBe(1);
    while (reading() === 1) {
      expect((await ask("/livez")).status).toBe(200);
      expect((await ask("/v1/trust/index")).status).toBe(200);
      await pause(20);
    }
    await expect.poll(() => counter(CUT.slow_reader)).toBe(1);
    await expect.poll(() => counter(STREAMS)).toBe(0);
  });

  test("that takes a little now and then is cut too", async () => {
    const { socket, endless, counter } = await bed({ slow_after_s: 1, min_bytes_per_s: 2_000_000 });
    const { reading } = await endless();
    const slow = await socket(FEED);
    slow.pause();
    const sipping = setInterval(() => slow.read(1_000), 50);
    await expect.poll(reading).toBe(1);
    await expect.poll(reading).toBe(0);
    clearInterval(sipping);
    expect(await counter(CUT.slow_reader)).toBe(1);
  });

  test("of many megabytes that takes them in bursts, fast enough on the whole, gets them all", async () => {
    const { socket, counter } = await bed({ slow_after_s: 3, min_bytes_per_s: 8_192 });
    const reader = await socket(`GET /${SEGMENT} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n`);
    let bytes = 0;
    let steps = 0;
    for await (const chunk of reader) {
      bytes += (chunk as Buffer).length;
      // Silent for 200 ms after each of the first megabytes.
      if (bytes > (steps + 1) * 1_000_000 && steps++ < 10) await pause(200);
    }
    expect(bytes).toBeGreaterThan(SEGMENT_BYTES);
    expect(await counter(CUT.slow_reader)).toBe(0);
  });

  test("an idle socket with nothing waiting is no slow one", async () => {
    const { socket, counter } = await bed({ slow_after_s: 0.2, min_bytes_per_s: 1_000_000 });
    const idle = await socket("GET /livez HTTP/1.1\r\nhost: h\r\n\r\n");
    await once(idle, "data");
    await pause(1_000);
    expect(isOpen(idle)).toBe(true);
    expect(await counter(CUT.slow_reader)).toBe(0);
  });
});

describe("a slow writer", () => {
  const post = `POST /v1/trust/${capOf(SUM)}/disputes HTTP/1.1\r\nhost: h\r\n`;

  test("of a body that trickles is told so and cut, long before the request's time is over", async () => {
    const { socket, counter } = await bed({ slow_after_s: 1, min_bytes_per_s: 1_000, request_timeout_s: 300 });
    const slow = await socket(`${post}content-length: 30000\r\n\r\n`);
    let answer = "";
    slow.on("data", (chunk) => {
      answer += chunk.toString();
    });
    const trickle = setInterval(() => slow.write("x"), 50);
    await once(slow, "close");
    clearInterval(trickle);
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
    expect(await counter(CUT.slow_writer)).toBe(1);
    expect(await metrics.text()).not.toMatch(/touchstone_http_requests_total\{[^}]*status="500"\} [1-9]/);
  });

  test("one that is fast enough for the rate is cut when the request's time is over", async () => {
    const { socket } = await bed({ min_bytes_per_s: 0, request_timeout_s: 1, headers_timeout_s: 1 });
    const slow = await socket(`${post}content-length: 30000\r\n\r\n`);
    slow.resume();
    const trickle = setInterval(() => slow.write("x"), 50);
    const began = performance.now();
    await once(slow, "close");
    clearInterval(trickle);
    expect(performance.now() - began).toBeLessThan(20_000);
  });

  test.each([
    ["of headers that trickle", "GET /livez HTTP/1.1\r\nx: "],
    ["of nothing at all", ""],
  ])("%s", async (_, text) => {
    const { socket } = await bed({ headers_timeout_s: 1, request_timeout_s: 2 });
    const slow = await socket(text);
    slow.resume();
    const trickle = setInterval(() => text && slow.write("x"), 50);
    const began = performance.now();
    await once(slow, "close");
    clearInterval(trickle);
    expect(performance.now() - began).toBeLessThan(20_000);
  });

  test("a whole body is none, whatever it waits for", async () => {
    const { socket, counter } = await bed({ slow_after_s: 0.2, min_bytes_per_s: 1_000_000 });
    const sender = await socket(`${post}content-length: 2\r\n\r\n{}`);
    await once(sender, "data");
    await pause(1_000);
    expect(isOpen(sender)).toBe(true);
    expect(await counter(CUT.slow_writer)).toBe(0);
  });
});

describe("sockets", () => {
  test("200 idle ones of one client are bounded, and others get in", async () => {
    const { socket, ask, counter } = await bed({ sockets_per_client: 20, sockets: 100 });
    const idle = await Promise.all(Array.from({ length: 200 }, () => socket("", "127.0.0.2")));
    for (const one of idle) one.resume();
    await expect.poll(() => idle.filter(isOpen).length).toBe(20);
    expect(await counter(SOCKETS_REFUSED)).toBe(180);
    expect((await ask("/livez", "127.0.0.3")).status).toBe(200);
    expect((await ask("/livez", "127.0.0.2")).status).toBe(0);
    idle.find(isOpen)!.destroy();
    await expect.poll(async () => (await ask("/livez", "127.0.0.2")).status).toBe(200);
  });

  test("one that pipelines without taking answers is cut, one that takes them is not", async () => {
    const { socket, serving, counter } = await bed({});
    const head = { key: SEGMENT, size: SEGMENT_BYTES, etag: "x", modifiedAt: new Date(0) };
    let asked = 0;
    // Answers that are never ready: what waits for them is what pipelining would hold.
    serving.deps.store.head = () => {
      asked++;
      return new Promise((resolve) => open.push({ close: () => resolve(head) }));
    };
    open.push({ close: () => Reflect.deleteProperty(serving.deps.store, "head") });
    const request = (path: string): string => `GET ${path} HTTP/1.1\r\nhost: h\r\n\r\n`;
    const hostile = await socket(request(`/${SEGMENT}`).repeat(500));
    hostile.resume();
    await once(hostile, "close");
    expect(asked).toBeLessThanOrEqual(32);
    expect(await counter(CUT.pipelined)).toBe(1);

    const honest = await socket("");
    let answers = 0;
    honest.on("data", (chunk) => {
      answers += chunk.toString("latin1").split("HTTP/1.1 200").length - 1;
    });
    for (let n = 1; n <= 50; n++) {
      honest.write(request("/livez").repeat(16));
      await expect.poll(() => answers, { interval: 1 }).toBe(16 * n);
    }
    expect(await counter(CUT.pipelined)).toBe(1);
  });

  test("of all clients together are bounded", async () => {
    const { socket, ask } = await bed({ sockets_per_client: 20, sockets: 30 });
    const from = async (address: string, of: number): Promise<number> => {
      const idle = await Promise.all(Array.from({ length: 20 }, () => socket("", address)));
      for (const one of idle) one.resume();
      await expect.poll(() => idle.filter(isOpen).length).toBeLessThanOrEqual(of);
      await pause(200);
      return idle.filter(isOpen).length;
    };
    // One client never has more than what it leaves free; the last sockets go to many.
    expect([await from("127.0.0.2", 15), await from("127.0.0.3", 8)]).toEqual([15, 8]);
    expect((await ask("/livez", "127.0.0.4")).status).toBe(200);
    for (let n = 4; n < 11; n++) await from(`127.0.0.${n}`, 4);
    expect((await ask("/livez", "127.0.0.90")).status).toBe(0);
  });

  test("of a trusted proxy are many clients'", async () => {
    const { app } = await servingOver(record);
    const { parseProxies } = await import("../../serving/http/limits.ts");
    const proxies = parseProxies(["127.0.0.0/30"]);
    const server = await serve({
      app,
      port: 0,
      host: "127.0.0.1",
      graceMs: 50,
      limits: { sockets_per_client: 5 },
      proxies,
    });
    open.push(server);
    const from = async (localAddress: string, of: number): Promise<number> => {
      const sockets = Array.from({ length: 50 }, () => connect({ port: server.port, host: "127.0.0.1", localAddress }));
      for (const one of sockets) one.on("error", () => undefined).resume();
      open.push({ close: () => sockets.map((one) => one.destroy()) });
      await Promise.all(sockets.map((one) => once(one, "connect")));
      await expect.poll(() => sockets.filter(isOpen).length).toBeLessThanOrEqual(of);
      await pause(500);
      return sockets.filter(isOpen).length;
    };
    expect([await from("127.0.0.2", 50), await from("127.0.0.9", 5)]).toEqual([50, 5]);
  });
});

describe("streams", () => {
  test("many feeds are bounded for a client and in total, and a place is free again when one ends", async () => {
    const { socket, ask, endless, counter } = await bed({ streams_per_client: 3, streams: 5 });
    const { reading } = await endless();
    const held = await Promise.all(Array.from({ length: 3 }, () => socket(FEED, "127.0.0.2")));
    for (const one of held) one.pause();
    await expect.poll(reading).toBe(3);
    const mine = await ask("/v1/trust/feed", "127.0.0.2");
    expect(mine.head).toMatch(/^HTTP\/1\.1 429 [\s\S]*retry-after: \d+/i);
    expect(ProblemDocument.parse(JSON.parse(mine.body))).toMatchObject({ type: "/docs/api#too-many-requests" });
    // What is short is answered.
    expect((await ask("/livez", "127.0.0.2")).status).toBe(200);
    expect((await ask("/checkpoint", "127.0.0.2")).status).toBe(200);
    expect((await ask(`/${SEGMENT}`, "127.0.0.2")).status).toBe(429);
    expect((await ask(`/${SEGMENT}`, "127.0.0.2", "range: bytes=0-99\r\n")).status).toBe(206);

    const others = await Promise.all(["127.0.0.3", "127.0.0.5"].map((from) => socket(FEED, from)));
    for (const one of others) one.pause();
    await expect.poll(reading).toBe(5);
    const last = await ask("/v1/trust/index", "127.0.0.4");
    expect(last.head).toMatch(/^HTTP\/1\.1 503 [\s\S]*retry-after: \d+/i);
    expect(ProblemDocument.parse(JSON.parse(last.body))).toMatchObject({ type: "/docs/api#unavailable" });

    for (const one of held) one.destroy();
    await expect.poll(reading).toBe(2);
    expect(await counter(STREAMS)).toBe(2);
    expect((await ask("/v1/trust/index", "127.0.0.4")).status).toBe(200);
    expect((await ask(`/${SEGMENT}`, "127.0.0.2")).status).toBe(200);
    expect(await counter(STREAMS)).toBe(2);
  });

  test("pipelined feeds of one socket are counted each", async () => {
    const { socket, endless } = await bed({ streams_per_client: 3, streams: 5 });
    const { reading } = await endless();
    const one = await socket(FEED.repeat(20), "127.0.0.2");
    one.pause();
    await expect.poll(reading).toBe(3);
    await pause(500);
    expect(reading()).toBe(3);
  });

  test("what is sent is charged by its length, and a client that used it up waits", async () => {
    const { ask, serving } = await bed({ stream_mb_per_hour: 2 * SEGMENT_MB });
    const whole = async (from: string) => (await ask(`/${SEGMENT}`, from)).status;
    expect([await whole("127.0.0.2"), await whole("127.0.0.2"), await whole("127.0.0.2")]).toEqual([200, 200, 429]);
    for (const path of [`/${SEGMENT}`, "/v1/trust/feed", "/v1/trust/index", "/checkpoint"]) {
      const refused = await ask(path, "127.0.0.2");
      expect([path, refused.status]).toEqual([path, 429]);
      expect(refused.head).toMatch(/retry-after: \d+/i);
    }
    expect(await whole("127.0.0.3")).toBe(200);
    for (const path of ["/livez", "/", "/v1/archive"]) expect((await ask(path, "127.0.0.2")).status).toBe(200);
    serving.clock.pass(1_800_000);
    expect([await whole("127.0.0.2"), await whole("127.0.0.2")]).toEqual([200, 429]);
  });
});

describe("places among the streams", () => {
  const limits = { streams: 2, streams_per_client: 2, stream_mb_per_hour: 1_000 / MB };
  const reads = async (body: ReadableStream<Uint8Array>): Promise<number> =>
    (await new Response(body).arrayBuffer()).byteLength;
  const chunks = async function* (...sizes: number[]) {
    for (const size of sizes) yield new Uint8Array(size);
  };
  const free = (streams: Streams): number => {
    let n = 0;
    const held: ReadableStream[] = [];
    try {
      for (; n < 10; n++) held.push(streams.stream(`probe ${n}`, chunks()));
    } catch (error) {
      expect(error).toBeInstanceOf(Problem);
    }
    for (const one of held) void one.cancel();
    return n;
  };

  test("are given back at the end, at a failure, and by whoever cancels, read or unread", async () => {
    const streams = new Streams(limits, () => 0);
    expect(await reads(streams.stream("a", chunks(10, 0, 20)))).toBe(30);
    expect(free(streams)).toBe(2);
    const fails = async function* () {
      yield new Uint8Array(1);
      throw new Error("the disk is gone");
    };
    await expect(reads(streams.stream("a", fails()))).rejects.toThrow("the disk is gone");
    expect(free(streams)).toBe(2);
    await streams.stream("a", chunks(1)).cancel();
    expect(free(streams)).toBe(2);
    let ended = false;
    const cut = streams
      .stream(
        "a",
        (async function* () {
          try {
            for (;;) yield new Uint8Array(1);
          } finally {
            ended = true;
          }
        })(),
      )
      .getReader();
    await cut.read();
    expect(free(streams)).toBe(1);
    await cut.cancel();
    expect([free(streams), ended]).toEqual([2, true]);
  });

  test("a long chunk is sent in pieces, and nothing of it is lost", async () => {
    const bytes = Uint8Array.from({ length: 200_000 }, (_, i) => i % 251);
    const sizes: number[] = [];
    const got: Uint8Array[] = [];
    const body = new Streams({ ...limits, stream_mb_per_hour: 1e3 }, () => 0).stream(
      "a",
      (async function* () {
        yield bytes;
      })(),
    );
    for await (const piece of body) {
      sizes.push(piece.length);
      got.push(piece);
    }
    expect(Math.max(...sizes)).toBe(65_536);
    expect(Buffer.concat(got).equals(bytes)).toBe(true);
  });

  test("a client in debt waits until it is paid, another does not", async () => {
    let now = 0;
    const streams = new Streams(limits, () => now);
    expect(await reads(streams.stream("a", chunks(4_000)))).toBe(4_000);
    expect(() => streams.admit("a")).toThrow(Problem);
    expect(() => streams.stream("a", chunks(1))).toThrow("at most 1000 bytes");
    streams.admit("b");
    now = 3 * 3_600_000 - 1_000;
    expect(() => streams.admit("a")).toThrow(Problem);
    now = 3 * 3_600_000 + 4_000;
    streams.admit("a");
  });

  test("the wait that is named is long enough", () => {
    let now = 0;
    const limiter = new Limiter({ name: "bytes", quota: 1_000, windowS: 3_600 }, () => now);
    limiter.charge("a", 5_000);
    const { ok, remaining, resetS } = limiter.take("a", 0);
    expect([ok, remaining]).toEqual([false, 0]);
    now = (resetS - 2) * 1_000;
    expect(limiter.take("a", 0).ok).toBe(false);
    now = resetS * 1_000;
    expect(limiter.take("a", 0).ok).toBe(true);
  });
});
