import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, statSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Receiver } from "../../fixtures/receiver.ts";
import { sha256hex } from "../../infra/canonical.ts";
import { createEgress } from "../../infra/egress/create.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { Watchers } from "../../serving/answers/watchers.ts";
import { NO_LOG } from "../../serving/replica/background-log.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { WatcherAnswer, WatcherMade } from "../../serving/schemas/watchers.ts";
import { capOf, listingDraft } from "../helpers/public-record.ts";
import { ManualClock, type TestServing } from "../helpers/serving.ts";
import { deliver, MUL, postJson, readWatcher, SUM, WatcherTestbed, watch } from "../helpers/watchers.ts";

let bed: WatcherTestbed;
let serving: TestServing;
let receiver: Receiver;
beforeAll(async () => {
  bed = await WatcherTestbed.open({ limits: { challenge: { headersMs: 2_000, totalMs: 2_500 } } });
  await bed.card(SUM, { band: "A" });
  serving = await bed.serving();
  receiver = await bed.receiver();
});
afterAll(() => bed.close());
afterEach(() => {
  receiver.echo = (challenge, response) => response.end(challenge);
});

const made = (body: unknown, on = serving) => postJson(on, "/v1/watchers", body);
const problemOf = async (response: Response): Promise<ProblemDocument> => {
  expect(response.headers.get("content-type")).toBe("application/problem+json");
  return ProblemDocument.parse(await response.json());
};

