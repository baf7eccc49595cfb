import { afterEach, describe, expect, it } from "vitest";
import { createEgress, type EgressOptions } from "../../../infra/egress/create.ts";
import type { Egress, EgressRequest } from "../../../infra/egress/egress.ts";
import { type Stranger, say, stranger } from "./stranger.ts";

const open: (Stranger | Egress)[] = [];
afterEach(async () => {
  for (const thing of open.splice(0)) await thing.close();
});

/** A server whose path says what it does: /to?<location> redirects, /hop/<n> n times to itself, else 200. */
async function maze(options: Partial<EgressOptions> = {}): Promise<{ server: Stranger; egress: Egress }> {
  const server = await stranger((socket, request) => {
    const path = request.split(" ")[1]!;
    const [, status = "302"] = /^\/to(\d*)/.exec(path) ?? [];
    const hop = /^\/hop\/(\d+)/.exec(path);
    const to = path.startsWith("/to") ? decodeURIComponent(path.split("?")[1]!) : hop && `/hop/${Number(hop[1]) - 1}`;
    if (to === null || hop?.[1] === "0") return say("200 OK", `end of ${path}`)(socket, request);
    return say(`${status || 302} Found\r\nlocation: ${to}`, "moved")(socket, request);
  });
  const egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test", ...options });
  open.push(server, egress);
  return { server, egress };
}

const evidence = (url: string, more: Partial<EgressRequest> = {}): EgressRequest => ({
  url,
  method: "GET",
  profile: "evidence",
  ...more,
});

describe("redirects of evidence", () => {
  it.each([1, 2, 3])("%i hops are followed, on connections of their own", async (hops) => {
    const { server, egress } = await maze();
    const result = await egress.fetch(evidence(`${server.origin}/hop/${hops}`));
    expect(result).toMatchObject({ outcome: "answered", status: 200, url: `${server.origin}/hop/0` });
    expect(Buffer.from(result.body!).toString()).toBe("end of /hop/0");
    expect(server.connections()).toBe(hops + 1);
  });

  it("the fourth is not: the redirect is the answer", async () => {
    const { server, egress } = await maze();
    const result = await egress.fetch(evidence(`${server.origin}/hop/4`));
    expect(result).toMatchObject({ outcome: "answered", status: 302, url: `${server.origin}/hop/1` });
    expect(server.connections()).toBe(4);
  });

  it.each([
    [0, 1],
    [1, 2],
    [9, 4],
  ])("a request that allows %i has the redirect after those for its answer", async (hops, connections) => {
    const { server, egress } = await maze();
    const result = await egress.fetch(evidence(`${server.origin}/hop/7`, { hops }));
    expect(result).toMatchObject({ outcome: "answered", status: 302 });
    expect(server.connections()).toBe(connections);
  });

  it.each([301, 302, 303, 307, 308])("%i is one", async (status) => {
    const { server, egress } = await maze();
    const result = await egress.fetch(evidence(`${server.origin}/to${status}?/end`));
    expect(result).toMatchObject({ outcome: "answered", status: 200, url: `${server.origin}/end` });
  });

  it.each([300, 304])("%i is none", async (status) => {
    const { server, egress } = await maze();
    const result = await egress.fetch(evidence(`${server.origin}/to${status}?/end`));
    expect(result).toMatchObject({ outcome: "answered", status });
  });

  it("what is posted is not posted on", async () => {
    const { server, egress } = await maze();
    const result = await egress.fetch(
      evidence(`${server.origin}/to307?/end`, { method: "POST", body: Buffer.from("x") }),
    );
    expect(result).toMatchObject({ outcome: "answered", status: 307 });
    expect(server.connections()).toBe(1);
  });

  it.each<[string, string, string]>([
    ["metadata", "http://169.254.169.254/latest", "address"],
    ["a private literal", "http://10.0.0.1/", "address"],
    ["a decimal one", "http://167772161/", "address"],
    ["another scheme", "file:///etc/passwd", "scheme"],
    ["user info", "http://user@127.0.0.1/", "userinfo"],
    ["no url", "http://[/", "bad_url"],
    ["a local name", "http://printer.local/", "host"],
    ["a name that resolves to a private address", "http://private.test/", "address"],
  ])("each hop is validated: %s", async (_, location, reason) => {
    const { server, egress } = await maze({ resolve: async () => ["10.0.0.1"] });
    const result = await egress.fetch(evidence(`${server.origin}/to?${encodeURIComponent(location)}`));
    expect(result).toMatchObject({ outcome: "refused", reason, sent: true });
    expect(server.connections()).toBe(1);
  });

  it("a name is resolved again at each hop, so rebinding on the way is refused", async () => {
    const answers = [["127.0.0.1"], ["127.0.0.1"], ["192.168.0.1"]];
    const { server, egress } = await maze({ resolve: async () => answers.shift()! });
    const result = await egress.fetch(evidence(`http://rebind.test:${server.port}/hop/3`));
    expect(result).toMatchObject({ outcome: "refused", reason: "address", sent: true });
    expect([server.connections(), answers.length]).toEqual([2, 0]);
  });

  it("payment, authorization, cookies and the body stay with the first host", async () => {
    const { server, egress } = await maze();
    const headers = {
      accept: "text/html",
      authorization: "Payment x",
      cookie: "a=b",
      "payment-signature": "money",
      "x-payment": "money",
      "x-api-key": "key",
    };
    await egress.fetch(evidence(`${server.origin}/hop/1`, { headers, body: Buffer.from("private") }));
    const [first, second] = server.received().split("GET /hop/0 ");
    for (const secret of ["Payment x", "a=b", "money", "x-api-key", "private"]) {
      expect(first).toContain(secret);
      expect(second).not.toContain(secret);
    }
    expect(second).toContain("accept: text/html");
    expect(second).toContain("touchstone-test");
  });

  it("all hops share one deadline, counted from the first byte of the first", async () => {
    const server = await stranger((socket, request) => {
      const hop = () => say("302 Found\r\nlocation: /")(socket, request);
      if (server.connections() === 1) hop();
      else setTimeout(hop, 700);
    });
    const limits = { evidence: { totalMs: 2_000 } };
    const egress = createEgress({ allowLoopback: true, userAgent: "t", limits });
    open.push(server, egress);
    const result = await egress.fetch(evidence(`${server.origin}/`));
    expect(result).toMatchObject({ outcome: "timeout", sent: true });
    // Each hop alone is within the deadline; the first and three more are not.
    expect(server.connections()).toBeGreaterThan(1);
    expect(server.connections()).toBeLessThan(5);
    expect(result.totalMs).toBeGreaterThanOrEqual(1_998);
  });

  it("a dead end after the first hop is transport, and the first hop was sent", async () => {
    const { server, egress } = await maze();
    const gone = await stranger(() => {});
    await gone.close();
    const result = await egress.fetch(evidence(`${server.origin}/to?${encodeURIComponent(gone.origin)}`));
    expect(result).toMatchObject({ outcome: "transport", sent: true });
    expect(result.totalMs).toBeGreaterThan(0);
  });
});
