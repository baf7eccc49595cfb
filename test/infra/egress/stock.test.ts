import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer as createTcp, type Server } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { pickSource, whyNotBindable } from "../../../infra/egress/address.ts";
import { createEgress, type EgressOptions } from "../../../infra/egress/create.ts";
import type { Egress, EgressRequest } from "../../../infra/egress/egress.ts";
import { certificate } from "./stranger.ts";

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const thing of open.splice(0)) await thing.close();
});
const egressOf = (options: Partial<EgressOptions> = {}): Egress => {
  const egress = createEgress({ allowLoopback: true, userAgent: "touchstone (+https://us.test)", ...options });
  open.push(egress);
  return egress;
};
const portOf = async (server: Server): Promise<number> => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  open.push(server);
  return (server.address() as AddressInfo).port;
};

interface Seen {
  line: string;
  lines: string[];
  from: string | undefined;
}

/** A server, plain or over TLS, that keeps what came, to the letter and in order. */
async function recorder(tls?: { key: string; cert: string }) {
  const seen: Seen[] = [];
  const listener: RequestListener = (request, response) => {
    const { method, url, rawHeaders, httpVersion, socket } = request;
    seen.push({ line: `${method} ${url} ${httpVersion}`, lines: rawHeaders, from: socket.remoteAddress });
    request.resume();
    request.on("end", () => response.end("{}"));
  };
  const server = tls ? createTlsServer(tls, listener) : createServer(listener);
  const port = await portOf(server);
  open.push({ close: () => server.closeAllConnections() });
  return { seen, port, origin: `${tls ? "https" : "http"}://localhost:${port}` };
}

const json = { "Content-Type": "application/json" };
const cases: [method: string, headers: Record<string, string>, body: string | undefined][] = [
  ["GET", {}, undefined],
  ["GET", { accept: "application/json", "PAYMENT-SIGNATURE": "abc" }, undefined],
  ["POST", json, '{"a":1}'],
  ["POST", {}, undefined],
  ["PUT", { ...json, Authorization: "Payment x" }, "{}"],
  ["PATCH", {}, undefined],
  ["DELETE", { "mcp-session-id": "1" }, undefined],
];

describe("a request that looks like a stock client's", () => {
  const trust = process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  let tls: { key: string; cert: string };
  beforeAll(() => {
    tls = certificate("DNS:localhost");
    // For Node's own fetch, which takes no other roots than the process's.
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  });
  afterAll(() => {
    if (trust === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    else process.env.NODE_TLS_REJECT_UNAUTHORIZED = trust;
  });

  it.each(["http", "https"])("over %s is to the letter what Node's own fetch sends", async (scheme) => {
    const { seen, origin } = await recorder(scheme === "https" ? tls : undefined);
    const egress = egressOf({ ca: tls.cert });
    for (const [method, headers, body] of cases) {
      const url = `${origin}/x?q=1`;
      await (await fetch(url, { method, headers, ...(body === undefined ? {} : { body }) })).text();
      const request: EgressRequest = { url, method, headers, profile: "paid", stock: "a" };
      const result = await egress.fetch({ ...request, ...(body === undefined ? {} : { body: Buffer.from(body) }) });
      expect(result.outcome).toBe("answered");
      const [theirs, ours] = seen.splice(0);
      expect(ours).toEqual(theirs);
    }
  });

  it("over TLS says hello as Node's own fetch does", async () => {
    const hellos: Buffer[] = [];
    const port = await portOf(
      createTcp((socket) => {
        socket.on("error", () => {});
        socket.once("data", (bytes) => {
          hellos.push(bytes);
          socket.destroy();
        });
      }),
    );
    const url = `https://localhost:${port}/`;
    await fetch(url).catch(() => {});
    await egressOf().fetch({ url, method: "GET", profile: "paid", stock: "a" });
    const [theirs, ours] = hellos.map(shapeOf);
    expect(ours).toEqual(theirs);
  });

  it("and one that is not says whose it is", async () => {
    const { seen, origin } = await recorder();
    await egressOf().fetch({ url: origin, method: "GET", profile: "paid" });
    expect(seen[0]!.lines).toEqual(expect.arrayContaining(["touchstone (+https://us.test)", "identity"]));
  });
});

/** What a ClientHello (RFC 8446 section 4.1.2) tells of who speaks: all of it but the random parts. */
function shapeOf(hello: Buffer): { ciphers: string; extensions: string[] } {
  let at = 5 + 4 + 2 + 32;
  at += 1 + hello[at]!;
  const ciphers = hello.subarray(at + 2, at + 2 + hello.readUInt16BE(at)).toString("hex");
  at += 2 + hello.readUInt16BE(at);
  at += 1 + hello[at]! + 2;
  const extensions: string[] = [];
  while (at + 4 <= hello.length) {
    const [type, length] = [hello.readUInt16BE(at), hello.readUInt16BE(at + 2)];
    const keyShare = type === 51;
    extensions.push(`${type} ${keyShare ? length : hello.subarray(at + 4, at + 4 + length).toString("hex")}`);
    at += 4 + length;
  }
  return { ciphers, extensions };
}

describe("source addresses", () => {
  const many = ["127.0.0.3", "127.0.0.4", "::1", "127.0.0.5"];

  it("of the other side's family, by the key, and the same one for the same key", () => {
    const picked = Array.from({ length: 64 }, (_, i) => pickSource(many, "192.0.2.1", `key ${i}`)!);
    expect([...new Set(picked)].sort()).toEqual(["127.0.0.3", "127.0.0.4", "127.0.0.5"]);
    expect(Array.from({ length: 64 }, (_, i) => pickSource(many, "192.0.2.1", `key ${i}`))).toEqual(picked);
    expect(pickSource(many, "2001:db8::1", "x")).toBe("::1");
    expect(pickSource(["127.0.0.3"], "2001:db8::1", "x")).toBeUndefined();
    expect(pickSource([], "192.0.2.1", "x")).toBeUndefined();
  });

  it("connections leave from them, apart for what says whose it is and what does not", async () => {
    // Everywhere but on Linux the loopback network has one address.
    const several = (await whyNotBindable("127.0.0.3")) === null;
    const [known, blind] = several ? ["127.0.0.2", "127.0.0.3"] : ["127.0.0.1", "127.0.0.1"];
    const { seen, port } = await recorder();
    const origin = `http://127.0.0.1:${port}/`;
    const egress = egressOf({ sources: { declared: [known], stock: [blind] } });
    for (const stock of [{}, { stock: "a" }, { stock: "b" }, {}]) {
      const result = await egress.fetch({ url: origin, method: "GET", profile: "paid", ...stock });
      expect(result.outcome).toBe("answered");
    }
    expect(seen.map(({ from }) => from)).toEqual([known, blind, blind, known]);
  });

  it("one that this machine lost is our fault and not the stranger's", async () => {
    const { port, seen } = await recorder();
    const egress = egressOf({ sources: { declared: ["192.0.2.77"], stock: [] } });
    const result = await egress.fetch({ url: `http://127.0.0.1:${port}/`, method: "GET", profile: "paid" });
    expect(result).toMatchObject({ outcome: "refused", sent: false, says: expect.stringContaining("our side") });
    expect(result).not.toHaveProperty("reason");
    expect(seen).toEqual([]);
  });

  it("is asked of the system", async () => {
    expect(await whyNotBindable("127.0.0.1")).toBeNull();
    expect(await whyNotBindable("192.0.2.77")).toBe("EADDRNOTAVAIL");
  });
});
