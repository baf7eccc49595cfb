import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createLogger } from "../../infra/telemetry.ts";
import { PublishedTree } from "../../pipelines/published/reader.ts";
import { plantedToken } from "../../pipelines/record/classes/planted.ts";
import { OPERATIONS } from "../../serving/operations.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { Follower } from "../../serving/tables/follower.ts";
import { EMPTY_DAY_ID, emptyDayDraft } from "../helpers/archive-draft.ts";
import { capOf, cardOf, listingDraft, NOW, ORIGIN, PublicRecord } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";

const SUM = { url: "https://seller.example/sum" };
const PAGES = Buffer.alloc(32, 9);
let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM)], "B."));
  await record.publish([emptyDayDraft(record.keys.cards)]);
  serving = await servingOver(record, { plantedPageSecret: PAGES });
});
afterAll(() => record.close());

/** One address that exists for each row of the operation table. */
const ADDRESS: Record<string, string> = {
  check: checkPath({ url: SUM.url }),
  trust: `/v1/trust/${capOf(SUM)}`,
  failures: `/v1/trust/${capOf(SUM)}/failures`,
  receiptProof: `/v1/web/evidence/receipts/${"00".repeat(32)}`,
  evidenceBody: `/v1/web/evidence/bodies/20261121-${"0".repeat(26)}`,
  cardBundle: `/v1/trust/${capOf(SUM)}/bundle`,
  cardProof: `/v1/trust/${capOf(SUM)}/proof`,
  archiveManifest: `/v1/archive/${EMPTY_DAY_ID}`,
  docs: "/docs/check-before-you-pay",
  watcher: `/v1/watchers/wat_${"0".repeat(26)}`,
  endpointPage: `/endpoint/${capOf(SUM)}`,
  viaGet: `/v1/via/${capOf(SUM)}`,
  viaPost: `/v1/via/${capOf(SUM)}`,
  order: `/v1/orders/ord_${"0".repeat(26)}`,
  buyerOrders: `/v1/buyers/0x${"1".repeat(40)}/orders`,
  planted: `/p/${plantedToken(PAGES, Buffer.alloc(32), new Date(NOW))}`,
  badge: `/badge/${capOf(SUM)}.svg`,
  "object-tile": "/tile/0/000.p/2",
};
const addressOf = ({ id, path }: (typeof OPERATIONS)[number]): string => ADDRESS[id] ?? path.replace("/**", "/nothing");

describe.each(OPERATIONS.map((operation) => [operation.id, operation] as const))("%s", (_, operation) => {
  const path = addressOf(operation);
  const absent = path.endsWith("/nothing");

  const allow = OPERATIONS.filter((row) => row.path === operation.path)
    .map((row) => row.method ?? "GET, HEAD")
    .join(", ");

  test("GET and HEAD agree", async () => {
    const get = await serving.get(path);
    const head = await serving.get(path, { method: "HEAD" });
    const refused: Record<string, number> = {
      watcher: 401,
      receiptProof: 404,
      evidenceBody: 404,
      viaGet: 503,
      order: 503,
      viaPost: 503,
      buyerOrders: 503,
    };
    const status = refused[operation.id] ?? (operation.method === "POST" ? 405 : absent ? 404 : 200);
    expect([get.status, head.status]).toEqual([status, status]);
    expect(await head.text()).toBe("");
    for (const name of ["content-type", "etag", "cache-control"])
      expect(head.headers.get(name)).toBe(get.headers.get(name));
    expect(get.headers.get("x-content-type-options")).toBe("nosniff");
    if (!absent) expect(get.headers.get("content-type")).toBeTruthy();
  });

  test.each(
    ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"].filter((method) => !allow.split(", ").includes(method)),
  )("%s is a 405 that names the right methods", async (method) => {
    const response = await serving.get(path, { method });
    expect([response.status, response.headers.get("allow"), response.headers.get("content-type")]).toEqual([
      ...[405, allow, "application/problem+json"],
    ]);
    expect(ProblemDocument.parse(await response.json()).type).toBe("/docs/api#method-not-allowed");
  });
});

describe("addresses that are none", () => {
  test.each([
    "/nope",
    // What a process counts is for those who run it: the status listener has it.
    "/metrics",
    "/health",
    "/v1",
    "/v1/nothing",
    "/v1/trust",
    "/v2/check",
    "/docs/../package.json",
    "/docs/%2e%2e%2fpackage.json",
    "/docs/package",
    "/docs/check-before-you-pay.md",
    "/tile/0/000",
    "/tile/0/000.p/4",
    "/tile/../generation/00000000000000000000",
    "/keys/../../keys/keyring.json",
    "/index/",
    "/live/view.json",
    "/.~store/lock.sqlite",
    "/endpoint/",
    "/%66oo",
  ])("%s is a 404 without caching headers", async (path) => {
    const response = await serving.get(path);
    expect([response.status, response.headers.get("content-type"), response.headers.get("cache-control")]).toEqual([
      ...[404, "application/problem+json", "no-store"],
    ]);
    ProblemDocument.parse(await response.json());
  });

  test.each(["/%", "/v1/trust/%ff"])("%s cannot be decoded: a 400", async (path) => {
    expect((await serving.get(path)).status).toBe(400);
  });

  test("every table of errors agrees: each code is described under its anchor", async () => {
    const { PROBLEMS } = await import("../../serving/http/problem.ts");
    const html = await (await serving.get("/docs/api")).text();
    for (const [code, { status }] of Object.entries(PROBLEMS)) {
      const type = code.replaceAll("_", "-");
      expect(html).toContain(`<td id="${type}"><code>${type}</code></td>\n<td>${status}</td>`);
    }
  });
});

