import { execFile } from "node:child_process";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { PAST_DAYS } from "../../commands/simulated-past.ts";
import { SELLERS } from "../../fixtures/market/sellers/index.ts";
import { freePort } from "../../fixtures/ports.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { volatileRows } from "../../pipelines/2-ingest/volatile.ts";
import { dayOfManifest } from "../../pipelines/record/archive.ts";
import type { GradeLeaf } from "../../pipelines/record/leaf.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import { addDays, dayOf } from "../../pipelines/record/time.ts";
import { ARCHIVE_SUBJECTS } from "../../pipelines/record/vocabulary.ts";

import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { runs } from "../helpers/programs.ts";
import { holdDemo } from "./demo-claims.ts";
import { BEST, DESERVED } from "./deserved.ts";
import { holdAnswer, holdRecord, liveThrough, serveLived } from "./market-claims.ts";

/**
 * The whole market for all days of the demo: every letter that there is, and none that is better than deserved; then the
 * same folder as a visitor of `npm start` meets it.
 */
const port = await freePort();
const witnessPorts = [await freePort(), await freePort()];
const lived = liveThrough(PAST_DAYS, `http://127.0.0.1:${port}`);
const { capOf, ledgerOf } = lived;
const headlines = (seller: string): GradeLeaf[] =>
  lived.record.leaves.filter(
    (leaf): leaf is GradeLeaf => leaf.kind === "grade" && leaf.headline && leaf.card.capability_id === capOf(seller),
  );

describe("the demo market", () => {
  test("has its sellers, and every letter there is", () => {
    expect(lived.result.market.map((one) => one.seller)).toEqual(expect.arrayContaining(Object.keys(DESERVED)));
    expect(lived.result.market).toHaveLength(SELLERS.length);
    expect(new Set(lived.result.market.map((one) => one.band))).toEqual(new Set(["A", "B", "C", "D", "F", "UNRATED"]));
  });

  test.each(Object.entries(DESERVED))("%s gets what it deserves", (seller, deserved) => {
    const { band, tier, why, flags = [], without = [], defects = [] } = deserved;
    const found = lived.result.market.find((one) => one.seller === seller)!;
    expect(found, JSON.stringify(found)).toMatchObject({ tier: `${tier}_VERIFIED` });
    expect(found.band, JSON.stringify(found)).toMatch(new RegExp(`^(?:${band})$`));
    expect(found.why).toMatch(why);
    expect(found.flags).toEqual(expect.arrayContaining([...flags]));
    expect(without.filter((flag) => found.flags.includes(flag))).toEqual([]);
    expect(found.defects).toEqual(expect.arrayContaining([...defects]));
  });

  test("nobody ever had a better letter than its behaviour allows, on no day", () => {
    for (const [seller, band] of Object.entries(BEST)) {
      const better = headlines(seller).filter(({ card }) => card.band !== "UNRATED" && card.band < band);
      expect([seller, better.map(({ card }) => card.band)]).toEqual([seller, []]);
    }
  });

  test("who serves known wallets only is never shown to be correct for more than known wallets", () => {
    const lower = headlines("regulars-only").at(-1)!.card.components!.correctness.lower!;
    expect(lower).toBeLessThanOrEqual(0.75);
  });

  test("a flood of one host's addresses takes 200 places, those that answered with a 402, and no letter", () => {
    const { origin } = lived.record.world.sellers.find((one) => one.name === "wildcard")!;
    const listed = lived.record.leaves.flatMap((leaf) =>
      leaf.kind === "listing" && leaf.url.startsWith(origin) ? [leaf] : [],
    );
    const taken = lived.record.facts("listing").filter((fact) => fact.body.normalised_url.startsWith(origin));
    expect(new Set(taken.map((fact) => fact.cap)).size).toBe(200);
    // It lists nothing itself, so its addresses enter the market one by one, as their first 402 is seen.
    const asked = new Set(
      lived.record.facts("handshake").flatMap((fact) => (fact.body.state === "asked" ? [fact.cap] : [])),
    );
    const inMarket = new Set(listed.map((leaf) => leaf.capability_id));
    // It joins on the last day, which ends now: each address is asked at a moment of the day's first six hours.
    const { until } = lived.result.simulated;
    const hours = (Date.parse(until) - Date.parse(dayOf(new Date(until)))) / 3_600_000;
    expect(inMarket.size).toBeGreaterThan(hours < 3 ? 0 : 50);
    expect([...inMarket].filter((cap) => !asked.has(cap))).toEqual([]);
  });

  test("nobody but the thief is ever said to have taken money; pending only who pays it back", () => {
    for (const seller of Object.keys(DESERVED)) {
      const said = new Set(headlines(seller).flatMap(({ card }) => card.flags));
      expect([seller, said.has("took_the_money")]).toEqual([seller, seller === "thief"]);
      if (seller !== "refunder") expect([seller, said.has("money_pending")]).toEqual([seller, seller === "thief"]);
    }
  });

  test("of the thief alone paid calls brought nothing, and each seller names its own payTo and a price", async () => {
    const lake = await openLake(foldersOf(lived.dir).lake, { memoryLimit: "1GB", threads: 1, init: INGEST_TABLES });
    const rows = new Map((await volatileRows(lake, new Map())).map((row) => [row.capability_id, row]));
    await lake.close();
    for (const seller of Object.keys(DESERVED)) {
      const row = rows.get(capOf(seller))!;
      expect([seller, row.unserved > 0, row.unserved_since !== null]).toEqual([
        seller,
        ...[seller === "thief", seller === "thief"],
      ]);
    }
    const { payTo } = lived.record.world.sellers.find((one) => one.name === "thief")!;
    const { pay_tos, asked_pay_to, price, unit, networks } = rows.get(capOf("thief"))!;
    expect([pay_tos.map(addressKey), addressKey(asked_pay_to!)]).toEqual([[addressKey(payTo)], addressKey(payTo)]);
    expect([price !== null, unit, networks]).toEqual([true, "USD", [expect.stringMatching(/^eip155:\d+$/)]]);
  });

  test("every refund of the refunder's book is in the record, each once, and nobody else's", () => {
    const back = ledgerOf("refunder").filter((line) => line.kind === "refund");
    const found = lived.record.facts("paid.followup").filter((fact) => fact.body.kind === "refund");
    expect(back.length).toBeGreaterThan(2);
    expect(found.map((fact) => fact.body.refund!.tx).sort()).toEqual(back.map((line) => line.refundTx).sort());
    expect(new Set(found.map((fact) => fact.cap))).toEqual(new Set([capOf("refunder")]));
  });

  test("the slow seller's latency shows in its card", () => {
    const { point, lower, method } = headlines("slow").at(-1)!.card.components!.latency_p95;
    // What a machine under load adds to everybody's time comes on top: nobody else's is a measure for it.
    expect(Number(/p95_ms=(\d+)/.exec(method)?.[1])).toBeGreaterThanOrEqual(450);
    expect(point!).toBeLessThan(1);
    expect(lower!).toBeLessThanOrEqual(point!);
  });
});