describe("POST /v1/watchers", () => {
  test("a receiver that echoes is a watcher, told once with its token, never kept by anybody", async () => {
    const response = await made({ url: receiver.url, watch: [SUM.url, capOf(MUL), SUM.url] });
    expect([response.status, response.headers.get("cache-control")]).toEqual([201, "no-store"]);
    const answer = WatcherMade.parse(await response.json());
    expect(response.headers.get("location")).toBe(`/v1/watchers/${answer.watcher_id}`);
    expect(answer.watched).toEqual([
      { asked: SUM.url, matched: "exact", capability_ids: [capOf(SUM)] },
      { asked: capOf(MUL), matched: "exact", capability_ids: [capOf(MUL)] },
      { asked: SUM.url, matched: "exact", capability_ids: [capOf(SUM)] },
    ]);
    const [challenge] = receiver.challenges.slice(-1);
    expect(challenge).toMatchObject({ signedBy: ["answers"], body: { watcher_id: answer.watcher_id } });
    expect(Buffer.from(challenge!.body.challenge, "base64url")).toHaveLength(32);
  });

  test("a tool is watched by its name, and the server's url means all of its tools", async () => {
    const server = "https://tools.example/mcp";
    const tools = ["search", "sum"].map((tool) => ({ url: server, method: "POST" as const, tool }));
    const [search, sum] = tools.map(capOf) as [string, string];
    await bed.record.publish(tools.map((tool) => listingDraft(tool)));
    await serving.follower.refresh();
    const unknown = "https://unknown.example/mcp";
    const watched = [`${server}#sum`, `${server}#none`, server, `${unknown}#sum`];
    const response = await made({ url: receiver.url, watch: watched });
    expect(WatcherMade.parse(await response.json()).watched).toEqual([
      { asked: watched[0], matched: "exact", capability_ids: [sum] },
      { asked: watched[1], matched: "none", capability_ids: [capId("POST", server, "none")] },
      { asked: watched[2], matched: "exact", capability_ids: [search, sum].sort() },
      {
        ...{ asked: watched[3], matched: "none" },
        capability_ids: [capId("GET", unknown), capId("POST", unknown), capId("POST", unknown, "sum")],
      },
    ]);
    const many = Array.from({ length: 298 }, (_, i) => ({ ...tools[0]!, tool: `t${i}` }));
    await bed.record.publish(many.map((tool) => listingDraft(tool)));
    await serving.follower.refresh();
    const problem = await problemOf(await made({ url: receiver.url, watch: [SUM.url, server] }));
    expect(problem.errors).toEqual([
      {
        pointer: "/watch/1",
        detail: "makes more than 300 endpoints of one watcher: name the tools of a server as url#tool",
      },
    ]);
  });

  test("the challenge may come back as a member of a JSON object", async () => {
    receiver.echo = (challenge, response) => response.end(JSON.stringify({ challenge, also: 1 }));
    expect((await made({ url: receiver.url, watch: [SUM.url] })).status).toBe(201);
  });

  test.each([
    "whsec_",
    "short",
    `whsec_${"A".repeat(20)}`,
    "A".repeat(100),
    `${"A".repeat(41)}==`,
    `${"é".repeat(32)}`,
  ])("the secret %s is none", async (secret) => {
    const response = await made({ url: receiver.url, watch: [SUM.url], secret });
    expect(response.status).toBe(400);
    expect((await problemOf(response)).errors).toMatchObject([{ pointer: "/secret" }]);
  });

  const drip = (response: ServerResponse): void => {
    response.writeHead(200);
    const timer = setInterval(() => response.write("x"), 20);
    response.on("close", () => clearInterval(timer));
  };
  test.each<[string, Receiver["echo"], RegExp]>([
    ["another text", (_, response) => response.end("no"), /body is not the challenge/],
    ["nothing", (_, response) => response.end(), /body is not the challenge/],
    ["the challenge and more", (text, response) => response.end(`${text}\n`), /body is not the challenge/],
    ["a JSON null", (_, response) => response.end("null"), /body is not the challenge/],
    ["a challenge that is no text", (_, response) => response.end('{"challenge":[1]}'), /body is not the challenge/],
    ["the challenge under another status", (text, response) => response.writeHead(201).end(text), /201/],
    ["an error", (_, response) => response.writeHead(500).end(), /500/],
    [
      "a redirect to a private address",
      (_, response) => response.writeHead(307, { location: "http://10.0.0.1/" }).end(),
      /307/,
    ],
    ["a redirect to itself", (_, response) => response.writeHead(302, { location: "/hook" }).end(), /302/],
    ["too late", (text, response) => void setTimeout(() => response.end(text), 3_000), /within 2000 ms/],
    ["drop by drop", (_, response) => drip(response), /within 2500 ms/],
    ["nothing, ever", () => {}, /within 2000 ms/],
    ["a broken connection", (_, response) => void response.destroy(), /no answer/],
    ["100 MB", (_, response) => void response.end(Buffer.alloc(100 * 1024 ** 2)), /past 4096 bytes/],
    ["4 KiB and a byte", (_, response) => void response.end("x".repeat(4097)), /past 4096 bytes/],
  ])("a receiver that answers %s is a 422 that says so, and nothing is kept", async (_, echo, says) => {
    const before = await bed.told();
    receiver.echo = echo;
    const response = await made({ url: receiver.url, watch: [SUM.url] });
    const problem = await problemOf(response);
    expect([response.status, problem.type, problem.errors?.[0]?.pointer]).toEqual([
      422,
      "/docs/api#receiver-failed",
      "/url",
    ]);
    expect(problem.detail).toMatch(says);
    expect(await bed.told()).toEqual(before);
  });

  test("a port that nobody listens on is a 422", async () => {
    const gone = await bed.receiver();
    const { url } = gone;
    await gone.close();
    expect((await made({ url, watch: [SUM.url] })).status).toBe(422);
  });

  const url = "https://hooks.example/x";
  test.each<[string, unknown, string]>([
    ["no JSON", "{", ""],
    ["no body", undefined, ""],
    ["null", null, "/"],
    ["a list", [], "/"],
    ["no url", { watch: [SUM.url] }, "/url"],
    ["a url that is none", { url: "hooks.example", watch: [SUM.url] }, "/url"],
    ["half a character", { url: "https://hooks.example/x", watch: [`${SUM.url}?\ud800`] }, "/watch/0"],
    ["a url that is a number", { url: 1, watch: [SUM.url] }, "/url"],
    ["nothing to watch", { url }, "/watch"],
    ["an empty list", { url, watch: [] }, "/watch"],
    ["too many", { url, watch: Array.from({ length: 101 }, () => SUM.url) }, "/watch"],
    ["something that is no url", { url, watch: [SUM.url, "not a url"] }, "/watch/1"],
    ["a script", { url, watch: ["javascript:alert(1)"] }, "/watch/0"],
    ["an object", { url, watch: [{ url: SUM.url }] }, "/watch/0"],
    ["an id that the record does not hold", { url, watch: [`cap_${"0".repeat(26)}`] }, "/watch/0"],
    ["a member that is not known", { url, watch: [SUM.url], events: "all" }, "/events"],
    ["a member with a name that a pointer escapes", { url, watch: [SUM.url], "a/b~": 1 }, "/a~1b~0"],
    ["a receiver with a password", { url: "https://u:p@hooks.example/", watch: [SUM.url] }, "/url"],
    ["a receiver that is a file", { url: "file:///etc/passwd", watch: [SUM.url] }, "/url"],
    ["this service itself", { url: "https://touchstone.test/v1/check", watch: [SUM.url] }, "/url"],
  ])("%s is a 400 with its pointer, and nobody is asked", async (_, body, pointer) => {
    const asked = receiver.challenges.length;
    const response = await made(body);
    const problem = await problemOf(response);
    expect([response.status, problem.errors?.[0]?.pointer]).toEqual([400, pointer]);
    expect(receiver.challenges).toHaveLength(asked);
  });

  test("a body past its bound is a 413", async () => {
    expect((await made(" ".repeat(1024 * 1024 + 1))).status).toBe(413);
  });

  test("a log that is down, or that keeps what it was given to itself, is a 503; the token is told to nobody", async () => {
    const { log } = bed;
    const down = { id: "", partitions: 4, bounds: log.bounds.bind(log), read: log.read.bind(log) };
    const refusing = async (): Promise<never> => {
      throw new Error("disk full at /secret/path");
    };
    const forgetful = async (records: readonly { topic: string; partition: number; eventId: string }[]) =>
      records.map(({ topic, partition, eventId }) => ({ topic, partition, eventId, offset: 1_000_000 }));
    for (const append of [refusing, forgetful]) {
      const on = await bed.serving({
        receivers: { egress: bed.egress, allowPlainHttp: true, log: { ...down, append } },
      });
      const response = await made({ url: receiver.url, watch: [SUM.url] }, on);
      expect([response.status, response.headers.get("retry-after")]).toEqual([503, "5"]);
      expect(await response.text()).not.toMatch(/secret|wat_/);
    }
  });

  test("a replica without a log says where to go", async () => {
    const on = await bed.serving({ receivers: { egress: bed.egress, log: NO_LOG, allowPlainHttp: true } });
    const response = await made({ url: receiver.url, watch: [SUM.url] }, on);
    expect([response.status, (await problemOf(response)).detail]).toEqual([
      ...[503, "this replica is read-only; send what is to be recorded to the service itself"],
    ]);
  });
});

