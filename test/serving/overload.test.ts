import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { Limits } from "../../infra/config.ts";
import { ownLag } from "../../infra/loop-watch.ts";
import { createMetrics } from "../../infra/telemetry.ts";
import { OVERLOAD_LIMITS, Overload } from "../../serving/http/overload.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { isRefusedWhenOverloaded } from "../../serving/operations/operation.ts";
import { OPERATIONS } from "../../serving/operations.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { capOf, cardOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { checkPath, servingOver } from "../helpers/serving.ts";

const SUM = { url: "https://seller.example/sum" };
const MUL = { url: "https://seller.example/mul" };
let record: PublicRecord;
const open: { close(): unknown }[] = [];
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM), listingDraft(MUL)], record.grades([cardOf(SUM)], "B."));
});
afterAll(() => record.close());
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

/** A process whose looks at its loop a test makes itself. */
function forced(random = 0) {
  let look = (_lateMs: number): void => {};
  const metrics = createMetrics();
  const lag = (see: (lateMs: number) => void) => {
    look = see;
    return () => {};
  };
  const overload = new Overload(lag, metrics, () => random);
  const looks = (...late: number[]): void => {
    for (const ms of late) look(ms);
  };
  return { overload, metrics, look: looks };
}

async function listening(overload: Overload, limits: Partial<Limits> = {}): Promise<Serving> {
  const serving = await servingOver(record, { overload });
  const server = await serve({ app: serving.app, port: 0, host: "127.0.0.1", graceMs: 50, overload, limits });
  open.push(server);
  return server;
}

test("looks that are late in succession are overload, one stall is none; it ends well below where it began", () => {
  const { overload, look } = forced();
  look(5_000, 0, 900, 900, 0);
  expect(overload.isOverloaded).toBe(false);
  look(...Array(3).fill(OVERLOAD_LIMITS.slowMs));
  expect(overload.isOverloaded, "three looks, and too little in all").toBe(false);
  look(...Array(2).fill(OVERLOAD_LIMITS.slowMs));
  expect(overload.isOverloaded).toBe(true);
  look(...Array(OVERLOAD_LIMITS.minSteadyTimers - 1).fill(0), OVERLOAD_LIMITS.steadyMs);
  look(...Array(OVERLOAD_LIMITS.minSteadyTimers - 1).fill(0));
  expect(overload.isOverloaded, "not steady for long enough").toBe(true);
  look(0);
  expect(overload.isOverloaded).toBe(false);
});

test("nearly all sockets taken are overload, until a quarter is free again", () => {
  const { overload, look } = forced();
  let share = 0.89;
  overload.setSocketShare(() => share);
  const at = (next: number): boolean => {
    share = next;
    look(0);
    return overload.isOverloaded;
  };
  expect([0.89, 0.9, 0.8, 0.75, 0.74, 0.89].map(at)).toEqual([false, true, true, true, false, false]);
});

test("what is free is refused before anything is done for it; what has a price, orders, kept checks and health are not", async () => {
  const { overload, look, metrics } = forced(0.5);
  const { url } = await listening(overload);
  const kept = await (await fetch(url + checkPath(SUM))).text();
  look(...Array(5).fill(300));
  expect(await (await fetch(url + checkPath(SUM))).text()).toBe(kept);
  for (const path of [checkPath(MUL), "/v1/trust/feed", "/", "/v1/trust/index", "/docs/api", "/checkpoint"]) {
    const response = await fetch(url + path, { headers: { accept: "application/json" } });
    expect([path, response.status, response.headers.get("retry-after")]).toEqual([path, 503, "5"]);
    expect(response.headers.get("cache-control")).toBe("no-store");
    expect(ProblemDocument.parse(await response.json())).toMatchObject({ status: 503, instance: path.split("?")[0] });
  }
  // A page says so to people as a page.
  const page = await fetch(`${url}/`, { headers: { accept: "text/html" } });
  expect([page.status, page.headers.get("content-type")]).toEqual([503, "text/html; charset=utf-8"]);
  for (const path of ["/livez", "/readyz"]) expect([path, (await fetch(url + path)).status]).toEqual([path, 200]);
  // This server sells nothing, and says that, not that it has too much to do.
  for (const path of [`/v1/via/${capOf(SUM)}`, "/v1/orders/ord_0000000000000000000000000000"]) {
    expect(await (await fetch(url + path)).text()).not.toMatch(/has to wait/);
  }
  expect(await metrics.text()).toMatch(/touchstone_http_shed_total\{operation="check"\} 1\n/);
  look(...Array(10).fill(0));
  expect((await fetch(url + checkPath(MUL))).status).toBe(200);
});

