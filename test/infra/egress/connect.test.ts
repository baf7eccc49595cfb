import { connect, Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { ownRanges, validateUrl } from "../../../infra/egress/address.ts";
import { connectChecked } from "../../../infra/egress/connect.ts";
import { createEgress, type EgressOptions } from "../../../infra/egress/create.ts";
import { type Egress, type EgressRequest, LIMITS } from "../../../infra/egress/egress.ts";
import { certificate, type Stranger, say, stranger } from "./stranger.ts";

const open: (Stranger | Egress)[] = [];
afterEach(async () => {
  for (const thing of open.splice(0)) await thing.close();
});
const serve = async (...args: Parameters<typeof stranger>): Promise<Stranger> => {
  const server = await stranger(...args);
  open.push(server);
  return server;
};
const egressOf = (options: Partial<EgressOptions> = {}): Egress => {
  const egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test", ...options });
  open.push(egress);
  return egress;
};
const get = (url: string, more: Partial<EgressRequest> = {}): EgressRequest => ({
  url,
  method: "GET",
  profile: "handshake",
  ...more,
});

describe("names", () => {
  it("are resolved once, connected by the checked address, and keep Host", async () => {
    const server = await serve(say("200 OK", "hello"));
    const asked: string[] = [];
    const resolve = async (host: string) => {
      asked.push(host);
      return ["127.0.0.1"];
    };
    const result = await egressOf({ resolve }).fetch(get(`http://Shop.Test.:${server.port}/a?b#c`));
    expect(result).toMatchObject({ outcome: "answered", status: 200, remoteAddress: "127.0.0.1" });
    expect(asked).toEqual(["shop.test"]);
    expect(server.received()).toMatch(
      new RegExp(`^GET /a\\?b HTTP/1\\.1\r\nhost: shop\\.test:${server.port}\r\n`, "i"),
    );
  });

  it("rebinding between two fetches: public first, private then, is refused on the second", async () => {
    const server = await serve(say("200 OK"));
    const answers = [["127.0.0.1"], ["10.0.0.1"]];
    const egress = egressOf({ resolve: async () => answers.shift()! });
    const url = `http://rebind.test:${server.port}/`;
    expect((await egress.fetch(get(url))).outcome).toBe("answered");
    expect(await egress.fetch(get(url))).toMatchObject({ outcome: "refused", reason: "address", sent: false });
    expect(server.connections()).toBe(1);
  });

  it("rebinding within a fetch finds no second look-up to lie to", async () => {
    let calls = 0;
    // A public address nobody listens on here, then loopback: whoever asked twice would reach the server.
    const server = await serve(say("200 OK"));
    const resolve = async () => (calls++ === 0 ? ["127.0.0.2"] : ["127.0.0.1"]);
    const result = await egressOf({ resolve }).fetch(get(`http://rebind.test:${server.port}/`));
    expect(result).toMatchObject({ outcome: "transport", sent: false });
    expect([calls, server.connections()]).toEqual([1, 0]);
  });

  it.each([
    ["one bad address among good ones", ["127.0.0.1", "10.0.0.1"]],
    ["a bad one last", ["127.0.0.1", "127.0.0.2", "127.0.0.3", "::ffff:169.254.169.254"]],
    ["metadata through NAT64", ["64:ff9b::a9fe:a9fe"]],
    ["a zone", ["fe80::1%lo"]],
    ["no address at all", ["localhost"]],
  ])("%s condemns the name", async (_, addresses) => {
    const server = await serve(say("200 OK"));
    const result = await egressOf({ resolve: async () => addresses }).fetch(get(`http://x.test:${server.port}/`));
    expect(result).toMatchObject({ outcome: "refused", reason: "address", sent: false, totalMs: 0 });
    expect(server.connections()).toBe(0);
  });

  it("an own address behind a name is refused as that", async () => {
    const egress = egressOf({ resolve: async () => ["9.9.9.9"], ownAddresses: ["9.9.9.0/24"] });
    expect(await egress.fetch(get("http://me.example/"))).toMatchObject({ outcome: "refused", reason: "own_address" });
  });

  it("in production loopback is refused behind a name as well", async () => {
    const server = await serve(say("200 OK"));
    const egress = egressOf({ allowLoopback: false, extraPorts: [server.port], resolve: async () => ["127.0.0.1"] });
    expect(await egress.fetch(get(`http://x.example:${server.port}/`))).toMatchObject({
      outcome: "refused",
      reason: "address",
    });
    expect(server.connections()).toBe(0);
  });

  const failing = (code: string) => async (): Promise<string[]> => {
    throw Object.assign(new Error(code), { code });
  };
  it.each<[string, () => Promise<string[]>, string, RegExp]>([
    ["ENOTFOUND is theirs", failing("ENOTFOUND"), "transport", /does not resolve: ENOTFOUND/],
    ["ESERVFAIL is theirs", failing("ESERVFAIL"), "transport", /ESERVFAIL/],
    ["an empty answer is theirs", async () => [], "transport", /no address/],
    ["our name server is gone: ours", failing("ECONNREFUSED"), "refused", /our side/],
    ["no file handles: ours", failing("EMFILE"), "refused", /our side/],
  ])("%s", async (_, resolve, outcome, says) => {
    const result = await egressOf({ resolve }).fetch(get("http://x.example/"));
    expect(result).toMatchObject({ outcome, sent: false, says: expect.stringMatching(says) });
    expect(result).not.toHaveProperty("reason");
  });

  it("a resolver that never answers ends in time", async () => {
    const egress = egressOf({ resolve: () => new Promise(() => {}), limits: { handshake: { resolveMs: 50 } } });
    const result = await egress.fetch(get("http://x.example/"));
    expect(result).toMatchObject({ outcome: "transport", sent: false, says: expect.stringMatching(/within 50 ms/) });
  });

  it("localhost needs no name server", async () => {
    const server = await serve(say("200 OK"));
    expect(await egressOf().fetch(get(`http://shop.localhost:${server.port}/`))).toMatchObject({
      outcome: "answered",
      remoteAddress: "127.0.0.1",
    });
  });
});

describe("connections", () => {
  it("a literal needs no resolver, IPv6 keeps its brackets in Host", async () => {
    const server = await serve(say("200 OK"), { host: "::1" });
    const resolve = async () => Promise.reject(new Error("asked"));
    const result = await egressOf({ resolve }).fetch(get(`http://[::1]:${server.port}/`));
    expect(result).toMatchObject({ outcome: "answered", remoteAddress: "::1" });
    expect(server.received()).toContain(`host: [::1]:${server.port}\r\n`);
  });

  it("goes on to the second address when the first does not answer", async () => {
    const server = await serve(say("200 OK"));
    const egress = egressOf({ resolve: async () => ["127.0.0.2", "127.0.0.1"] });
    const result = await egress.fetch(get(`http://x.test:${server.port}/`));
    expect(result).toMatchObject({ outcome: "answered", remoteAddress: "127.0.0.1" });
  });

  it("nobody listens: transport, nothing sent", async () => {
    const server = await stranger(say("200 OK"));
    await server.close();
    const result = await egressOf().fetch(get(`${server.origin}/`));
    expect(result).toMatchObject({ outcome: "transport", sent: false, says: expect.stringMatching(/ECONNREFUSED/) });
  });

  it.each([
    ["another public-looking peer", "127.0.0.2"],
    ["the address itself, when it stopped being allowed", "127.0.0.1"],
  ])("a stack that connects elsewhere is found out before the first byte: %s", async (_, address) => {
    const server = await serve(say("200 OK"));
    const loopback = address === "127.0.0.2";
    const rules = { allowLoopback: loopback, own: ownRanges([]), extraPorts: [server.port] };
    const verdict = validateUrl(`http://x.example:${server.port}/`, rules);
    if (!verdict.ok) throw new Error(verdict.says);
    const connected = await connectChecked(verdict.target, {
      rules,
      // In the second row the resolver's word is allowed and the socket's is not.
      resolve: async () => [loopback ? address : "8.8.8.8"],
      limits: LIMITS.handshake,
      signal: new AbortController().signal,
      dial: (_address, port) => connect({ host: "127.0.0.1", port }),
    });
    expect(connected).toMatchObject({
      fault: "refused",
      reason: "address",
      says: expect.stringMatching(/reached 127\.0\.0\.1/),
    });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(server.received()).toBe("");
  });

  it.each<[string, string[], string, RegExp]>([
    ["is no address", ["2600::1"], "transport", /no IPv6/],
    ["does not excuse the IPv4 address", ["2600::1", "9.9.9.9"], "transport", /ECONNREFUSED/],
    ["does not blame a lack of ours at the IPv4 address", ["2600::1", "9.9.9.10"], "ours", /EMFILE/],
    ["that a route lacks to an IPv4 address is ours", ["9.9.9.11"], "ours", /ENETUNREACH/],
  ])("an IPv6 address on a machine without IPv6 %s", async (_, addresses, fault, says) => {
    const codes: Record<string, string> = { "9.9.9.9": "ECONNREFUSED", "9.9.9.10": "EMFILE" };
    const rules = { allowLoopback: false, own: [], extraPorts: [] };
    const verdict = validateUrl("https://x.example/", rules);
    if (!verdict.ok) throw new Error(verdict.says);
    const connected = await connectChecked(verdict.target, {
      rules,
      resolve: async () => addresses,
      limits: LIMITS.handshake,
      signal: new AbortController().signal,
      dial: (address) => {
        const socket = new Socket();
        const code = codes[address] ?? "ENETUNREACH";
        setImmediate(() => socket.destroy(Object.assign(new Error(code), { code })));
        return socket;
      },
    });
    expect(connected).toMatchObject({ fault, says: expect.stringMatching(says) });
  });

  it("a connection that never comes about ends in time", async () => {
    const rules = { allowLoopback: true, own: [], extraPorts: [] };
    const verdict = validateUrl("http://127.0.0.1:9/", rules);
    if (!verdict.ok) throw new Error(verdict.says);
    const connected = await connectChecked(verdict.target, {
      rules,
      resolve: async () => [],
      limits: { ...LIMITS.handshake, connectMs: 60 },
      signal: new AbortController().signal,
      // A socket nobody ever connects.
      dial: () => new Socket(),
    });
    expect(connected).toMatchObject({ fault: "transport", says: expect.stringMatching(/within 60 ms/) });
  });

  it("one connection for one fetch, told so, and closed after it", async () => {
    const server = await serve(say("200 OK", "x"));
    const egress = egressOf();
    await egress.fetch(get(`${server.origin}/1`));
    await egress.fetch(get(`${server.origin}/2`));
    expect(server.connections()).toBe(2);
    expect(server.received().match(/connection: close/gi)).toHaveLength(2);
  });
});

describe("TLS", () => {
  const shop = certificate("DNS:shop.test,IP:127.0.0.1");

  it("keeps SNI and checks the name, over the checked address", async () => {
    let sni: unknown;
    const server = await serve(
      (socket, request) => {
        sni = (socket as unknown as { servername: unknown }).servername;
        say("200 OK", "secret")(socket, request);
      },
      { tls: shop },
    );
    const egress = egressOf({ ca: shop.cert, resolve: async () => ["127.0.0.1"] });
    const result = await egress.fetch(get(`https://shop.test:${server.port}/`));
    expect(result).toMatchObject({ outcome: "answered", status: 200, remoteAddress: "127.0.0.1" });
    expect(sni).toBe("shop.test");
    expect(await egress.fetch(get(`${server.origin}/`))).toMatchObject({ outcome: "answered" });
  });

  it.each<[string, Partial<EgressOptions>, string, RegExp]>([
    ["a certificate of another name", { ca: shop.cert }, "other.test", /ERR_TLS_CERT_ALTNAME_INVALID/],
    ["a certificate that nobody vouches for", {}, "shop.test", /SELF_SIGNED/],
  ])("%s: transport, and not a byte of the request is sent", async (_, options, host, says) => {
    const server = await serve(say("200 OK"), { tls: shop });
    const egress = egressOf({ resolve: async () => ["127.0.0.1"], ...options });
    const result = await egress.fetch(
      get(`https://${host}:${server.port}/`, { method: "POST", headers: { "payment-signature": "money" } }),
    );
    expect(result).toMatchObject({ outcome: "transport", sent: false, says: expect.stringMatching(says) });
    expect(server.received()).toBe("");
  });

  it("a server that speaks no TLS, and one that never answers the hello", async () => {
    const plain = await serve(() => {}, { onConnect: (socket) => socket.write("SSH-2.0-x\r\n") });
    const silent = await serve(() => {});
    const egress = egressOf({ limits: { handshake: { tlsMs: 60 } } });
    for (const server of [plain, silent]) {
      const result = await egress.fetch(get(`https://127.0.0.1:${server.port}/`));
      expect(result).toMatchObject({ outcome: "transport", sent: false, says: expect.stringMatching(/no TLS/) });
    }
  });
});