test("our own fault is a 500 that tells nothing, and is in our log", async () => {
  const lines: unknown[] = [];
  const logger = Object.assign(createLogger("silent"), { error: (line: unknown) => lines.push(line) });
  const broken = await servingOver(record, {
    logger,
    jwks: () => {
      throw new Error("secret path /etc/keys");
    },
  });
  const response = await broken.get("/.well-known/svc-keys.json");
  expect([response.status, response.headers.get("cache-control")]).toEqual([500, "no-store"]);
  const text = await response.text();
  expect(text).not.toMatch(/secret|etc|at .*\.ts/);
  expect(ProblemDocument.parse(JSON.parse(text)).type).toBe("/docs/api#internal");
  expect(lines).toHaveLength(1);
  expect(await record.metrics.text()).toContain('touchstone_http_requests_total{operation="keys",status="500"} 1');
});

describe("readiness", () => {
  test("not before the first look, nor when the record was not read for minutes", async () => {
    const ready = await servingOver(record);
    expect((await ready.get("/readyz")).status).toBe(200);
    ready.clock.pass(300_001);
    expect((await ready.get("/readyz")).status).toBe(503);
    expect((await ready.get("/livez")).status).toBe(200);
    await ready.follower.refresh();
    expect(await (await ready.get("/readyz")).text()).toBe("ok, 3 leaves\n");
  });
});

test("before the first look nothing is said of the record, signed, kept or put in line; documents and objects are there", async () => {
  const { clock } = serving;
  const { store, logger, metrics } = record;
  const tree = new PublishedTree(store, record.trust);
  const follower = new Follower({ tree, store, clock, logger, metrics, origin: ORIGIN });
  const unread = await servingOver(record, { follower });
  const unknown = "/v1/check?url=https%3A%2F%2Fseen-by-nobody.example%2Fx";
  const ofRecord = OPERATIONS.filter(({ needsRecord: ofRecord }) => ofRecord);
  expect(ofRecord.map(({ id }) => id)).toEqual([
    ...[
      "check",
      "trust",
      "failures",
      "cardBundle",
      "cardProof",
      "trustIndex",
      "trustFeed",
      "archive",
      "archiveManifest",
    ],
    ...["watcherCreate", "watcher"],
    ...["viaGet", "viaPost", "receiptProof", "routePlan", "routeExecute", "evaluate"],
    ...[
      "exposure",
      "search",
      "dispute",
      "validateListing",
      "retestListing",
      "badge",
      "home",
      "leaderboard",
      "endpointPage",
    ],
    ...["checkPage", "checkMyListingAnswer", "exposureReportPage"],
  ]);
  const asked = ofRecord.map((one): [string, RequestInit] => [
    addressOf(one),
    one.method ? { method: one.method, body: "{}" } : {},
  ]);
  for (const [path, init] of [...asked, [unknown, {}] as const]) {
    const response = await unread.get(path, init);
    expect([path, response.status, response.headers.get("retry-after")]).toEqual([path, 503, "2"]);
    expect(response.headers.get("cache-control")).toBe("no-store");
  }
  expect(unread.log.records).toEqual([]);
  for (const path of ["/docs/api", "/checkpoint", "/.well-known/svc-keys.json", "/livez"])
    expect([path, (await unread.get(path)).status]).toEqual([path, 200]);
  expect((await unread.get("/readyz")).status).toBe(503);
  await follower.refresh();
  expect(await (await unread.get(checkPath({ url: SUM.url }))).json()).toMatchObject({ matched: "exact", band: "B" });
});

test("reads have a limit of their own", async () => {
  const limited = await servingOver(record, { limits: { reads_per_minute: 2 } });
  const statuses = [];
  for (const path of ["/checkpoint", "/", "/v1/trust/index", "/livez", checkPath({ url: SUM.url })]) {
    statuses.push((await limited.get(path)).status);
  }
  expect(statuses).toEqual([200, 200, 429, 200, 200]);
});

test("the keys document is the JWKS of all keys", async () => {
  expect(await (await serving.get("/.well-known/svc-keys.json")).json()).toEqual(record.jwks);
});
