import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { brotliCompressSync } from "node:zlib";
import { afterAll, afterEach, expect, it, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress, EgressRequest, EgressResult } from "../../../infra/egress/egress.ts";
import { createEgressThread, type ThreadOptions } from "../../../infra/egress/thread.ts";
import { ownLoop } from "../../../infra/loop-watch.ts";
import { type Behaviour, type Stranger, say, stranger } from "./stranger.ts";

const OPTIONS: ThreadOptions = {
  allowLoopback: true,
  userAgent: "touchstone-test",
  limits: { challenge: { headersMs: 300, totalMs: 300 } },
};
const here = createEgress({ ...OPTIONS, loop: ownLoop });
const thread = createEgressThread(OPTIONS);
const open: (Stranger | Egress)[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});
afterAll(async () => {
  await here.close();
  await thread.close();
});

const MIB = 1024 * 1024;
/** Two fetches of the same never take the same time, nor come to it at the same source, nor find this machine as busy. */
const untimed = ({ totalMs, headersMs, body, loop: _, ...rest }: EgressResult & { headersMs?: number }) => ({
  ...rest,
  body: body && sha256hex(body),
  timed: [Number.isFinite(totalMs), headersMs === undefined],
});

test.each<[string, Behaviour | null, Partial<EgressRequest>, EgressResult["outcome"]]>([
  ["an answer with a body", say("200 OK", "hello"), {}, "answered"],
  ["one without", say("204 No Content"), {}, "answered"],
  [
    "one that was asked with a body",
    (socket, request) => say("200 OK", String(request.length))(socket, request),
    { method: "POST", body: Buffer.from("what is asked"), headers: { "X-Asked": "1" } },
    "answered",
  ],
  ["a megabyte", say("200 OK", "x".repeat(MIB)), {}, "answered"],
  ["more than that", say("200 OK", "x".repeat(MIB + 1)), {}, "too_large"],
  [
    "a bomb",
    (socket) => {
      const bomb = brotliCompressSync(Buffer.alloc(4 * MIB));
      socket.write(`HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: ${bomb.length}\r\n\r\n`);
      socket.end(bomb);
    },
    {},
    "too_large",
  ],
  ["a body that breaks off", (socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab"), {}, "cut"],
  ["no answer", (socket) => socket.end(), {}, "transport"],
  ["silence", () => {}, { profile: "challenge" }, "timeout"],
  ["an address that is not fetched", null, { url: "http://169.254.1.1/" }, "refused"],
  ["a method that is not used", null, { url: "http://x.test/", method: "TRACE" }, "refused"],
])("%s: the same value as on this thread", async (_name, behave, change, outcome) => {
  const server = await stranger(behave ?? (() => {}));
  open.push(server);
  const request: EgressRequest = { url: `${server.origin}/`, method: "GET", profile: "handshake", ...change };
  const [one, other] = [await here.fetch(request), await thread.fetch(request)];
  expect(other.outcome).toBe(outcome);
  expect(untimed(other)).toEqual(untimed(one));
  expect(thread.validate(request.url)).toEqual(here.validate(request.url));
});

it("is not waited for: a loop that stands still adds nothing to a time that the thread takes", async () => {
  // Another process: a server on this loop would stand still with it.
  const text = `require("node:http").createServer((_, res) => setTimeout(() => res.end("ok"), 50))
    .listen(0, "127.0.0.1", function () { console.log(this.address().port); });`;
  const server = spawn(process.execPath, ["-e", text], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [port] = await once(createInterface({ input: server.stdout }), "line");
    const request: EgressRequest = { url: `http://127.0.0.1:${port}/`, method: "GET", profile: "paid" };
    const STILL_MS = 1_500;
    const whileStill = async (egress: Egress): Promise<EgressResult> => {
      await egress.fetch(request);
      const asked = egress.fetch(request);
      // What is asked here leaves only while this loop turns.
      for (let turns = 0; turns < 20; turns++) await new Promise(setImmediate);
      const until = performance.now() + STILL_MS;
      while (performance.now() < until);
      return asked;
    };
    // Others may have the processors, too: what is shown is that it can be so quick, and the loop of its own never lets it.
    let [waited, not] = [await whileStill(here), await whileStill(thread)];
    for (let n = 0; n < 5 && !(waited.totalMs > STILL_MS / 2 && not.totalMs < STILL_MS / 2); n++)
      [waited, not] = [await whileStill(here), await whileStill(thread)];
    expect(waited.totalMs).toBeGreaterThan(STILL_MS / 2);
    expect(waited.loop).toEqual({ stoodStill: true, atEnd: true });
    expect(not).toMatchObject({ outcome: "answered", status: 200 });
    expect(not.totalMs).toBeLessThan(STILL_MS / 2);
  } finally {
    server.kill();
  }
});

it("one that is called off ends, whether before or after it was asked for", async () => {
  const server = await stranger(() => {});
  open.push(server);
  const request: EgressRequest = { url: `${server.origin}/`, method: "GET", profile: "paid" };
  expect(await thread.fetch({ ...request, signal: AbortSignal.abort() })).toMatchObject({
    ...{ outcome: "refused", says: "called off", sent: false },
  });
  const stop = new AbortController();
  const underway = thread.fetch({ ...request, signal: stop.signal });
  await expect.poll(() => server.received()).not.toBe("");
  stop.abort();
  expect(await underway).toMatchObject({ outcome: "transport", says: "called off", sent: true });
});

it("what a fetch throws is its caller's, and the thread goes on", async () => {
  const server = await stranger(say("200 OK", "hello"));
  open.push(server);
  const request: EgressRequest = { url: `${server.origin}/`, method: "POST", profile: "paid" };
  const wrong = { ...request, body: { no: "bytes" } as never };
  for (const egress of [here, thread]) {
    await expect(egress.fetch(wrong)).rejects.toThrow(/must be of type string or an instance of Buffer/);
    expect(await egress.fetch(request)).toMatchObject({ outcome: "answered" });
  }
  // Nothing that cannot be told to the thread is waited for.
  await expect(thread.fetch({ ...request, body: (() => {}) as never })).rejects.toThrow(/could not be cloned/);
});

it("close ends what is under way and lets nothing new begin; one that fetched nothing has no thread", async () => {
  const server = await stranger(() => {});
  open.push(server);
  const egress = createEgressThread({ ...OPTIONS, resolveTo: "127.0.0.1" });
  const request: EgressRequest = { url: `http://shop.test:${server.port}/`, method: "GET", profile: "handshake" };
  const underway = [egress.fetch(request), egress.fetch(request)];
  // Both requests are there, and not their connections alone.
  await expect.poll(() => server.received().match(/^GET /gm)).toHaveLength(2);
  await egress.close();
  for (const one of underway) expect(await one).toMatchObject({ outcome: "transport", sent: true });
  expect(await egress.fetch(request)).toMatchObject({ outcome: "refused", sent: false });
  await createEgressThread(OPTIONS).close();
  expect(() => createEgressThread({ ...OPTIONS, userAgent: "a\r\nb: c" })).toThrow(TypeError);
});

/** A process that fetches once, prints the result without its body, and has nothing else to do. */
async function elsewhere(url: string, meanwhile: (pid: number) => Promise<void> = async () => {}) {
  const text = `
    import { createEgressThread } from "./infra/egress/thread.ts";
    const egress = createEgressThread(${JSON.stringify(OPTIONS)});
    const { status, loop } = await egress.fetch({ url: "${url}", method: "GET", profile: "paid" });
    console.log(JSON.stringify({ status, loop }));`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", text], {
    ...{ cwd: new URL("../../..", import.meta.url), stdio: ["ignore", "pipe", "inherit"] },
  });
  let out = "";
  child.stdout!.on("data", (chunk) => (out += chunk));
  const ended = once(child, "exit");
  await meanwhile(child.pid!);
  expect(await ended).toEqual([0, null]);
  return JSON.parse(out);
}

it("a process ends by itself once nothing is under way", async () => {
  const server = await stranger(say("200 OK", "hello"));
  open.push(server);
  expect(await elsewhere(`${server.origin}/`)).toMatchObject({ status: 200 });
});

it("says so when the thread itself stood still: the machine gave it no processor", async () => {
  let answer = () => {};
  const server = await stranger((socket, request) => {
    answer = () => say("200 OK", "hello")(socket, request);
  });
  open.push(server);
  const result = await elsewhere(`${server.origin}/`, async (pid) => {
    await expect.poll(() => server.received()).not.toBe("");
    process.kill(pid, "SIGSTOP");
    await sleep(600);
    process.kill(pid, "SIGCONT");
    await sleep(100);
    answer();
  });
  expect(result).toMatchObject({ status: 200, loop: { stoodStill: true } });
});