describe("in production", () => {
  let production: TestServing;
  beforeAll(async () => {
    const addresses: Record<string, string[]> = { "inside.example": ["10.0.0.1"], "mixed.example": ["1.1.1.1", "::1"] };
    const resolveIn = async (host: string) => addresses[host] ?? [];
    const egress = createEgress({ allowLoopback: false, userAgent: "test", resolve: resolveIn });
    production = await bed.serving({
      validateUrl: (text) => egress.validate(text),
      receivers: { egress, log: bed.log, allowPlainHttp: false },
    });
  });

  test.each([
    ["http://hooks.example/x"],
    ["https://127.0.0.1/x"],
    ["https://[::1]/x"],
    ["https://0x7f000001/x"],
    ["https://169.254.169.254/latest"],
    ["https://localhost/x"],
    ["https://db.internal/x"],
    ["https://hooks.example:8443/x"],
    ["https://single/x"],
  ])("%s is no receiver", async (url) => {
    const response = await made({ url, watch: [SUM.url] }, production);
    expect([response.status, (await problemOf(response)).errors?.[0]?.pointer]).toEqual([400, "/url"]);
  });

  test.each([["https://inside.example/x"], ["https://mixed.example/x"]])(
    "%s leads inside: nobody is asked",
    async (url) => {
      const before = await bed.told();
      const response = await made({ url, watch: [SUM.url] }, production);
      expect([response.status, (await problemOf(response)).detail]).toEqual([
        422,
        expect.stringContaining("no public address"),
      ]);
      expect(await bed.told()).toEqual(before);
    },
  );

  test("an endpoint that is never fetched is not watched, unless the record has it", async () => {
    const response = await made({ url: "https://hooks.example/x", watch: ["http://10.0.0.1/sum"] }, production);
    expect([response.status, (await problemOf(response)).errors?.[0]?.pointer]).toEqual([400, "/watch/0"]);
  });
});