test("what this process asks itself, without a socket, is not shed", async () => {
  const { overload, look } = forced();
  const serving = await servingOver(record, { overload });
  look(...Array(5).fill(300));
  expect(overload.isOverloaded).toBe(true);
  for (const path of [checkPath(SUM), "/"]) expect([path, (await serving.get(path)).status]).toEqual([path, 200]);
});

test("rows that are never shed: those with a price, and these", () => {
  const kept = OPERATIONS.filter((operation) => !isRefusedWhenOverloaded(operation));
  expect(kept.filter(({ price }) => !price).map(({ id }) => id)).toEqual([
    ...["check", "order", "evidenceBody", "buyerOrders", "planted", "livez", "readyz"],
  ]);
  expect(kept.map(({ id }) => id)).toEqual(expect.arrayContaining(["viaGet", "viaPost", "routeExecute"]));
});

test("sockets of who is free are closed where nearly all are taken", async () => {
  const { overload, look } = forced();
  const server = await listening(overload, { sockets: 10, sockets_per_client: 10 });
  const sockets: Socket[] = [];
  for (let i = 0; i < 9; i++) {
    const socket = connect({ port: server.port, host: "127.0.0.1", localAddress: `127.0.0.${10 + i}` });
    sockets.push(socket);
    open.push({ close: () => socket.destroy() });
    await once(socket, "connect");
  }
  const asked = async (socket: Socket, path: string): Promise<string> => {
    socket.write(`GET ${path} HTTP/1.1\r\nhost: h\r\n\r\n`);
    return String((await once(socket, "data"))[0]);
  };
  expect(await asked(sockets[0]!, "/livez")).toMatch(/^HTTP\/1.1 200/);
  look(0);
  const closed = once(sockets[1]!, "end");
  expect(await asked(sockets[1]!, "/")).toMatch(/^HTTP\/1.1 503 .*connection: close/is);
  await closed;
  expect(await asked(sockets[0]!, "/livez")).toMatch(/^HTTP\/1.1 200/);
});

test("a loop that is really busy sheds what is free while health is answered, and then goes on", async () => {
  const overload = new Overload(ownLag);
  open.push(overload);
  const { url } = await listening(overload);
  let busy = true;
  // Each turn of the loop takes as long as hundreds of requests would.
  const block = (): void => {
    const until = performance.now() + 2 * OVERLOAD_LIMITS.slowMs;
    while (performance.now() < until);
    if (busy) setTimeout(block, 1);
  };
  block();
  await new Promise<void>((resolve) => {
    const look = (): void => void (overload.isOverloaded ? resolve() : setTimeout(look, 5));
    look();
  });
  const [free, health] = await Promise.all([fetch(url + checkPath(SUM)), fetch(`${url}/livez`)]);
  expect([free.status, health.status]).toEqual([503, 200]);
  expect(Number(free.headers.get("retry-after"))).toBeGreaterThanOrEqual(2);
  busy = false;
  await new Promise<void>((resolve) => {
    const look = (): void => void (overload.isOverloaded ? setTimeout(look, 5) : resolve());
    look();
  });
  expect((await fetch(url + checkPath(SUM))).status).toBe(200);
});

test("a queue at the door is overload, though no turn of the loop is slow: each takes one connection in", async () => {
  const overload = new Overload(ownLag);
  open.push(overload);
  const { url, port } = await listening(overload, { sockets_per_client: 1_000 });
  let busy = true;
  const turn = (): void => {
    const until = performance.now() + OVERLOAD_LIMITS.slowMs / 10;
    while (performance.now() < until);
    if (busy) setImmediate(turn);
  };
  turn();
  const strangers = Array.from({ length: 500 }, () => connect(port, "127.0.0.1").on("error", () => {}));
  for (const one of strangers) open.push({ close: () => one.destroy() });
  await expect.poll(() => overload.isOverloaded).toBe(true);
  busy = false;
  await expect.poll(() => overload.isOverloaded).toBe(false);
  expect((await fetch(url + checkPath(SUM))).status).toBe(200);
});
