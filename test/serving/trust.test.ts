import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { verifyObject } from "../../infra/keys/verify.ts";
import { logId } from "../../infra/tree/checkpoint.ts";
import { GradeLeaf, IndexLine } from "../../pipelines/record/leaf.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { TrustResponse } from "../../serving/schemas/trust.ts";
import { shardsOf } from "../helpers/market-index.ts";
import { capOf, cardOf, listingDraft, ORIGIN, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

const SUM = { url: "https://seller.example/sum", defects: [{ defect: "no_402", says: "free" }] };
const BARE = { url: "https://bare.example/x", description: "Nothing is known yet" };
const GONE = { url: "https://gone.example/x" };
const SEEN = { url: "https://seen.example/x" };

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const about = (kind: "correction" | "dispute" | "reinstated", body: Record<string, unknown>) => ({
    ...{ kind, capability_id: capOf(SUM), body },
  });
  const cards = (day: number) =>
    (["OUTCOME_VERIFIED", "DELIVERY_VERIFIED", "LIVENESS_VERIFIED"] as const).map((tier) =>
      cardOf(SUM, { tier, computed_at: `2026-11-${day}T06:00:00.000Z` }),
    );
  await record.publish(
    [listingDraft(SUM)],
    [listingDraft(BARE)],
    [listingDraft(GONE)],
    record.grades(cards(19), "older"),
  );
  await record.publish(record.grades(cards(20), "newer", 1), [{ kind: "delisting", capability_id: capOf(GONE) }]);
  await record.publish(
    [
      about("correction", {
        id: "rec_c1",
        record_id: null,
        grade_at: "2026-11-19T06:00:00.000Z",
        fault: "ours",
        says: "we were down",
        issued_at: "2026-11-20T07:00:00.000Z",
      }),
    ],
    [
      about("correction", {
        id: "rec_c2",
        record_id: "rec_x",
        grade_at: null,
        fault: "ours",
        says: "wrong input",
        issued_at: "2026-11-20T08:00:00.000Z",
      }),
    ],
    [about("dispute", { id: "rec_d1", record_id: "rec_y", says: "we delivered", pay_to: "0x1", signature: "0x2" })],
    [about("reinstated", { correction: "rec_c2", says: "the input was right" })],
  );
  await record.live([rowOf(SUM), rowOf(SEEN)]);
  serving = await servingOver(record);
});
afterAll(() => record.close());

const lines = (text: string): unknown[] =>
  text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as unknown);

describe("GET /v1/trust/{id}", () => {
  test("the newest cards deepest first, disputes, corrections", async () => {
    const response = await serving.get(`/v1/trust/${capOf(SUM)}`);
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "application/json"]);
    const trust = TrustResponse.parse(await response.json());
    expect(trust.scorecards.map((card) => [card.tier, card.computed_at?.slice(0, 10)])).toEqual([
      ["OUTCOME_VERIFIED", "2026-11-20"],
      ["DELIVERY_VERIFIED", "2026-11-20"],
      ["LIVENESS_VERIFIED", "2026-11-20"],
    ]);
    for (const card of trust.scorecards) {
      expect(verifyObject(record.jwks, card, { purpose: "cards", at: card.computed_at! })).toEqual({ ok: true });
    }
    expect(trust.disputes).toEqual([
      { id: "rec_d1", record_id: "rec_y", says: "we delivered", pay_to: "0x1", signature: "0x2" },
    ]);
    expect(trust.corrections).toEqual([
      {
        id: "rec_c1",
        fault: "ours",
        says: "we were down",
        issuedAt: "2026-11-20T07:00:00.000Z",
        recordId: null,
        gradeAt: "2026-11-19T06:00:00.000Z",
      },
      {
        id: "rec_c2",
        fault: "ours",
        says: "wrong input (taken back: the input was right)",
        issuedAt: "2026-11-20T08:00:00.000Z",
        recordId: "rec_x",
        gradeAt: null,
      },
    ]);
    const etag = response.headers.get("etag")!;
    const again = await serving.get(`/v1/trust/${capOf(SUM)}`, { headers: { "if-none-match": etag } });
    expect([again.status, await again.text()]).toEqual([304, ""]);
  });

  test.each([BARE, GONE, SEEN])("without cards: %o", async (spec) => {
    const response = await serving.get(`/v1/trust/${capOf(spec)}`);
    expect([response.status, await response.json()]).toEqual([
      200,
      { schema: "svc.trust.v1", capability_id: capOf(spec), scorecards: [], disputes: [], corrections: [] },
    ]);
  });

  test.each([
    ["cap_x", 400, "bad-request"],
    [`cap_${"I".repeat(26)}`, 400, "bad-request"],
    [`rec_${"0".repeat(26)}`, 400, "bad-request"],
    [`cap_${"0".repeat(25)}%30`, 404, "unknown-capability"],
    [`cap_${"0".repeat(26)}`, 404, "unknown-capability"],
  ])("%s is a %i", async (id, status, type) => {
    const response = await serving.get(`/v1/trust/${id}`);
    expect([response.status, response.headers.get("content-type")]).toEqual([status, "application/problem+json"]);
    expect(ProblemDocument.parse(await response.json()).type).toBe(`/docs/api#${type}`);
  });
});

