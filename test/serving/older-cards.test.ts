import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canonicalBytes } from "../../infra/canonical.ts";
import * as portable from "../../infra/keys/portable.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import { PackedBytesCheck } from "../../pipelines/audit/findings.ts";
import { LogReading } from "../../pipelines/audit/log-reading.ts";
import { type CardVerdict, recomputeGathered } from "../../pipelines/audit/recompute.ts";
import { exportIndex, openHintedIndex, openMirroredRecord } from "../../pipelines/mirror/export-index.ts";
import { RecordReader, readCheckpoint } from "../../pipelines/published/reader.ts";
import { DirectorySource } from "../../pipelines/published/source.ts";
import { MISSING_MEMBER_TEXT, SignedCard } from "../../pipelines/record/card.ts";
import { GradeLeaf, IndexLine } from "../../pipelines/record/leaf.ts";
import type { CheckAnswer } from "../../serving/schemas/check.ts";
import { TrustResponse } from "../../serving/schemas/trust.ts";
import { capOf, componentsOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";
import { keysOf, Mirror, publishIndex, publishKeys, sourceDir } from "../pipelines/mirror/testbed.ts";

/** Cards of the form svc.scorecard.v1 in the record: everybody reads what they say, and nobody what they do not. */
const BARE = { url: "https://bare.example/x" };
const WITHDRAWN = { url: "https://withdrawn.example/x" };
const NAMED = { url: "https://named.example/x" };
const SPECS = [BARE, WITHDRAWN, NAMED];
const MOMENT = "2026-11-20T06:00:00.000Z";

let record: PublicRecord;
let serving: TestServing;

/** A signed card of the interface's required members, and these. */
function older(spec: { url: string }, more: object = {}) {
  const unsigned = {
    ...{ schema: "svc.scorecard.v1", capability_id: capOf(spec), tier: "OUTCOME_VERIFIED" },
    ...{ band: "B", composite: 0.8, components: componentsOf(43), ...more },
  };
  const signature = Buffer.from(record.keys.cards.sign(canonicalBytes(unsigned))).toString("base64url");
  return { ...unsigned, signature };
}

const grade = (card: object) => ({
  ...{ kind: "grade" as const, day: "2026-11-20", raw_band: "B" as const, headline: true, why: "B, by older rules." },
  inputs: { positions: { "observations.free": 10 }, digest: "00".repeat(32), kin: "11".repeat(32) },
  card: card as SignedCard,
});

beforeAll(async () => {
  record = await PublicRecord.open();
  await publishKeys(record);
  const { kid } = record.keys.cards;
  const named = older(NAMED, { computed_at: MOMENT, signing_key_id: kid, flags: ["older_flag"], sample_count: 7 });
  await record.publish(
    ...SPECS.map((spec) => [listingDraft(spec)]),
    [grade(older(BARE))],
    [grade(older(WITHDRAWN))],
    [grade(named)],
  );
  await publishIndex(record);
  await record.live(SPECS.map((spec) => rowOf(spec, { withdrawn_since: spec === WITHDRAWN ? 1 : 0 })));
  serving = await servingOver(record);
});
afterAll(() => record.close());

const json = async (path: string) => (await (await serving.get(path)).json()) as unknown;
const checked = async (spec: { url: string }) => (await json(checkPath({ url: spec.url }))) as CheckAnswer;
const linesOf = async (path: string) =>
  (await (await serving.get(path)).text())
    .trim()
    .split("\n")
    .map((l) => JSON.parse(l));

test("what the interface requires is enough for a card, and no less", () => {
  const card = older(BARE);
  expect(SignedCard.parse(card)).toEqual(card);
  for (const name of Object.keys(card)) {
    const { [name as "band"]: _, ...less } = card;
    expect(SignedCard.safeParse(less).success, name).toBe(false);
  }
});

test("its signature is over its own bytes: of whichever key for cards, unless it names one", async () => {
  const { kid } = record.keys.cards;
  const expected = { purpose: "cards", at: MOMENT } as const;
  const card = older(BARE);
  expect(verifyObject(record.jwks, card, expected)).toEqual({ ok: false, reason: "malformed" });
  for (const [object, verdict] of [
    [card, { ok: true }],
    [
      { ...card, band: "A" },
      { ok: false, reason: "bad_signature" },
    ],
    [
      { ...card, canonicalization: "JCS" },
      { ok: false, reason: "canonicalization" },
    ],
    [
      { ...card, signing_key_id: "another" },
      { ok: false, reason: "unknown_key" },
    ],
  ] as const) {
    expect(verifyObject(record.jwks, object, { ...expected, defaults: { kid } })).toEqual(verdict);
    expect(await portable.verifyObject(record.jwks, object, { ...expected, defaults: { kid } })).toEqual(verdict);
  }
});

describe("answers", () => {
  test("trust, feed and index carry the card as it was signed", async () => {
    const trust = TrustResponse.parse(await json(`/v1/trust/${capOf(BARE)}`));
    expect(trust.scorecards).toEqual([older(BARE)]);
    const feed = (await linesOf("/v1/trust/feed")).map((line) => GradeLeaf.parse(line));
    expect(feed.map(({ card }) => card.capability_id)).toEqual(SPECS.map(capOf));
    const index = (await linesOf("/v1/trust/index")).map((line) => IndexLine.parse(line));
    const of = (spec: { url: string }) => index.find(({ url }) => url === spec.url)!;
    expect(of(BARE)).toMatchObject({ band: "B", tier: "OUTCOME_VERIFIED", sample_count: null, card: older(BARE) });
    expect(of(NAMED).sample_count).toBe(7);
  });

  test("check says what the card says, and leaves out what it does not", async () => {
    const answer = await checked(BARE);
    expect(answer).toMatchObject({ band: "B", composite: 0.8, computedAt: null, flags: [], why: "B, by older rules." });
    expect(answer).not.toHaveProperty("sampleCount");
    expect(JSON.parse(answer.scorecard!)).toEqual(older(BARE));
    expect(await checked(NAMED)).toMatchObject({ sampleCount: 7, computedAt: MOMENT, flags: ["older_flag"] });
  });

  test("a withdrawn record takes the letter of a card that does not say how many it stands on", async () => {
    const answer = await checked(WITHDRAWN);
    expect(answer).toMatchObject({ band: "UNRATED", withdrawnSince: 1, flags: ["records_withdrawn"] });
    expect(answer.why).toContain(MISSING_MEMBER_TEXT);
  });

  test("exposure counts its letter, pages say what it does not say", async () => {
    const report = await serving.get("/v1/exposure", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ dependencies: [BARE.url] }),
    });
    expect(await report.json()).toMatchObject({ lines: [{ standing: "lettered", band: "B" }] });
    const page = await (await serving.get(`/endpoint/${capOf(BARE)}`)).text();
    expect(page.split(MISSING_MEMBER_TEXT).length - 1).toBe(2);
    expect((await serving.get("/")).status).toBe(200);
  });
});