describe("limits", () => {
  test("challenges of one client: refused before the receiver is asked; what was not valid costs nothing", async () => {
    const on = await bed.serving({ limits: { watchers_per_hour: 1 } });
    for (let i = 0; i < 3; i++) expect((await made({ url: receiver.url }, on)).status).toBe(400);
    expect((await made({ url: receiver.url, watch: [SUM.url] }, on)).status).toBe(201);
    const asked = receiver.challenges.length;
    const response = await made({ url: receiver.url, watch: [SUM.url] }, on);
    expect([response.status, response.headers.get("retry-after")]).toEqual([429, "3600"]);
    expect((await problemOf(response)).type).toBe("/docs/api#too-many-requests");
    expect(receiver.challenges).toHaveLength(asked);
  });

  test("watchers of one domain of receivers, whoever made them, until one is stopped; and all of them", async () => {
    const other = await bed.receiver();
    const on = await bed.serving({ limits: { watchers_per_hour: 100, watchers_per_domain: 2 } });
    const [one] = [await watch(serving, other.url, [SUM.url]), await watch(serving, other.url, [SUM.url])];
    const response = await made({ url: other.url, watch: [SUM.url] }, on);
    expect([response.status, (await problemOf(response)).type]).toEqual([429, "/docs/api#too-many-watchers"]);
    await postJson(on, "/v1/watchers/stop", undefined, one.token);
    expect((await made({ url: other.url, watch: [SUM.url] }, on)).status).toBe(201);
    const full = await bed.serving({ limits: { watchers: 1 } });
    expect((await made({ url: receiver.url, watch: [SUM.url] }, full)).status).toBe(429);
  });

  test("a full table: the newest of the network that has most ends for one that has fewer; then the unused first", async () => {
    const own = await WatcherTestbed.open();
    try {
      const to = await own.receiver();
      const on = await own.serving();
      const { log, egress, clock, logger } = own;
      const watchers = new Watchers({
        ...{
          log,
          egress,
          clock,
          logger,
          allowPlainHttp: true,
          ownHost: "touchstone.test",
          signer: own.record.keys.answers,
        },
        ...{ view: () => on.follower.view, validateUrl: (url) => egress.validate(url) },
        limits: { watchers: 3, watchers_per_hour: 100 },
      });
      const make = async (client: string) => (await watchers.create({ url: to.url, watch: [SUM.url] }, client)).watcher;
      const first = await make("192.0.2.1");
      const second = await make("192.0.2.1");
      const third = await make("192.0.2.1");
      await expect(make("192.0.2.1")).rejects.toThrow("nobody has more");
      const other = await make("198.51.100.7");
      expect([third.state, third.why]).toEqual(["stopped", expect.stringContaining("had most")]);
      expect([first.state, second.state, other.state]).toEqual(["active", "active", "active"]);
      await expect(make("198.51.100.7")).rejects.toThrow("nobody has more");
      clock.pass(91 * 86_400_000);
      await make("198.51.100.7");
      expect([first.state, first.why]).toEqual(["stopped", expect.stringContaining("90 days")]);
      const told = JSON.stringify((await own.told()).map(({ body }) => body));
      expect(told).not.toMatch(/192\.0\.2|198\.51/);
    } finally {
      await own.close();
    }
  });

  test("challenges to one domain, from all clients", async () => {
    const on = await bed.serving({ limits: { watchers_per_hour: 100, challenges_per_domain_hour: 1 } });
    const other = await bed.receiver();
    other.echo = (_, response) => response.end("no");
    const statuses = [];
    for (let i = 0; i < 2; i++) statuses.push((await made({ url: other.url, watch: [SUM.url] }, on)).status);
    expect([...statuses, other.challenges.length]).toEqual([422, 429, 1]);
  });
});

