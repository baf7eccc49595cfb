import { createHash } from "node:crypto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { toStatements } from "../../../infra/lake/duckdb.ts";
import { gradeChunks } from "../../../pipelines/3-grade/grade.ts";
import { PackedRows } from "../../../pipelines/3-grade/packed.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import { inputsDigest, type Sample } from "../../../pipelines/3-grade/sample.ts";
import { RunLine } from "../../../pipelines/record/card.ts";
import { gradeRun } from "./grade-run.ts";
import { TestLake } from "./lake.ts";
import { endpointOf, NOW } from "./random.ts";
import { at, DAY, flagsOf, good, HOUR, theft } from "./seller.ts";

describe("a run", () => {
  let lake: TestLake;
  beforeEach(async () => {
    lake = await TestLake.open();
  });
  afterEach(() => lake.close());

  const run = (caps: "all" | string[], now = NOW) => gradeRun(lake.conn, { now, endpointIds: caps });
  const ofCap = (lines: RunLine[], cap: string) => lines.find((line) => line.cap === cap)!;

  it("of a few endpoints gives the lines of a run of all, reads only theirs, and leaves no table of its own", async () => {
    for (let n = 0; n < 12; n++) {
      const like = {
        seed: n,
        rows: 120,
        days: 60,
        live: 0.97,
        honest: 1,
        right: 0.9,
        settles: 1,
        serves: 0.95,
        paid: 0.4,
      };
      const endpoint = endpointOf(`cap${n}`, { ...like, published: 0.1, faults: 0.05, moves: 0.1 });
      await lake.add(endpoint.cap, endpoint.rows);
      await lake.place(endpoint);
    }
    const all = await run("all");
    expect(all.read.caps).toBe(12);
    const few = await run(["cap3", "cap7", "cap7"]);
    expect(few.lines).toEqual([ofCap(all.lines, "cap3"), ofCap(all.lines, "cap7")]);
    expect(few.nonDelivering).toEqual(all.nonDelivering);
    expect(few.read.caps).toBe(2);
    expect(few.read.rows).toBeLessThanOrEqual(240);
    const tables = await lake.conn.run("SELECT table_name FROM information_schema.tables ORDER BY 1");
    expect((await tables.getRows()).flat()).toEqual(["every_sample", "samples", "site", "thefts", "withdrawn"]);
  });

  it("gives the same lines in one chunk and in many, batch by batch, in order of cap", async () => {
    const caps = Array.from({ length: 8_200 }, (_, n) => `cap${String(n).padStart(5, "0")}`);
    for (const cap of [caps[0]!, caps[3_000]!, caps[8_199]!]) await lake.add(cap, [...good(), theft(3 * DAY)]);
    const batches: string[][] = [];
    const whole: RunLine[] = [];
    for await (const lines of gradeChunks(lake.conn, { now: NOW, endpointIds: caps.toReversed() })) {
      batches.push(lines.map(({ cap }) => cap));
      whole.push(...lines);
    }
    expect(batches.map((batch) => batch.length)).toEqual([8_192, 8]);
    expect(batches.flat()).toEqual(caps);
    const chunked = await gradeRun(lake.conn, { now: NOW, endpointIds: caps, chunkRows: 81 });
    expect(chunked.lines).toEqual(whole);
  });

  it("leaves out the lines it is told to leave out, after their card is made; the others are the same", async () => {
    for (const cap of ["a", "b", "c"]) await lake.add(cap, good());
    const all = await run("all");
    const seen: string[] = [];
    const some = await gradeRun(lake.conn, {
      now: NOW,
      endpointIds: "all",
      leaveOut: (line) => {
        expect(line).toEqual({ cap: line.cap, cards: ofCap(all.lines, line.cap).cards, due_at: all.lines[0]!.due_at });
        seen.push(line.cap);
        return line.cap !== "b";
      },
    });
    expect(seen).toEqual(["a", "b", "c"]);
    expect(some.lines).toEqual([ofCap(all.lines, "b")]);
    expect(some.read).toEqual({ ...all.read, leftOut: 2 });
    expect(some.nonDelivering).toEqual(all.nonDelivering);
  });

  it("does not grade our own endpoints, and signs an empty card for one without a row", async () => {
    await lake.add("ours", good());
    await lake.place({ cap: "ours", pay_to: null, domain: null, ours: true });
    await lake.place({ cap: "new", pay_to: null, domain: null, disputed: true });
    await lake.add("old", [at(100 * DAY)]);
    await lake.add("faulty", [at(HOUR, { fault: "ours" })]);
    const { lines } = await run("all");
    expect(lines.map(({ cap }) => cap)).toEqual(["faulty", "new", "old"]);
    for (const line of lines) {
      expect(line.cards).toHaveLength(1);
      expect(line.due_at).toBeNull();
      const { card, headline, why, progress } = RunLine.parse(line).cards[0]!;
      expect(headline).toBe(true);
      expect(card).toMatchObject({
        tier: "LIVENESS_VERIFIED",
        band: "UNRATED",
        composite: 0,
        components: null,
        sample_count: 0,
      });
      expect(why.unrated).toBe("0 of 30 paid calls so far; unknown, not bad");
      expect(progress).toBe(0);
    }
    expect(ofCap(lines, "new").cards[0]!.card.flags).toEqual(["disputed"]);
    expect(ofCap(lines, "old").inputs_digest).toBe(createHash("sha256").digest("hex"));
    expect(ofCap(lines, "faulty").inputs_digest).not.toBe(createHash("sha256").digest("hex"));
  });

  it("keeps the thefts of endpoints that it does not grade, and grades with the table that it is given", async () => {
    await lake.add("thief", [...good(), theft(3 * DAY)]);
    await lake.add("payee", good());
    await lake.add("domain", good());
    await lake.add("other", good());
    await lake.place({ cap: "thief", pay_to: "0xaa", domain: "shop.example" });
    await lake.place({ cap: "payee", pay_to: "0xaa", domain: "two.example" });
    await lake.place({ cap: "domain", pay_to: null, domain: "shop.example" });
    await lake.place({ cap: "other", pay_to: null, domain: null });

    const early = await run(["payee", "domain", "other"]);
    expect(early.lines.flatMap(flagsOf)).not.toContain("payee_took_the_money");

    const found = await run(["thief"]);
    const thief = { cap: "thief", pay_to: "0xaa", domain: "shop.example" };
    expect(found.nonDelivering).toEqual([thief]);
    expect(flagsOf(found.lines[0]!)).toContain("took_the_money");
    expect(flagsOf(found.lines[0]!)).not.toContain("payee_took_the_money");
    expect(early.nonDelivering).toEqual([]);

    const after = await run(["domain", "payee"]);
    expect(after.nonDelivering).toEqual([thief]);
    const line = canonicalText({ cap: "thief", domain: "shop.example", pay_to: "0xaa" });
    expect(new RelatedParties([thief]).sha256).toBe(createHash("sha256").update(`${line}\n`).digest("hex"));
    const before = await gradeRun(lake.conn, { now: NOW, endpointIds: ["domain", "payee"], related: [] });
    expect(before.lines.flatMap(flagsOf)).not.toContain("payee_took_the_money");
    expect(before.lines.flatMap(flagsOf)).not.toContain("domain_took_the_money");
    expect(before.nonDelivering).toEqual([thief]);
    expect(flagsOf(ofCap(after.lines, "payee"))).toContain("payee_took_the_money");
    expect(flagsOf(ofCap(after.lines, "payee"))).not.toContain("domain_took_the_money");
    expect(flagsOf(ofCap(after.lines, "domain"))).toContain("domain_took_the_money");

    // A correction takes the theft back.
    await lake.conn.run("INSERT INTO withdrawn SELECT obs_id FROM samples WHERE cap = 'thief' AND NOT delivered");
    const cleared = await run(["thief"]);
    expect(cleared.nonDelivering).toEqual([]);
  });

  it("names the address that got the money of the newest theft, whatever the newest 402 asks", async () => {
    await lake.add("thief", [...good(), { ...theft(4 * DAY), pay_to: "0xcc" }, { ...theft(3 * DAY), pay_to: "0xbb" }]);
    await lake.add("payee", good());
    await lake.place({ cap: "payee", pay_to: "0xBB", domain: null });
    for (const asksNow of ["0xdd", null]) {
      await lake.place({ cap: "thief", pay_to: asksNow, domain: null });
      const { lines, nonDelivering } = await run("all");
      expect(nonDelivering).toEqual([{ cap: "thief", pay_to: "0xbb", domain: null }]);
      expect(flagsOf(ofCap(lines, "payee"))).toContain("payee_took_the_money");
      await lake.conn.run("DELETE FROM site WHERE cap = 'thief'");
    }
  });

  it("forgets a theft that left the window, though its endpoint is not due", async () => {
    await lake.add("thief", [theft(80 * DAY)]);
    await lake.add("payee", good());
    await lake.place({ cap: "thief", pay_to: "0xaa", domain: null });
    await lake.place({ cap: "payee", pay_to: "0xaa", domain: null });
    expect(flagsOf(ofCap((await run("all")).lines, "payee"))).toContain("payee_took_the_money");
    const later = await run(["payee"], new Date(NOW.getTime() + 14 * DAY));
    expect(flagsOf(later.lines[0]!)).not.toContain("payee_took_the_money");
  });

  it("digests every row of the window, counted or not, bytewise by id, whatever its values", async () => {
    const odd: Partial<Sample>[] = [
      { latency_ms: 1e21, price: 5e-324 },
      { latency_ms: 0.1 + 0.2, price: 1e-7, fault: "ours" },
      { payer: '\u0001"\\/\u001f\u007fé\u{1f600}', kind: 2, fault: "not_reproduced" },
      { latency_ms: -0, price: 0.000001, delivery: 0.00001 },
    ];
    const plain = [
      ...good(2),
      at(5 * DAY, { latency_ms: 812.5, price: 0.000123 }),
      at(6 * DAY, { latency_ms: 1e15 - 1 }),
    ];
    const rows = {
      plain,
      odd: odd.map((row) => at(DAY, row)),
      mixed: [...good(1), at(DAY, { obs_id: "é" }), at(DAY, { obs_id: "Z" })],
    };
    for (const [cap, of] of Object.entries(rows)) await lake.add(cap, [...of, at(100 * DAY)]);
    const { lines } = await run("all");
    for (const [cap, of] of Object.entries(rows)) expect(ofCap(lines, cap).inputs_digest, cap).toBe(inputsDigest(of));
    const [first] = plain;
    const { response_sha256, pay_to, input, ...sixteen } = first!;
    expect(Object.keys(sixteen)).toHaveLength(16);
    const text = `${canonicalText({ ...sixteen, t: first!.t.toISOString() })}\n`;
    expect(inputsDigest([first!])).toBe(createHash("sha256").update(text).digest("hex"));
  });

  it("stops where more rows come than were counted: they would be graded as a neighbour's", async () => {
    const packed = new PackedRows([{ n: 0, paid: 0 }]);
    const row = "SELECT 0::UINTEGER, 0.0::DOUBLE, 1.0::DOUBLE, 1.0::DOUBLE, 1.0::DOUBLE, 0.0::DOUBLE, 0.0::DOUBLE";
    for await (const batch of toStatements(lake.conn).batches(row))
      expect(() => packed.addBatch(batch)).toThrow(/samples changed/);
    expect(packed.rowsRead[0]).toBe(1);
  });

  it("works inside a transaction of somebody else", async () => {
    await lake.add("thief", [theft(3 * DAY)]);
    await lake.conn.run("BEGIN TRANSACTION");
    await run("all");
    await run(["thief"]);
    await lake.conn.run("ROLLBACK");
    expect((await lake.conn.run("FROM thefts")).rowCount).toBe(0);
    expect((await run("all")).lines).toHaveLength(1);
  });
});