test("a mirror takes them, its index exports them, and an auditor verifies and rebuilds all", async () => {
  const mirror = await Mirror.open();
  try {
    const source = new DirectorySource(sourceDir(record));
    await mirror.run(source, { keys: keysOf(record) });
    expect(await mirror.proven(record)).toBe(record.committer.fold.size);
    const file = join(mirror.dir, "index.parquet");
    const index = await openHintedIndex(await openMirroredRecord(mirror.publicStore, mirror.stateStore));
    expect(await exportIndex(index, file)).toBe(SPECS.length);

    const { size, root } = (await readCheckpoint(record.store, record.trust))!;
    const reading = new LogReading(source, size, new PackedBytesCheck("strict"));
    const reader = await RecordReader.open(record.store, { size, root });
    for await (const { bytes } of reader.leaves()) await reading.add(bytes);
    await reading.end({ size, root }, () => undefined);
    expect(reading.findings.filter(({ result }) => result !== "ok")).toEqual([]);
    const told: CardVerdict[] = [];
    await recomputeGathered(source, reading.gatheredRecord(), (verdict) => told.push(verdict));
    const says = Object.fromEntries(told.map((one) => [one.url, [one.verdict, one.computed_at, one.says]]));
    expect(says).toEqual({
      [BARE.url]: ["pending", null, `computed_at is ${MISSING_MEMBER_TEXT}`],
      [WITHDRAWN.url]: ["pending", null, `computed_at is ${MISSING_MEMBER_TEXT}`],
      [NAMED.url]: ["pending", MOMENT, "the evidence of 2026-11-20 is not published yet"],
    });
  } finally {
    await mirror.close();
  }
});

test("nobody takes one that no key for cards signed", async () => {
  const other = await PublicRecord.open();
  const mirror = await Mirror.open();
  try {
    await publishKeys(other);
    await other.publish([listingDraft(BARE)], [grade(older(BARE))]);
    const run = mirror.run(new DirectorySource(sourceDir(other)), { keys: keysOf(other) });
    await expect(run).rejects.toThrow(/card of leaf 2/);
  } finally {
    await mirror.close();
    await other.close();
  }
});

test("the script of the documentation verifies a saved card", async () => {
  const dir = await mkdtemp(join(tmpdir(), "older-"));
  const script = new URL("../../docs/verify-a-check.mjs", import.meta.url).pathname;
  const run = async (card: object) => {
    await writeFile(join(dir, "card.json"), JSON.stringify(card));
    await writeFile(join(dir, "keys.json"), JSON.stringify(record.jwks));
    const ran = promisify(execFile)(process.execPath, [script, join(dir, "card.json"), join(dir, "keys.json")]);
    return ran.then(
      ({ stdout }) => stdout,
      (error: { stdout: string }) => error.stdout,
    );
  };
  try {
    const { kid } = record.keys.cards;
    expect(await run(older(BARE))).toBe(`good: signed by ${kid} at an unsaid time\n`);
    expect(await run(older(BARE, { computed_at: MOMENT }))).toBe(`good: signed by ${kid} at ${MOMENT}\n`);
    const bad = "BAD: do not believe this answer\n";
    expect(await run({ ...older(BARE), band: "A" })).toBe(bad);
    expect(await run(older(BARE, { computed_at: "2025-01-01T00:00:00.000Z" }))).toBe(bad);
    expect(await run(older(BARE, { signing_key_id: record.keys.answers.kid }))).toBe(bad);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
