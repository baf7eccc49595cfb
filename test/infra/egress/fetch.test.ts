import type { Socket } from "node:net";
import { Transform } from "node:stream";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import zlib, { brotliCompressSync, constants, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createEgress, type EgressOptions } from "../../../infra/egress/create.ts";
import {
  type Egress,
  type EgressRequest,
  type EgressResult,
  LIMITS,
  type Limits,
  limitsFor,
} from "../../../infra/egress/egress.ts";
import { fc } from "../../helpers/histories.ts";
import { type Behaviour, type Stranger, say, stranger } from "./stranger.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const MIB = 1024 * 1024;
const open: (Stranger | Egress)[] = [];
afterEach(async () => {
  for (const thing of open.splice(0)) await thing.close();
});
const unhandled: unknown[] = [];
const note = (error: unknown) => unhandled.push(error);
process.on("uncaughtException", note).on("unhandledRejection", note);
afterAll(() => {
  process.off("uncaughtException", note).off("unhandledRejection", note);
  expect(unhandled).toEqual([]);
});

const egressOf = (options: Partial<EgressOptions> = {}): Egress => {
  const egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test", ...options });
  open.push(egress);
  return egress;
};

type Asked = Partial<EgressRequest> & { limits?: Partial<Limits>; onConnect?: (socket: Socket) => void };

/** One fetch from a server that behaves like this. */
async function ask(behave: Behaviour, { limits, onConnect, ...request }: Asked = {}) {
  const server = await stranger(behave, onConnect ? { onConnect } : {});
  open.push(server);
  const profile = request.profile ?? "handshake";
  const egress = egressOf(limits ? { limits: { [profile]: limits } } : {});
  const result = await egress.fetch({ url: `${server.origin}/`, method: "GET", profile, ...request });
  return { result, server };
}

const bodyOf = (result: EgressResult): string => Buffer.from(result.body ?? []).toString();
const write =
  (...parts: (string | Uint8Array)[]): Behaviour =>
  (socket) => {
    for (const part of parts) socket.write(part);
  };
const writeAndEnd =
  (...parts: (string | Uint8Array)[]): Behaviour =>
  (socket) => {
    for (const part of parts) socket.write(part);
    socket.end();
  };
const reset: Behaviour = (socket) => socket.resetAndDestroy();

/** `chunk` again and again until `bytes` or the peer has gone; counts what the peer took. */
function flood(socket: Socket, chunk: Uint8Array, bytes: number): void {
  let left = bytes;
  const more = (): void => {
    while (left > 0 && !socket.destroyed) {
      left -= chunk.length;
      if (!socket.write(chunk)) {
        socket.once("drain", more);
        return;
      }
    }
    socket.end();
  };
  more();
}

