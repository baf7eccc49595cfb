import { once } from "node:events";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EXIT } from "../../commands/exit.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { type Running, touchstone } from "../helpers/processes.ts";
import { ORIGIN, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { unhurried } from "../helpers/unhurried.ts";
import { realSeller } from "../pipelines/1-observe/real-seller.ts";
import { terms402 } from "../pipelines/1-observe/world.ts";
import { grow, publishAll, publishIndex, sourceDir, specOf } from "../pipelines/mirror/testbed.ts";

/** Two real processes on one port that follow a publisher, killed in turn while they are asked. */
let record: PublicRecord;
let dir: string;
let running: Running;
let url: string;
/** Port of the first process's status listener; the second one's is the next. */
let status: number;
const pids: number[] = [];

const settings = (): Record<string, string> => ({
  TOUCHSTONE_DATA_DIR: dir,
  TOUCHSTONE_BASE_URL: `https://${ORIGIN}`,
  TOUCHSTONE_PORT: "0",
  TOUCHSTONE_LOG_LEVEL: "error",
  TOUCHSTONE_ALLOW_LOOPBACK: "true",
  TOUCHSTONE_LIMITS_CHECKS_PER_MINUTE: "1000000",
});

beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 60);
  await record.live(Array.from({ length: 60 }, (_, i) => rowOf(specOf(`a${i}`))));
  dir = await mkdtemp(join(tmpdir(), "replicas-"));
  await cp(join(record.dir, "keys"), join(dir, "keys"), { recursive: true });
  // A replica has the key of the answers and no other private one.
  const { kid } = record.keys.answers;
  for (const { purpose, kid: other } of record.keys.ring.keys) {
    if (other !== kid) await rm(join(dir, "keys", `${purpose}-${other}.pem`));
  }
  status = await freePorts(2);
  const env = { ...settings(), TOUCHSTONE_STATUS_PORT: String(status) };
  running = touchstone(["serve", "--from", sourceDir(record), "--processes", "2", "--max-age", "10000000000"], env);
  await running.says(/(?:Serving at[\s\S]*Status at[\s\S]*){2}/);
  for (const [, at, pid] of running.said.out.matchAll(/Serving at (\S+) \(process (\d+)\)/g)) {
    url = at!;
    pids.push(Number(pid));
  }
});

afterAll(async () => {
  await running?.end();
  await record.close();
  await rm(dir, { recursive: true, force: true });
});

/** A port that is free, and as many after it. */
async function freePorts(n: number): Promise<number> {
  for (;;) {
    const held: Server[] = [];
    try {
      let first = 0;
      for (let k = 0; k < n; k++) {
        const server = createServer();
        held.push(server);
        server.listen(k === 0 ? 0 : first + k, "127.0.0.1");
        await once(server, "listening");
        first ||= (server.address() as AddressInfo).port;
      }
      return first;
    } catch {
      // One of them is another's: elsewhere then.
    } finally {
      await Promise.all(held.map((server) => new Promise((resolve) => server.close(resolve))));
    }
  }
}