describe("the token", () => {
  test("reads the watcher on every replica, with what was delivered and what waits", async () => {
    const other = await bed.receiver();
    const token = await watch(serving, other.url, [MUL.url]);
    const replica = await bed.serving();
    const notifier = bed.notifier();
    await bed.card(MUL, { band: "B", composite: 0.8 });
    await deliver(notifier);
    await bed.card(MUL, { band: "C", composite: 0.6 });
    await replica.follower.refresh();
    const response = await readWatcher(replica, token);
    expect([response.status, response.headers.get("cache-control")]).toEqual([200, "no-store"]);
    const answer = WatcherAnswer.parse(await response.json());
    expect(answer).toMatchObject({
      ...{ watcher_id: token.watcher_id, url: other.url, state: "active", says: null, ended_at: null, failing: null },
      pending: 1,
      endpoints: [{ capability_id: capOf(MUL), last_seq: 1, standing: { band: "B", composite: 0.8 }, pending: 1 }],
    });
    expect(answer.deliveries).toEqual([
      expect.objectContaining({ seq: 1, change: "first", delivered: true, status: 204, attempt: 1, says: null }),
    ]);
    other.answer = 503;
    await deliver(notifier);
    const failing = WatcherAnswer.parse(await (await readWatcher(replica, token)).json());
    expect(failing.failing).toMatchObject({ attempts: 1, says: "answered 503" });
    expect(failing.deliveries[0]).toMatchObject({ seq: 2, delivered: false, status: 503 });
  });

  test("whatever opens nothing is a 401 of one form", async () => {
    const [one, other] = [await watch(serving, receiver.url, [SUM.url]), await watch(serving, receiver.url, [SUM.url])];
    const [id, partition, offset, secret] = one.token.split(".") as [string, string, string, string];
    const bearers = [
      ...["", "Bearer", "Bearer x", `Basic ${one.token}`, `Bearer ${one.token} x`, `Bearer ${other.token}`],
      ...[`Bearer ${id}.${partition}.${offset}.${"A".repeat(43)}`, `Bearer wat_${"0".repeat(26)}.0.0.${secret}`],
      ...[`Bearer ${id}.63.0.${"A".repeat(43)}`, `Bearer ${id}.0.999999999999999.${"A".repeat(43)}`],
    ];
    const texts = new Set<string>();
    for (const authorization of bearers) {
      const response = await serving.get(`/v1/watchers/${id}`, { headers: { authorization } });
      expect([authorization, response.status, response.headers.get("www-authenticate")]).toEqual([
        authorization,
        401,
        "Bearer",
      ]);
      texts.add(await response.text());
      if (authorization !== `Bearer ${other.token}`) {
        const stop = await serving.get("/v1/watchers/stop", { method: "POST", headers: { authorization } });
        expect(stop.status).toBe(401);
      }
    }
    const unknown = await readWatcher(serving, { watcher_id: `wat_${"1".repeat(26)}`, token: one.token });
    texts.add((await unknown.text()).replace(`wat_${"1".repeat(26)}`, id));
    expect(texts.size).toBe(1);
    expect((await readWatcher(serving, { watcher_id: "wat_1", token: one.token })).status).toBe(400);
    expect((await readWatcher(serving, one)).status).toBe(200);
  });

  test("stops the watcher, once and for good; what the body says has to agree", async () => {
    const one = await watch(serving, receiver.url, [SUM.url]);
    const stop = (body?: unknown) => postJson(serving, "/v1/watchers/stop", body, one.token);
    expect((await stop({ watcher_id: `wat_${"0".repeat(26)}` })).status).toBe(401);
    expect((await stop({ id: one.watcher_id })).status).toBe(400);
    expect((await stop("[]")).status).toBe(400);
    const before = (await bed.told()).length;
    const answers = [await stop({ watcher_id: one.watcher_id }), await stop(), await stop({})];
    for (const answer of answers) {
      expect([answer.status, WatcherAnswer.parse(await answer.json()).state]).toEqual([200, "stopped"]);
    }
    expect((await bed.told()).length).toBe(before + 1);
  });

  test("a replica that cannot read so far yet says when to come back", async () => {
    const one = await watch(serving, receiver.url, [SUM.url]);
    const { log } = bed;
    const behind = {
      ...{ id: "", append: log.append.bind(log), bounds: log.bounds.bind(log), partitions: 4 },
      read: async () => [],
    };
    const on = await bed.serving({ receivers: { egress: bed.egress, allowPlainHttp: true, log: behind } });
    const response = await readWatcher(on, one);
    expect([response.status, response.headers.get("retry-after"), (await problemOf(response)).type]).toEqual([
      ...[503, "5", "/docs/api#not-ready"],
    ]);
  });

  test("its secret is in no record, no metric, no file and no line of our own log", async () => {
    const lines: string[] = [];
    const logger = createLogger("trace");
    for (const level of ["warn", "error", "info", "debug"] as const) {
      logger[level] = ((...args: unknown[]) => lines.push(JSON.stringify(args))) as never;
    }
    const on = await bed.serving({ logger });
    const one = await watch(on, receiver.url, [SUM.url]);
    await readWatcher(on, one);
    await readWatcher(on, { ...one, token: `${one.token}x` });
    await postJson(on, "/v1/watchers/stop", undefined, one.token);
    const secret = one.token.split(".").at(-1)!;
    const files = readdirSync(bed.dir, { recursive: true, encoding: "utf8" }).map((file) => join(bed.dir, file));
    const holding = (text: string) =>
      files.filter((file) => statSync(file).isFile()).filter((file) => readFileSync(file).includes(text));
    // Its hash is there, so we looked in the right places.
    expect(holding(sha256hex(secret))).not.toEqual([]);
    expect([
      holding(secret),
      lines.join().includes(secret),
      (await bed.record.metrics.text()).includes(secret),
    ]).toEqual([[], false, false]);
  });
});