holdRecord(lived, 31);

test("those known long before every day was lived through have days in the archive, each row of them once", () => {
  const { from, until } = lived.result.simulated;
  expect(dayOf(new Date(until))).toBe(addDays(from, 124));
  const files = lived.record.leaves.flatMap((leaf) => (leaf.kind === "archive" ? [leaf.manifest] : []));
  const days = Array.from({ length: 14 }, (_, i) => addDays(from, i));
  for (const subject of ARCHIVE_SUBJECTS)
    expect(files.filter((file) => file.subject === subject).map(dayOfManifest)).toEqual(days);
  // The tool of an MCP server is among them: no subject is empty on the two days.
  for (const subject of ARCHIVE_SUBJECTS) {
    const filled = files.filter((file) => file.subject === subject).map(({ rows }) => rows > 0);
    expect([subject, filled]).toEqual([subject, days.map((_, i) => i < 2)]);
  }
});

test("touchstone audit finds nothing in what the demo published", async () => {
  const audit = [...runs("touchstone.ts"), "audit", join(lived.dir, "public")];
  const { stdout } = await promisify(execFile)(process.execPath, audit, { cwd: resolve(import.meta.dirname, "../..") });
  expect(stdout).toMatch(/^ok {6}cards, recomputed: [1-9]/m);
  expect(stdout).toMatch(/^ok {6}archive files: 56$/m);
  expect(stdout).toMatch(/^proven: /m);
});

describe("started again", () => {
  const ports = { TOUCHSTONE_PORT: String(port), TOUCHSTONE_MARKET_WITNESS_PORTS: JSON.stringify(witnessPorts) };
  holdAnswer(lived, serveLived(lived, { ...ports, TOUCHSTONE_STATUS_PORT: "0" }));
  const witnesses = witnessPorts.map((at) => `http://127.0.0.1:${at}`);
  holdDemo(lived, witnesses);
});