/** Asked until it is answered: a process that is killed takes its connections with it. */
async function ask(path: string, base = url): Promise<Response> {
  for (let n = 0; ; n++) {
    try {
      // A connection of its own, so that both processes get their turns.
      return await unhurried(base + path, { headers: { connection: "close" }, signal: AbortSignal.timeout(60_000) });
    } catch (error) {
      if (n === 200) throw error;
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

async function checkIsRight(name: string): Promise<void> {
  const response = await ask(`/v1/check?url=${encodeURIComponent(specOf(name).url)}`);
  const body = (await response.json()) as Record<string, unknown>;
  expect([response.status, body.band, body.capabilityId]).toEqual([200, "B", capId("GET", specOf(name).url)]);
  expect(verifyObject(record.jwks, body, { purpose: "answers", at: String(body.answered_at) })).toMatchObject({
    ok: true,
  });
}

/** Until all replicas know this endpoint: either of two processes may answer, and one may read later than the other. */
async function known(name: string): Promise<void> {
  for (let n = 0, inTurn = 0; n < 6_000; n++) {
    const { status } = await ask(`/v1/trust/${capId("GET", specOf(name).url)}`);
    inTurn = status === 200 ? inTurn + 1 : 0;
    if (inTurn === 8) return checkIsRight(name);
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`${name} never came: ${running.said.err}`);
}

test("each shows what it counted at a port of its own, and none of it where strangers ask", async () => {
  for (const port of [status, status + 1]) {
    const base = `http://127.0.0.1:${port}`;
    await expect.poll(async () => (await ask("/health", base)).status).toBe(200);
    expect(await (await ask("/health", base)).json()).toMatchObject({ role: "serve", ok: true, state: "working" });
    const text = await (await ask("/metrics", base)).text();
    expect(text).toContain("touchstone_serving_tree_size ");
    expect(text).toContain('touchstone_role_ok{role="serve"} 1');
  }
  for (const path of ["/metrics", "/health"]) expect([path, (await ask(path)).status]).toEqual([path, 404]);
});

test("a record that was cosigned longer ago than --max-age is not served: it ends with 12", async () => {
  const own = await mkdtemp(join(tmpdir(), "replica-late-"));
  await cp(join(dir, "keys"), join(own, "keys"), { recursive: true });
  const late = touchstone(["serve", "--from", sourceDir(record), "--max-age", "60"], {
    ...settings(),
    TOUCHSTONE_DATA_DIR: own,
  });
  try {
    expect([(await late.ended).code, late.said.out]).toEqual([EXIT.stale, ""]);
  } finally {
    await late.end();
    await rm(own, { recursive: true, force: true });
  }
});

test("killed one after the other while they are asked: every question is answered, and truly", async () => {
  expect(new Set(pids).size).toBe(2);
  for (let i = 0; i < 10; i++) await checkIsRight(`a${i % 5}`);
  let asked = 0;
  let over = false;
  const asking = (async () => {
    for (; !over; await new Promise((done) => setTimeout(done, 20))) await checkIsRight(`a${asked++ % 5}`);
  })();
  for (const [i, pid] of pids.entries()) {
    process.kill(pid, "SIGKILL");
    await grow(record, `more${i}-`, 20);
    await publishIndex(record);
    await running.says(new RegExp(`(?:Serving at[\\s\\S]*){${3 + i}}\\)\\n`));
    await known(`more${i}-1`);
  }
  over = true;
  await asking;
  expect(asked).toBeGreaterThan(2);
});

test("a replica of the replica answers the same", async () => {
  const second = touchstone(["serve", "--from", url, "--mirror", join(dir, "second")], settings());
  try {
    const [, other] = await second.says(/Serving at (\S+)/);
    const paths = ["/v1/trust/index", "/v1/trust/feed", "/checkpoint", "/.well-known/svc-keys.json", "/live/view.json"];
    for (const path of [...paths, "/tile/entries/000.p/60", `/v1/trust/${capId("GET", specOf("a1").url)}`]) {
      const from = async (base: string) => {
        const response = await ask(path, base);
        // The etag of what is swapped is the store's own.
        const etag = path === "/checkpoint" ? "" : response.headers.get("etag");
        return `${response.status} ${etag} ${await response.text()}`;
      };
      // Each follows in its own time: what is asked is that they come to say the same.
      for (let n = 0; n < 600 && (await from(url)) !== (await from(other!)); n++) {
        await new Promise((done) => setTimeout(done, 100));
      }
      expect(await from(other!), path).toBe(await from(url));
    }
    const keys = (await (await ask("/.well-known/svc-keys.json", other)).json()) as { keys: unknown[] };
    expect(keys.keys).toHaveLength(record.jwks.keys.length);
    process.kill(second.child.pid!, "SIGTERM");
    expect(await second.ended).toEqual({ code: 0, signal: null });
  } finally {
    await second.end();
  }
});

test("looks at a listing for a seller that waits, at no address of its own", async () => {
  const seller = await realSeller(() => terms402());
  const look = async (at: string) => {
    const body = JSON.stringify({ url: at });
    const response = await unhurried(`${url}/v1/listings/validate`, { method: "POST", body });
    return [response.status, await response.json()] as const;
  };
  try {
    const [status, seen] = await look(`http://127.0.0.1:${seller.port}/sum`);
    expect([status, seen]).toEqual([
      200,
      expect.objectContaining({
        state: "asked",
        stock_client: expect.objectContaining({ verdict: "signs", offer: 0 }),
      }),
    ]);
    expect(seller.legs.map(({ url: asked }) => new URL(asked).pathname).at(-1)).toBe("/sum");
    expect((await look(`https://${ORIGIN}/v1/check`))[0]).toBe(400);
  } finally {
    await seller.close();
  }
});

test("without a log nothing is put in line, and it says where to ask", async () => {
  const response = await ask(`/v1/check?url=${encodeURIComponent("https://nobody-knew.example/x")}`);
  expect(response.status).toBe(200);
  expect(await response.json()).toMatchObject({
    ...{ band: "UNRATED", matched: "none", queued: false },
    next: expect.stringMatching(/only answers .*\/v1\/check\?url=https%3A%2F%2Fnobody-knew\.example%2Fx$/),
  });
});

test("SIGTERM: all end by themselves, with code 0", async () => {
  process.kill(running.child.pid!, "SIGTERM");
  expect(await running.ended).toEqual({ code: 0, signal: null });
});

test("SIGTERM while the brokers of its log accept connections and answer nothing: it ends in time, with code 0", async () => {
  const silent = createServer((socket) => void socket.on("error", () => {}));
  silent.listen(0, "127.0.0.1");
  await once(silent, "listening");
  const log = `kafka://127.0.0.1:${(silent.address() as AddressInfo).port}/touchstone`;
  const options = ["serve", "--from", sourceDir(record), "--mirror", join(dir, "silent"), "--processes", "2"];
  const one = touchstone(options, { ...settings(), TOUCHSTONE_LOG: log, TOUCHSTONE_LOG_LEVEL: "warn" });
  try {
    await one.says(/(?:Serving at[\s\S]*){2}/);
    const began = performance.now();
    process.kill(one.child.pid!, "SIGTERM");
    expect(await one.ended).toEqual({ code: 0, signal: null });
    // The unit and the compose file kill after 30 s.
    expect(performance.now() - began).toBeLessThan(28_000);
    expect(one.said.err).toContain("ended without waiting for it");
  } finally {
    await one.end();
    silent.close();
  }
});

test("what keeps one from starting ends them all with its code", async () => {
  const fresh = ["--mirror", join(dir, "fresh")];
  const all = ["serve", "--processes", "2", "--from", sourceDir(record), ...fresh];
  // The checkpoint is not that of the record which this service would answer for.
  const failing = touchstone(all, { ...settings(), TOUCHSTONE_BASE_URL: "https://other.example" });
  try {
    expect((await failing.ended).code, failing.said.err).toBe(11);
  } finally {
    await failing.end();
  }
});