describe("receive-notices.mjs", () => {
  const script = resolve(import.meta.dirname, "../../docs/receive-notices.mjs");
  let child: ChildProcess;
  let documents: Server;
  afterEach(async () => {
    child.kill("SIGKILL");
    await once(child, "exit");
    documents.close();
  });

  test("echoes the challenge, takes what is signed once, and refuses everything else", async () => {
    const clock = new ManualClock(new Date().toISOString());
    let asked = 0;
    // The first time the keys are asked for, the service is overloaded.
    documents = createServer((_, response) => {
      const [status, body] = asked++ === 0 ? [503, { status: 503, title: "Unavailable" }] : [200, bed.record.jwks];
      response.writeHead(status as number).end(JSON.stringify(body));
    });
    await new Promise<void>((done) => documents.listen(0, "127.0.0.1", done));
    const keys = `http://127.0.0.1:${(documents.address() as AddressInfo).port}/`;
    child = spawn(process.execPath, [script, keys, "0"], { stdio: ["ignore", "pipe", "inherit"] });
    let out = "";
    child.stdout!.on("data", (chunk) => {
      out += chunk;
    });
    await expect.poll(() => out).toMatch(/on port \d+\n/);
    const port = /on port (\d+)/.exec(out)![1];
    const egress = createEgress({ allowLoopback: true, userAgent: "test" });
    const on = await bed.serving({ clock, receivers: { egress, log: bed.log, allowPlainHttp: true } });
    const url = `http://127.0.0.1:${port}/`;
    const forged = { type: "card.changed", asked: "x", seq: 1, change: "band", from: null, to: { band: "A" } };
    const seconds = String(Math.floor(Date.now() / 1000));
    const headers = { "webhook-id": "ntc_x", "webhook-signature": `v1a,${Buffer.alloc(64).toString("base64")}` };
    const post = (timestamp: string, body = JSON.stringify(forged)) =>
      fetch(url, { method: "POST", body, headers: { ...headers, "webhook-timestamp": timestamp } });
    expect([(await post(seconds)).status, asked]).toEqual([401, 1]);
    const one = await watch(on, url, [SUM.url]);
    await bed.card(SUM, { band: "F" });
    await deliver(bed.notifier({ clock }));
    await expect.poll(() => out).toMatch(/sum #1 band: A -> F/);
    const answer = WatcherAnswer.parse(await (await readWatcher(on, one)).json());
    expect(answer.deliveries[0]).toMatchObject({ delivered: true, status: 204 });
    const long = await post(seconds, " ".repeat(1024 * 1024)).then(
      ({ status }) => status,
      () => "cut off",
    );
    expect([413, "cut off"]).toContain(long);
    expect([(await post(seconds)).status, (await post("1")).status, (await post("x")).status]).toEqual([401, 400, 400]);
    // Whoever sends what is not signed does not make it ask for the keys each time.
    expect(asked).toBe(2);
    expect(out.split("\n").filter((line) => line.includes("->"))).toHaveLength(1);
    expect(await (await on.get("/docs/receive-notices.mjs")).text()).toContain("webhook-signature");
    expect((await on.get("/docs/watchers")).status).toBe(200);
  });
});