describe("GET /v1/trust/index", () => {
  test("is what the publisher's index holds, line by line", async () => {
    const response = await serving.get("/v1/trust/index");
    expect(response.headers.get("content-type")).toBe("application/x-ndjson");
    const text = await response.text();
    const published = shardsOf(record.committer.fold)
      .shards.map((shard) => shard.text.toString("utf8"))
      .join("");
    expect(text.split("\n").sort()).toEqual(published.split("\n").sort());
    const read = lines(text).map((line) => IndexLine.parse(line));
    expect(read.map((line) => [line.url, line.band, line.tier, line.sample_count, line.defects.length])).toEqual([
      [SUM.url, "B", "DELIVERY_VERIFIED", 120, 1],
      [BARE.url, "UNRATED", null, 0, 0],
    ]);
  });

  test.each([
    ["zstd, gzip", "zstd", decompress],
    ["gzip;q=0.5, zstd;q=0", "gzip", gunzipSync],
    ["br", "identity", (bytes: Buffer) => bytes],
  ])("Accept-Encoding: %s -> %s, with an ETag of its own", async (accept, coding, unpack) => {
    const plain = Buffer.from(await (await serving.get("/v1/trust/index")).arrayBuffer());
    const response = await serving.get("/v1/trust/index", { headers: { "accept-encoding": accept } });
    expect(response.headers.get("content-encoding") ?? "identity").toBe(coding);
    expect(response.headers.get("vary")).toBe("Accept-Encoding");
    const etag = response.headers.get("etag")!;
    expect(etag).toBe(`"${logId(ORIGIN)}-${serving.follower.view.size}-${coding}"`);
    expect(unpack(Buffer.from(await response.arrayBuffer())).equals(plain)).toBe(true);
    const again = await serving.get("/v1/trust/index", {
      headers: { "accept-encoding": accept, "if-none-match": etag },
    });
    expect([again.status, (await again.arrayBuffer()).byteLength]).toEqual([304, 0]);
  });
});

describe("GET /v1/trust/feed", () => {
  const link = (position: number) =>
    `<https://touchstone.test/v1/trust/feed?cursor=${logId(ORIGIN)}:${position}>; rel="next"`;

  test("every grade as published, from the beginning to the size at the start", async () => {
    const response = await serving.get("/v1/trust/feed");
    const read = lines(await response.text()).map((line) => GradeLeaf.parse(line));
    expect(read.map((leaf) => [leaf.index, leaf.seq, leaf.why])).toEqual([
      ...[3, 4, 5].map((index, seq) => [index, seq, "older"]),
      ...[6, 7, 8].map((index, i) => [index, i + 3, "newer"]),
    ]);
    expect(response.headers.get("link")).toBe(link(14));
  });

  test("lines are the leaves of the tree, byte for byte", async () => {
    const text = await (await serving.get("/v1/trust/feed")).text();
    const bytes: string[] = [];
    for await (const leaf of serving.follower.snapshot!.reader.leaves()) {
      if (leaf.leaf.kind === "grade") bytes.push(`${leaf.bytes.toString("utf8")}\n`);
    }
    expect(text).toBe(bytes.join(""));
  });

  test.each([
    [0, 6, 14],
    [4, 5, 14],
    [8, 1, 14],
    [9, 0, 14],
    [14, 0, 14],
  ])("from position %i: %i lines, next %i", async (position, count, next) => {
    const response = await serving.get(`/v1/trust/feed?cursor=${logId(ORIGIN)}:${position}`);
    expect([response.status, lines(await response.text()).length]).toEqual([200, count]);
    expect(response.headers.get("link")).toBe(link(next));
  });

  test("following the link to the end and after a publication misses nothing and repeats nothing", async () => {
    const own = await PublicRecord.open();
    const served = await servingOver(own);
    const seen: number[] = [];
    let path = "/v1/trust/feed";
    expect((await served.get(path)).status).toBe(503);
    for (let i = 0; i < 5; i++) {
      await own.publish(
        [listingDraft({ url: `https://s${i}.example/` })],
        own.grades([cardOf({ url: `https://s${i}.example/` })], `${i}`),
      );
      await served.follower.refresh();
      const response = await served.get(path);
      seen.push(...lines(await response.text()).map((line) => (line as GradeLeaf).seq));
      path = /^<https:\/\/touchstone\.test(.*)>/.exec(response.headers.get("link")!)![1]!;
    }
    expect(seen).toEqual([0, 1, 2, 3, 4]);
    await own.close();
  });

  test.each([
    ["cursor=", "bad-request"],
    ["cursor=5", "bad-request"],
    [`cursor=${logId(ORIGIN)}:-1`, "bad-request"],
    [`cursor=${logId(ORIGIN)}:01`, "bad-request"],
    [`cursor=${logId(ORIGIN)}:9999999999999999`, "bad-request"],
    [`cursor=${logId(ORIGIN)}:1&cursor=${logId(ORIGIN)}:2`, "bad-request"],
    [`cursor=${logId("another.log")}:1`, "bad-cursor"],
  ])("%s is a 400", async (query, type) => {
    const response = await serving.get(`/v1/trust/feed?${query}`);
    expect(response.status).toBe(400);
    const problem = ProblemDocument.parse(await response.json());
    expect([problem.type, problem.errors?.[0]?.pointer]).toEqual([`/docs/api#${type}`, "/cursor"]);
  });
});