describe("a good answer", () => {
  it("comes with status, headers, body, times and the address", async () => {
    const { result } = await ask(say("402 Payment Required\r\nX-A: 1\r\nContent-Type: text/plain", "pay"));
    expect(result).toMatchObject({
      outcome: "answered",
      status: 402,
      headers: { "x-a": "1", "content-type": "text/plain", "content-length": "3" },
      remoteAddress: "127.0.0.1",
    });
    expect(bodyOf(result)).toBe("pay");
    expect(result.headersMs).toBeGreaterThan(0);
    expect(result.totalMs).toBeGreaterThanOrEqual(result.headersMs!);
  });

  it("times count from the first byte out, not from the look-up", async () => {
    const server = await stranger((socket, request) => setTimeout(() => say("200 OK")(socket, request), 60));
    open.push(server);
    let resolved = Number.NaN;
    const resolve = async () => {
      await new Promise((done) => setTimeout(done, 1_000));
      resolved = performance.now();
      return ["127.0.0.1"];
    };
    const url = `http://slow.test:${server.port}/`;
    const result = await egressOf({ resolve }).fetch({ url, method: "GET", profile: "handshake" });
    expect(result.outcome).toBe("answered");
    const since = performance.now() - resolved;
    expect(result.headersMs).toBeGreaterThanOrEqual(58);
    // However long it took on this machine: not more than what had passed since the name was known.
    expect(result.totalMs).toBeLessThanOrEqual(since + 1);
  });

  it.each<[string, Behaviour, string]>([
    ["with a length, the connection left open", say("200 OK", "body"), "body"],
    ["chunked", write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"), "body"],
    ["ended by closing", writeAndEnd("HTTP/1.1 200 OK\r\n\r\nbo", "dy"), "body"],
    ["in HTTP/1.0", writeAndEnd("HTTP/1.0 200 OK\r\n\r\nbody"), "body"],
    ["204", write("HTTP/1.1 204 No Content\r\ncontent-encoding: gzip\r\n\r\n"), ""],
    [
      "after interim answers",
      write("HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"),
      "body",
    ],
    ["gzip that nobody asked for", say("200 OK\r\ncontent-encoding: gzip", gzipSync("body")), "body"],
    ["x-gzip", say("200 OK\r\ncontent-encoding: X-GZIP", gzipSync("body")), "body"],
    ["deflate", say("200 OK\r\ncontent-encoding: deflate", deflateSync("body")), "body"],
    ["deflate without zlib's frame", say("200 OK\r\ncontent-encoding: deflate", deflateRawSync("body")), "body"],
    ["brotli", say("200 OK\r\ncontent-encoding: br", brotliCompressSync("body")), "body"],
    ["an empty body called gzip", say("200 OK\r\ncontent-encoding: gzip"), ""],
    ["an unknown coding stays as sent", say("200 OK\r\ncontent-encoding: snappy", "body"), "body"],
    ["two codings stay as sent", say("200 OK\r\ncontent-encoding: gzip, gzip", "body"), "body"],
    ["what follows the body is not read", write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody, and more"), "body"],
    [
      "a reset after the end changes nothing",
      (s) => s.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody", () => s.resetAndDestroy()),
      "body",
    ],
    [
      "gzip with more behind it",
      write(
        `HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${gzipSync("body").length}\r\n\r\n`,
        gzipSync("body"),
        "and more",
      ),
      "body",
    ],
    [
      "gzip, and zeros after its end, at once and later",
      (socket) => {
        const packed = gzipSync("body");
        socket.write(`HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${packed.length + 12}\r\n\r\n`);
        socket.write(Buffer.concat([packed, Buffer.alloc(4)]), () =>
          setTimeout(() => socket.write(Buffer.alloc(8)), 60),
        );
      },
      "body",
    ],
  ])("%s", async (_, behave, body) => {
    const { result } = await ask(behave);
    expect([result.outcome, bodyOf(result)]).toEqual(["answered", body]);
  });

  it("an empty chunked body called gzip is an empty body", async () => {
    const { result } = await ask(
      write("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    );
    expect([result.outcome, bodyOf(result)]).toEqual(["answered", ""]);
  });

  it("HEAD has no body whatever its length says", async () => {
    const { result } = await ask(write("HTTP/1.1 200 OK\r\ncontent-length: 999\r\ncontent-encoding: gzip\r\n\r\n"), {
      method: "HEAD",
    });
    expect([result.outcome, bodyOf(result)]).toEqual(["answered", ""]);
  });

  it("repeated headers are joined, set-cookie is gone, odd names are only names", async () => {
    const head =
      "A: 1\r\nwww-authenticate: Payment x\r\nSet-Cookie: s=1\r\na: 2\r\nWWW-Authenticate: Payment y\r\n__proto__: p";
    const { result } = await ask(say(`200 OK\r\n${head}`));
    expect(Object.entries(result.headers ?? {})).toEqual([
      ["a", "1, 2"],
      ["www-authenticate", "Payment x, Payment y"],
      ["__proto__", "p"],
      ["content-length", "0"],
    ]);
  });

  it("a redirect is an answer to a handshake, a paid call and a notice", async () => {
    for (const profile of ["handshake", "paid", "notice", "control"] as const) {
      const { result, server } = await ask(say("302 Found\r\nlocation: /elsewhere"), { profile });
      expect(result).toMatchObject({ outcome: "answered", status: 302, headers: { location: "/elsewhere" } });
      expect(server.connections()).toBe(1);
    }
  });
});

describe("what is sent", () => {
  it("is the caller's request, with identity, close and our name, and no hop-by-hop line of the caller's", async () => {
    const { server } = await ask(say("200 OK"), {
      method: "POST",
      body: Buffer.from("{}"),
      headers: {
        "Content-Type": "application/json",
        "PAYMENT-SIGNATURE": "x",
        Host: "evil",
        Connection: "keep-alive",
        "Transfer-Encoding": "chunked",
        "Content-Length": "999",
        "Accept-Encoding": "gzip",
        Expect: "100-continue",
      },
    });
    const [line, ...lines] = server.received().split("\r\n\r\n")[0]!.split("\r\n");
    expect(line).toBe("POST / HTTP/1.1");
    expect(lines.map((text) => text.toLowerCase()).sort()).toEqual(
      [
        "accept-encoding: identity",
        "connection: close",
        "content-length: 2",
        "content-type: application/json",
        `host: 127.0.0.1:${server.port}`,
        "payment-signature: x",
        "user-agent: touchstone-test",
      ].sort(),
    );
    expect(server.received().endsWith("\r\n\r\n{}")).toBe(true);
  });

  it.each<[string, Record<string, string>]>([
    ["CR LF in a value", { a: "1\r\nb: 2" }],
    ["LF in a value", { a: "1\nb: 2" }],
    ["CR in a value", { a: "1\rb" }],
    ["NUL in a value", { a: "1\0" }],
    ["a character past latin1", { a: "\u{20ac}" }],
    ["CR LF in a name", { "a\r\nb": "1" }],
    ["a space in a name", { "a b": "1" }],
    ["a colon in a name", { "a:": "1" }],
    ["an empty name", { "": "1" }],
  ])("%s is refused, and nothing leaves", async (_, headers) => {
    const { result, server } = await ask(say("200 OK"), { headers });
    expect(result).toMatchObject({ outcome: "refused", sent: false });
    expect(result).not.toHaveProperty("reason");
    expect(server.connections()).toBe(0);
  });

  it.each(["CONNECT", "TRACE", "get", "GET / HTTP/1.1\r\nx: y"])("method %j is refused", async (method) => {
    const { result, server } = await ask(say("200 OK"), { method });
    expect([result.outcome, server.connections()]).toEqual(["refused", 0]);
  });
});

const quick = { headersMs: 250, totalMs: 500, windowMs: 60, windowBytes: 10 };
/** One byte each 15 ms. */
const drip =
  (text: string): Behaviour =>
  (socket) => {
    let at = 0;
    const timer = setInterval(() => socket.write(text[at++ % text.length]!), 15);
    socket.on("close", () => clearInterval(timer));
  };
const dripAfter =
  (head: string, text: string): Behaviour =>
  (socket, request) => {
    socket.write(head);
    drip(text)(socket, request);
  };
const CHUNKED = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

describe("a bad answer", () => {
  type Row = [string, Behaviour, Asked, Partial<Extract<EgressResult, { sent: boolean }>> & { text?: string }];
  const rows: Row[] = [
    ["never answers", () => {}, { limits: quick }, { outcome: "timeout", sent: true }],
    ["closes before headers", (s) => s.end(), {}, { outcome: "transport", sent: true }],
    ["resets before headers", reset, {}, { outcome: "transport", sent: true }],
    ["cuts the headers", writeAndEnd("HTTP/1.1 200 OK\r\nx: "), {}, { outcome: "transport", sent: true }],
    ["is no HTTP", write("SSH-2.0-OpenSSH\r\n\r\n"), {}, { outcome: "transport", sent: true }],
    [
      "upgrades",
      write("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
      {},
      { outcome: "transport", sent: true },
    ],
    [
      "two lengths",
      write("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx"),
      {},
      { outcome: "transport", sent: true },
    ],
    [
      "length and chunks at once",
      write("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
      {},
      { outcome: "transport", sent: true },
    ],
    [
      "cut by closing within the length",
      writeAndEnd("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbo"),
      {},
      { outcome: "cut", status: 200, text: "bo", sent: true },
    ],
    [
      "cut between chunks",
      writeAndEnd(`${CHUNKED}2\r\nbo\r\n`),
      {},
      { outcome: "cut", status: 200, text: "bo", sent: true },
    ],
    [
      "a broken chunk",
      write(`${CHUNKED}2\r\nbo\r\nzz\r\n`),
      {},
      { outcome: "cut", status: 200, text: "bo", sent: true },
    ],
    [
      "cut by a reset",
      (s) => s.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbo", () => setTimeout(() => s.resetAndDestroy(), 20)),
      {},
      { outcome: "cut", status: 200, text: "bo", sent: true },
    ],
    [
      "is not the gzip it says",
      say("200 OK\r\ncontent-encoding: gzip", "plain text"),
      {},
      { outcome: "cut", status: 200, text: "", sent: true },
    ],
    [
      "half a gzip",
      say("200 OK\r\ncontent-encoding: gzip", gzipSync("x".repeat(999)).subarray(0, 20)),
      {},
      { outcome: "cut", status: 200, sent: true },
    ],
    [
      "headers byte by byte",
      drip(`HTTP/1.1 200 OK\r\nx: ${"y".repeat(999)}`),
      { limits: quick },
      { outcome: "timeout", sent: true },
    ],
    [
      "body byte by byte (slow loris)",
      dripAfter("HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", "y"),
      { limits: { ...quick, headersMs: 10_000, totalMs: 20_000 } },
      { outcome: "timeout", status: 200, sent: true },
    ],
    [
      "body that stops",
      write("HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\nyy"),
      { limits: { ...quick, headersMs: 10_000, totalMs: 20_000 } },
      { outcome: "timeout", status: 200, text: "yy", sent: true },
    ],
    [
      "body without end, fast enough",
      dripAfter("HTTP/1.1 200 OK\r\n\r\n", "y"),
      { limits: { ...quick, headersMs: 1_500, totalMs: 1_500, windowBytes: 1 } },
      { outcome: "timeout", status: 200, sent: true },
    ],
    [
      "header flood",
      (s) => flood(s, Buffer.from(`x: ${"y".repeat(997)}\r\n`), 50 * MIB),
      { onConnect: (s) => s.write("HTTP/1.1 200 OK\r\n") },
      { outcome: "too_large", sent: true },
    ],
    ["one header of 17 KiB", say(`200 OK\r\nx: ${"y".repeat(17 * 1024)}`), {}, { outcome: "too_large", sent: true }],
    ["many small headers", say(`200 OK\r\n${"a:b\r\n".repeat(4_000)}x: y`), {}, { outcome: "too_large", sent: true }],
    [
      "interim answers for ever",
      (s) => flood(s, Buffer.from("HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n"), 50 * MIB),
      {},
      { outcome: "too_large", sent: true },
    ],
    [
      "trailer flood",
      (s) => {
        s.write(`${CHUNKED}2\r\nbo\r\n0\r\n`);
        flood(s, Buffer.from(`x: ${"y".repeat(997)}\r\n`), 50 * MIB);
      },
      {},
      { outcome: "too_large", status: 200, sent: true },
    ],
    [
      "chunk extensions",
      (s) => {
        s.write(CHUNKED);
        flood(s, Buffer.from(`1;${"y".repeat(999)}\r\nx\r\n`), 50 * MIB);
      },
      {},
      { outcome: "too_large", status: 200, sent: true },
    ],
  ];
  it.each(rows)("%s", async (_, behave, asked, { text, ...wanted }) => {
    const began = performance.now();
    const { result } = await ask(behave, asked);
    const tookMs = performance.now() - began;
    expect(result).toMatchObject(wanted);
    if (text !== undefined) expect(bodyOf(result)).toBe(text);
    if (!("status" in wanted)) expect(result).not.toHaveProperty("status");
    if (result.outcome !== "answered") expect(result.says).not.toBe("");
    expect(result.totalMs).toBeGreaterThan(0);
    expect(result.totalMs).toBeLessThanOrEqual(tookMs);
  });

  it("whenever a peer hangs up around the request: what it got of it was sent", async () => {
    for (let ms = 0; ms < 24; ms++) {
      const { result, server } = await ask(() => {}, {
        onConnect: (socket) => {
          const hangUp = () => (ms % 2 ? socket.end() : socket.resetAndDestroy());
          if (ms < 4) hangUp();
          else setTimeout(hangUp, ms / 8);
        },
      });
      expect(result.outcome).toBe("transport");
      if (server.received() !== "") expect(result).toMatchObject({ sent: true });
    }
  });
});

/** 6 MiB of the same bytes (hex) again and again. */
const blocks = (hex: string): Buffer => Buffer.alloc(6 * MIB - ((6 * MIB) % (hex.length / 2)), Buffer.from(hex, "hex"));

describe("decoders", () => {
  /** Everything that decodes, from its first output on, and how much came out of all of it. */
  const seen = new Set<Transform>();
  let decoded = 0;
  const classes = [zlib.Gunzip, zlib.Inflate, zlib.InflateRaw, zlib.BrotliDecompress] as unknown as {
    prototype: Transform;
  }[];
  const push = Transform.prototype.push;
  beforeAll(() => {
    for (const { prototype } of classes) {
      prototype.push = function (this: Transform, chunk: Uint8Array | null, ...more) {
        seen.add(this);
        decoded += chunk?.length ?? 0;
        return push.call(this, chunk, ...more);
      };
    }
  });
  beforeEach(() => {
    seen.clear();
    decoded = 0;
  });
  afterAll(() => {
    for (const { prototype } of classes) Reflect.deleteProperty(prototype, "push");
  });

  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } };
  const packers: [string, string, (bytes: Uint8Array) => Uint8Array][] = [
    ["gzip", "gzip", gzipSync],
    ["x-gzip", "x-gzip", gzipSync],
    ["deflate", "deflate", deflateSync],
    ["bare deflate", "deflate", deflateRawSync],
    ["br", "br", (bytes) => brotliCompressSync(bytes, quality)],
  ];
  const BOMB = Buffer.alloc(96 * MIB);
  /** Does not pack well, so that half of it packed decodes to something. */
  const PLAIN = Buffer.from(Array.from({ length: 99_999 }, (_, i) => (i * i * 31 + (i >> 5)) & 0xff));
  const half = (packed: Uint8Array): Uint8Array => packed.subarray(0, packed.length >> 1);

  it.each(packers)("%s: nothing is decoded after the result, whatever the end", async (_, coding, pack) => {
    const stop = new AbortController();
    const head = (length: number) =>
      `HTTP/1.1 200 OK\r\ncontent-encoding: ${coding}\r\ncontent-length: ${length}\r\n\r\n`;
    const part = half(pack(PLAIN));
    /** Sends this of a body that does not end there, and goes on once some of it was decoded. */
    const send =
      (packed: Uint8Array, then?: (socket: Socket) => void): Behaviour =>
      (socket) => {
        socket.write(Buffer.concat([Buffer.from(head(99_999_999)), packed]));
        if (then)
          void expect
            .poll(() => decoded)
            .toBeGreaterThan(0)
            .then(() => then(socket));
      };
    const ends: [EgressResult["outcome"], Behaviour, Asked][] = [
      ["too_large", say(`200 OK\r\ncontent-encoding: ${coding}`, pack(BOMB)), {}],
      ["answered", say(`200 OK\r\ncontent-encoding: ${coding}`, pack(PLAIN)), {}],
      ["timeout", send(part), { limits: { totalMs: 2_500 } }],
      ["cut", send(part, (socket) => socket.resetAndDestroy()), {}],
      ["cut", send(part, () => stop.abort()), { signal: stop.signal }],
    ];
    for (const [outcome, behave, asked] of ends) {
      seen.clear();
      decoded = 0;
      const { result } = await ask(behave, asked);
      const atResult = decoded;
      expect(result.outcome).toBe(outcome);
      expect(atResult).toBeGreaterThan(0);
      // The cap, and the one chunk that broke it.
      expect(atResult).toBeLessThanOrEqual(MIB + 16_384);
      expect([...seen].map(({ destroyed }) => destroyed)).toEqual([true]);
      await new Promise((done) => setTimeout(done, 150));
      expect(decoded).toBe(atResult);
    }
  });
});

describe("sizes", () => {
  it("100 MB: the cap is kept, the connection ends, the rest is never taken", async () => {
    let taken = 0;
    const { result } = await ask((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n");
      flood(socket, Buffer.alloc(65_536, 97), 100 * MIB);
      socket.on("close", () => {
        taken = socket.bytesWritten;
      });
    });
    expect(result).toMatchObject({ outcome: "too_large", status: 200, sent: true });
    expect(result.body).toHaveLength(MIB);
    await expect.poll(() => taken).toBeGreaterThan(0);
    expect(taken).toBeLessThan(30 * MIB);
  });

  it.each<[string, (bytes: Uint8Array) => Uint8Array]>([
    ["gzip", gzipSync],
    ["deflate", deflateSync],
    ["br", (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } })],
  ])("a %s bomb of 64 MiB is stopped at the cap of decoded bytes", async (coding, pack) => {
    const bomb = pack(Buffer.alloc(64 * MIB));
    expect(bomb.length).toBeLessThan(100_000);
    // What earlier tests left to the collector would hide what this one takes.
    collect();
    const before = process.memoryUsage().arrayBuffers;
    const { result } = await ask(say(`200 OK\r\ncontent-encoding: ${coding}`, bomb));
    expect(result).toMatchObject({ outcome: "too_large", status: 200 });
    expect(result.body).toHaveLength(MIB);
    // All of it decoded would be 64 MiB; what the collector has not come to yet is no matter.
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(48 * MIB);
  });

  it.each<[string, string, (bytes: Uint8Array) => Uint8Array]>([
    ["gzip, empty stored blocks", "gzip", () => Buffer.concat([gzipSync("").subarray(0, 10), blocks("000000ffff")])],
    ["gzip, empty members", "gzip", () => blocks(gzipSync("").toString("hex"))],
    ["br, empty metadata", "br", () => Buffer.concat([Buffer.from([0b00001100]), blocks("06")])],
  ])("%s: what decodes to nothing ends at the cap of a coded body", async (_, coding, pack) => {
    const { result, server } = await ask(say(`200 OK\r\ncontent-encoding: ${coding}`, pack(new Uint8Array())));
    expect(result).toMatchObject({ outcome: "too_large", status: 200, body: new Uint8Array() });
    expect(result.outcome !== "answered" && result.says).toContain(`more than ${MIB + 65_536} bytes`);
    expect(server.connections()).toBe(1);
  });

  it("one-byte chunks: framing past four times the cap ends it", async () => {
    const { result } = await ask(
      (socket) => {
        socket.write(CHUNKED);
        flood(socket, Buffer.from("1\r\nx\r\n".repeat(5_000)), 50 * MIB);
      },
      { limits: { bodyBytes: 200_000 } },
    );
    expect(result).toMatchObject({ outcome: "too_large", status: 200 });
    expect(result.body!.length).toBeLessThan(200_000);
  });

  const exactly = async (profile: EgressRequest["profile"], size: number, type = "text/plain") => {
    const { result } = await ask(say(`200 OK\r\ncontent-type: ${type}`, Buffer.alloc(size, 97)), { profile });
    return [result.outcome, result.body?.length];
  };
  it.each<[EgressRequest["profile"], number, string]>([
    ["handshake", MIB, "application/pdf"],
    ["control", MIB, "text/plain"],
    ["paid", MIB, "text/plain"],
    ["evidence", 5 * MIB, "text/html"],
    ["evidence", 10 * MIB, "application/pdf"],
    ["notice", 65_536, "text/plain"],
  ])("%s takes %d bytes of its kind and not one more", async (profile, cap, type) => {
    expect(await exactly(profile, cap, type)).toEqual(["answered", cap]);
    expect(await exactly(profile, cap + 1, type)).toEqual(["too_large", cap]);
  });
});

describe("deadlines", () => {
  it("are those of the table", () => {
    const pick = ({ headersMs, totalMs, hops }: Limits) => [headersMs, totalMs, hops];
    expect(pick(LIMITS.handshake)).toEqual([10_000, 20_000, 0]);
    expect(pick(LIMITS.control)).toEqual([10_000, 20_000, 0]);
    expect(pick(LIMITS.evidence)).toEqual([10_000, 20_000, 3]);
    expect(pick(LIMITS.notice)).toEqual([15_000, 15_000, 0]);
    expect(LIMITS.paid.hops).toBe(0);
  });

  it.each<[EgressRequest["profile"], number | undefined, number]>([
    ["paid", 90_000, 90_000],
    ["paid", 500_000, 120_000],
    ["paid", undefined, 30_000],
    ["paid", -1, 0],
    ["handshake", 4_997.66, 4_997],
    ["notice", 10_000, 10_000],
    ["notice", 60_000, 15_000],
    ["handshake", 60_000, 20_000],
  ])("%s asked for %s has %i", (profile, deadlineMs, totalMs) => {
    const request = {
      url: "http://x.example/",
      method: "GET",
      profile,
      ...(deadlineMs !== undefined && { deadlineMs }),
    };
    expect(limitsFor(request, {}).totalMs).toBe(totalMs);
  });

  it("a paid leg may be silent past the headers' deadline of a free one, up to its own", async () => {
    const late: Behaviour = (socket, request) => setTimeout(() => say("200 OK", "done")(socket, request), 250);
    expect((await ask(late, { limits: { headersMs: 100 } })).result.outcome).toBe("timeout");
    expect((await ask(late, { profile: "paid", deadlineMs: 20_000 })).result.outcome).toBe("answered");
    const { result } = await ask(late, { profile: "paid", deadlineMs: 100 });
    expect(result).toMatchObject({ outcome: "timeout", sent: true });
    expect(result.totalMs).toBeGreaterThanOrEqual(98);
  });
});

describe("called off", () => {
  it("before it began: refused, nothing sent", async () => {
    const { result, server } = await ask(say("200 OK"), { signal: AbortSignal.abort() });
    expect(result).toMatchObject({ outcome: "refused", sent: false });
    expect(server.connections()).toBe(0);
  });

  it.each<[string, string, object]>([
    ["while waiting for headers", "", { outcome: "transport", sent: true, says: "called off" }],
    ["in the body", "HTTP/1.1 200 OK\r\n\r\nbo", { outcome: "cut", status: 200, sent: true, says: "called off" }],
  ])("%s", async (_, text, wanted) => {
    const stop = new AbortController();
    const { result } = await ask(
      (socket) => {
        socket.write(text);
        // What was written is read before it is called off, also where both come due at once.
        setTimeout(() => setImmediate(() => setImmediate(() => stop.abort())), 150);
      },
      { signal: stop.signal },
    );
    expect(result).toMatchObject(wanted);
  });

  it("while the name is resolved: refused, nothing sent", async () => {
    const egress = egressOf({ resolve: () => new Promise(() => {}) });
    const request: EgressRequest = { url: "http://x.test/", method: "GET", profile: "handshake" };
    const result = await egress.fetch({ ...request, signal: AbortSignal.timeout(30) });
    expect(result.outcome === "answered" || result.sent).toBe(false);
  });

  it("close ends what is under way and lets nothing new begin", async () => {
    const server = await stranger(() => {});
    open.push(server);
    const egress = createEgress({ allowLoopback: true, userAgent: "t" });
    const request: EgressRequest = { url: `${server.origin}/`, method: "GET", profile: "handshake" };
    const underway = egress.fetch(request);
    await expect.poll(() => server.received()).not.toBe("");
    await egress.close();
    expect(await underway).toMatchObject({ outcome: "transport", sent: true });
    expect(await egress.fetch(request)).toMatchObject({ outcome: "refused", sent: false });
    expect(server.connections()).toBe(1);
  });
});

describe("how many at once", () => {
  it("no more than the bound, all served in turn; past the line's length refused without blame", async () => {
    let most = 0;
    let served = 0;
    const held: (() => void)[] = [];
    const server = await stranger((socket, request) => {
      most = Math.max(
        most,
        held.push(() => say("200 OK")(socket, request)),
      );
      // Three are waited for, and for a fourth that should not come; the last one of all comes alone.
      if (held.length < 3 && served < 9) return;
      setTimeout(() => {
        served += held.length;
        for (const answer of held.splice(0)) answer();
      }, 15);
    });
    open.push(server);
    const egress = egressOf({ maxConcurrent: 3, maxWaiting: 6 });
    const request: EgressRequest = { url: `${server.origin}/`, method: "GET", profile: "handshake" };
    const results = await Promise.all(Array.from({ length: 12 }, () => egress.fetch(request)));
    const outcomes = results.map((result) => result.outcome);
    expect(outcomes).toEqual([...Array(9).fill("answered"), ...Array(3).fill("refused")]);
    expect(results[11]).toMatchObject({ says: expect.stringMatching(/our side/), sent: false });
    expect(results[11]).not.toHaveProperty("reason");
    expect(most).toBe(3);
    expect((await egress.fetch(request)).outcome).toBe("answered");
  });

  it("tarpits in their pools hold up nobody whose places are kept", async () => {
    const tarpit = await stranger(() => {});
    const seller = await stranger(say("200 OK"));
    open.push(tarpit, seller);
    const limits = { handshake: { headersMs: 600_000, totalMs: 600_000 } };
    const egress = egressOf({ maxConcurrent: 40, pools: { asks: 8, paid: 16 }, limits });
    let ended = 0;
    const hang = (pool: string) => {
      const request: EgressRequest = { url: `${tarpit.origin}/`, method: "GET", profile: "handshake", pool };
      return egress.fetch(request).finally(() => ended++);
    };
    const asks = Array.from({ length: 80 }, () => hang("asks"));
    await expect.poll(() => tarpit.connections()).toBe(8);
    const others = Array.from({ length: 80 }, () => hang("handshake"));
    await expect.poll(() => tarpit.connections()).toBe(48);
    const paid = Array.from({ length: 20 }, () =>
      egress.fetch({ url: `${seller.origin}/`, method: "GET", profile: "paid" }),
    );
    for (const result of await Promise.all(paid)) expect(result.outcome).toBe("answered");
    expect([ended, tarpit.connections()]).toEqual([0, 48]);
    await egress.close();
    await Promise.all([...asks, ...others]);
  });

  it("the deadline of each kind holds for its wait for a place too, and a wait is nobody else's lateness", async () => {
    const profiles = ["handshake", "paid", "evidence", "challenge", "notice", "control"] as const;
    const waiting = profiles.map(async (profile) => {
      let answered = false;
      const tarpit = await stranger(() => {});
      const seller = await stranger((socket, request) => {
        setTimeout(() => {
          answered = true;
          say("200 OK")(socket, request);
        }, 3_600);
      });
      open.push(tarpit, seller);
      const limits = { [profile]: { bodyBytes: 1_000 } };
      const egress = egressOf({ pools: { few: 1 }, limits });
      const held = { url: `${tarpit.origin}/`, method: "GET", profile, pool: "few" };
      const asked = { url: `${seller.origin}/`, method: "GET", profile, pool: "few" };
      const first = egress.fetch({ ...held, deadlineMs: 600 });
      // It comes to its place after 600 ms, with room for a machine that stalls, and what is left of its deadline is less
      // than what its answer takes. Counted from its place the deadline would come after the answer.
      const late = await egress.fetch({ ...asked, deadlineMs: 4_000 });
      expect([profile, answered, seller.connections()]).toEqual([profile, false, 1]);
      const says = "not done within 4000 ms";
      expect(late, profile).toMatchObject({ outcome: "timeout", says, loop: { stoodStill: true, atEnd: true } });
      expect(await first, profile).not.toHaveProperty("loop");
      const holding = egress.fetch({ ...held, deadlineMs: 500 });
      const refused = { outcome: "refused", sent: false };
      expect(await egress.fetch({ ...asked, deadlineMs: 200 }), profile).toMatchObject(refused);
      await holding;
    });
    await Promise.all(waiting);
  });

  it("one that is called off in the line gives up its place in it", async () => {
    const server = await stranger((socket, request) => setTimeout(() => say("200 OK")(socket, request), 60));
    open.push(server);
    const egress = egressOf({ maxConcurrent: 1, maxWaiting: 1 });
    const request: EgressRequest = { url: `${server.origin}/`, method: "GET", profile: "handshake" };
    const first = egress.fetch(request);
    const waiting = await egress.fetch({ ...request, signal: AbortSignal.timeout(10) });
    expect(waiting).toMatchObject({ outcome: "refused", says: "called off", sent: false });
    const next = egress.fetch(request);
    expect([(await first).outcome, (await next).outcome]).toEqual(["answered", "answered"]);
    expect(server.connections()).toBe(2);
  });
});

describe("whatever a stranger writes", () => {
  it("ends as a value, within the deadline", async () => {
    let answer = Buffer.alloc(0);
    const server = await stranger((socket) => socket.end(answer));
    open.push(server);
    const egress = egressOf({ limits: { handshake: quick } });
    const piece = fc.oneof(
      fc.constantFrom(
        "HTTP/1.1 200 OK\r\n",
        "\r\n",
        "\r\n\r\n",
        "content-length: 5\r\n",
        "transfer-encoding: chunked\r\n",
      ),
      fc.constantFrom(
        "content-encoding: gzip\r\n",
        "0\r\n\r\n",
        "5\r\nhello\r\n",
        "location: http://\r\n",
        "HTTP/1.1 103 x\r\n\r\n",
      ),
      fc.string({ unit: "binary", maxLength: 20 }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 8 }), async (pieces) => {
        answer = Buffer.from(pieces.join(""), "latin1");
        const result = await egress.fetch({ url: `${server.origin}/`, method: "GET", profile: "handshake" });
        expect(["answered", "transport", "cut", "timeout", "too_large"]).toContain(result.outcome);
        if (result.outcome !== "answered") expect(result.sent).toBe(true);
      }),
      { numRuns: 80 },
    );
  });
});
