import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress, EgressRequest } from "../../../infra/egress/egress.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { STEADY_LOOP } from "../../helpers/steady-loop.ts";
import { END, firstPaidOnly, START, salt } from "./day.ts";
import { CAPS, DAY, entry, type FakeWorld, fakeWorld, item, wellKnown } from "./world.ts";

/** Bad input over real sockets, through the real egress, whose clocks are short for whoever never answers. */
const SILENCE_MS = 500;
const servers: Server[] = [];
let egress: Egress;
/** Profiles in which the seller of this test is asked for its endpoint and never answers. */
let silent: readonly string[] = [];
let control: string;

async function serve(handler: RequestListener): Promise<string> {
  const server = createServer(handler);
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const stop = async (server: Server): Promise<void> => {
  const closed = once(server, "close");
  server.close();
  server.closeAllConnections();
  await closed;
};

beforeAll(async () => {
  const inner = createEgress({ allowLoopback: true, userAgent: "touchstone-test" });
  // The deadlines of legs are 20 s and more: only where nothing comes would they be waited for.
  const isSilent = ({ url, profile }: EgressRequest) =>
    silent.includes(profile) && !url.includes("/.well-known/") && !url.startsWith(control);
  egress = {
    validate: inner.validate.bind(inner),
    close: inner.close.bind(inner),
    fetch: (request) => inner.fetch(isSilent(request) ? { ...request, deadlineMs: SILENCE_MS } : request),
  };
  control = await serve((_request, response) => response.end("ok"));
});
afterAll(async () => {
  await egress.close();
  await Promise.all(servers.map(stop));
});

const terms = Buffer.from(JSON.stringify({ x402Version: 2, accepts: [entry()] })).toString("base64");

/** A shop whose answers to a probe and to a payment are the test's; it lists itself properly. */
function shop(probed: RequestListener, paid: RequestListener): RequestListener {
  return (request, response) => {
    if (request.url === "/.well-known/x402") return response.end(JSON.stringify(wellKnown(item())));
    return request.headers["payment-signature"] ? paid(request, response) : probed(request, response);
  };
}
const asks: RequestListener = (_request, response) => response.writeHead(402, { "payment-required": terms }).end("{}");
const never: RequestListener = () => {};
const flood: RequestListener = (_request, response) => {
  response.writeHead(200, { "content-type": "application/json" });
  const chunk = Buffer.alloc(1024 * 1024, 0x20);
  let sent = 0;
  const more = () => {
    while (sent++ < 100) if (!response.write(chunk)) return response.once("drain", more);
    return response.end();
  };
  more();
};
const halfway: RequestListener = (_request, response) => {
  response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
  response.write('{"sum":');
  setTimeout(() => response.destroy(), 20);
};
const malformed: RequestListener = (_request, response) =>
  response.writeHead(402, { "payment-required": "!!!" }).end('{"accepts":[{');
const nested: RequestListener = (_request, response) =>
  response.end(`{"sum":${"[".repeat(200_000)}${"]".repeat(200_000)}}`);

async function observe(handler: RequestListener, log?: Log) {
  const origin = await serve(handler);
  const fake: FakeWorld = fakeWorld();
  const observer = fake.restart(
    { controlUrls: [control], hostsAtOnce: 2 },
    { egress, loop: STEADY_LOOP, log: log ?? fake.log },
  );
  await observer.intakeSeller(origin);
  return { ...fake, observer, origin };
}

describe("strangers over real sockets", () => {
  test.each<[string, RequestListener, RequestListener, Record<string, unknown>[], Record<string, unknown>[]]>([
    ["a malformed 402", malformed, never, [{ state: "malformed", live: false, honest: null }], []],
    [
      "a 402 that never comes",
      never,
      never,
      [{ state: "silent", live: false, fault: null, control: { ok: true } }],
      [],
    ],
    [
      "a hundred megabytes instead of a 402",
      flood,
      never,
      [{ state: "silent", live: false, says: expect.stringMatching(/too_large/) }],
      [],
    ],
    [
      "an answer that never comes",
      asks,
      never,
      [],
      [{ ended: "deadline", delivered: false, fault: null, watched: true }],
    ],
    [
      "a hundred megabytes for the money",
      asks,
      flood,
      [],
      [{ ended: "closed", delivered: true, delivery: 0, outcome: 0, fault: null, response_bytes: 1024 * 1024 }],
    ],
    [
      "an answer that breaks off",
      asks,
      halfway,
      [],
      [{ ended: "cut", delivered: false, response_bytes: 7, fault: null }],
    ],
    ["an answer nested without end", asks, nested, [], [{ ended: "closed", delivered: true, outcome: 0, fault: null }]],
  ])("%s", async (_name, probed, paid, handshakes, results) => {
    silent = [...(probed === never ? ["handshake"] : []), ...(paid === never ? ["paid"] : [])];
    const { observer, memory, log } = await observe(shop(probed, paid));
    const plan = planDay({ day: DAY, salt, listed: await memory.listed(), caps: CAPS, now: START });
    expect(await observer.observeSpan(firstPaidOnly(plan), START, END)).toMatchObject({ broken: 0, missed: 0 });
    expect(log.bodies("handshake")).toMatchObject(handshakes);
    expect(log.bodies("paid.result")).toMatchObject(results);
  });
});

describe("a real log that is full", () => {
  let dir: string;
  afterEach(() => rm(dir, { recursive: true, force: true }));

  test("the intent does not fit: no payment leaves, the span says why", async () => {
    dir = await mkdtemp(join(tmpdir(), "observe-full-"));
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1, maxBytes: 400 * 1024 });
    let payments = 0;
    try {
      const world = await observe(
        shop(asks, (_request, response) => {
          payments++;
          response.end("{}");
        }),
        log,
      );
      const filler = { topic: "asks", partition: 0, key: "k", value: Buffer.alloc(20_000) };
      for (let i = 0; ; i++) {
        const full = await log.append([{ ...filler, eventId: `rec_${i}` }]).then(
          () => null,
          (error: unknown) => error,
        );
        if (full) {
          expect(full).toMatchObject({ code: "storage" });
          break;
        }
        expect(i).toBeLessThan(1_000);
      }
      // The day is planned from what an emptier log holds; the seller is the same.
      const twin = await observe(shop(asks, asks));
      await twin.observer.intakeSeller(world.origin);
      const listed = (await twin.memory.listed()).filter((one) => one.url.startsWith(world.origin));
      world.memory.listed = async () => listed;
      const plan = firstPaidOnly(planDay({ day: DAY, salt, listed, caps: CAPS, now: START }));
      await expect(world.observer.observeSpan(plan, START, END)).rejects.toThrow(/the log did not confirm 1 record/);
      expect(payments).toBe(0);
      expect(world.rail.signed).toHaveLength(1);
    } finally {
      await log.close();
    }
  });
});
