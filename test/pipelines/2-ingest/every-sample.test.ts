import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { INGEST_TABLES, loadSegment } from "../../../pipelines/2-ingest/load.ts";
import { Segment } from "../../../pipelines/2-ingest/segment.ts";
import { fc } from "../../helpers/histories.ts";
import { tablesOf } from "./prove-ingest.ts";
import { capOf, SHA, TERMS } from "./records.ts";
import { openTestLake } from "./world.ts";

let dir: string;
let lakes: Lake[];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "every-sample-"));
  lakes = [];
});
afterEach(async () => {
  for (const lake of lakes) await lake.close();
  await rm(dir, { recursive: true, force: true });
});
const CAPS = ["a", "b", "c"].map(capOf);
const T0 = Date.parse("2026-11-10T00:00:00Z");

/** What an observer says of a probe, as far as a sample takes it. */
const saying = fc.record({
  cap: fc.constantFrom(...CAPS),
  isTool: fc.boolean(),
  latency_ms: fc.constantFrom(null, 0, 12, 12.5, 999_999_999, 1e-7),
  fault: fc.constantFrom(null, "ours"),
  honest: fc.constantFrom(null, true, false),
  live: fc.boolean(),
  wall: fc.boolean(),
  price: fc.constantFrom(null, "0.020000", "12.345678"),
  pay_to: fc.constantFrom(null, "0x11", "0x22"),
  state: fc.constantFrom("asked", "malformed", "silent", "open"),
  terms: fc.constantFrom(null, { ...TERMS, sha256: SHA }, { ...TERMS, sha256: "0".repeat(64) }),
});
type Saying = typeof saying extends fc.Arbitrary<infer T> ? T : never;

function bodyOf({ cap, isTool, ...said }: Saying, n: number): string {
  const slot = { block: 80_000 + n, minute: n % 360 };
  const tool = isTool ? { initialize_ms: 31, tool: "add", tool_present: true } : {};
  return canonicalText({ ...said, ...tool, differs: [], planned: "free", slot, status: 402 });
}

/** The same records as a segment whose bodies are cut where they can be, or one of whole bodies. */
function segmentOf(said: readonly Saying[], mayCut: boolean): Uint8Array {
  const segment = new Segment({ topic: "observations.free", partition: 0 });
  for (const [n, one] of said.entries()) {
    const text = bodyOf(one, n);
    const type = one.isTool ? "mcp.probe" : "handshake";
    const id = { offset: n, eventId: `rec_${n}`, type, key: one.cap, cap: one.cap };
    const body = mayCut ? { of: text, from: 0, end: text.length } : Buffer.from(text);
    const ms = T0 + n * 3_600_000;
    segment.add({ ...id, observedMs: ms, appendedMs: ms, producer: "test/1", v: 1, extra: null, body });
  }
  return segment.close();
}

async function lakeOf(name: string, segments: readonly Uint8Array[]): Promise<Lake> {
  const lake = await openTestLake(join(dir, `${name}.duckdb`));
  lakes.push(lake);
  const place = { topic: "observations.free", partition: 0, rows: 0, next: 0 };
  for (const [n, bytes] of segments.entries()) {
    const path = join(dir, `${name}-${n}.parquet`);
    await writeFile(path, bytes);
    await loadSegment(lake, { ...place, file: `${name}-${n}`, path }, new Set());
  }
  return lake;
}

const count = async (lake: Lake, what: string): Promise<number> =>
  (await lake.all<{ n: number }>(`SELECT count(*)::INTEGER AS n FROM ${what}`))[0]!.n;

test("samples of cut bodies are those of whole ones, and so is what is known of their endpoints", async () => {
  let [cuts, runs] = [0, 0];
  await fc.assert(
    fc.asyncProperty(fc.array(saying, { minLength: 1, maxLength: 60 }), async (said) => {
      const name = `run-${runs++}`;
      const cut = await lakeOf(`${name}-cut`, [segmentOf(said, true)]);
      const whole = await lakeOf(`${name}-whole`, [segmentOf(said, false)]);
      expect(await tablesOf(cut)).toEqual(await tablesOf(whole));
      expect(await count(cut, "every_sample")).toBe(said.length);
      expect(await count(whole, "samples")).toBe(said.length);
      cuts += await count(cut, "event WHERE shape IS NOT NULL");
      expect(await count(cut, "samples")).toBe(await count(cut, "event WHERE body IS NOT NULL"));
      // A row has a number of its own, whichever half it stands in.
      expect(await count(cut, "(SELECT DISTINCT row FROM every_sample)")).toBe(said.length);
    }),
    { numRuns: 12 },
  );
  expect(cuts).toBeGreaterThan(0);
});

/** A lake as it was before shapes said anything: every handshake's sample is written down. */
async function oldLake(): Promise<Lake> {
  const [said] = fc.sample(fc.array(saying, { minLength: 40, maxLength: 60 }), { numRuns: 1, seed: 7 });
  const lake = await lakeOf("old", [segmentOf(said!, true)]);
  await lake.run("INSERT INTO samples SELECT * EXCLUDE (row) FROM every_sample ANTI JOIN samples USING (obs_id)");
  await lake.run("DROP VIEW every_sample");
  for (const name of ["fault", "live", "honest", "price_micro", "pay_to"])
    await lake.run(`ALTER TABLE shape DROP COLUMN ${name}`);
  return lake;
}

test("a lake from before has each sample once when it is opened, also after a stop in the middle of that", async () => {
  const lake = await oldLake();
  const stored = "SELECT * EXCLUDE (row) FROM every_sample ORDER BY obs_id";
  const before = await lake.all("SELECT * FROM samples ORDER BY obs_id");
  const cut = await count(lake, "event WHERE shape IS NOT NULL");
  expect(cut).toBeGreaterThan(0);
  for (const statement of INGEST_TABLES.slice(0, INGEST_TABLES.indexOf(sql("20_samples")))) await lake.run(statement);
  // Statement by statement, begun anew after each: as a process that is killed there and started again.
  const steps = sql("20_samples").split(/;\n/);
  for (let stop = 1; stop <= steps.length; stop++) await lake.run(steps.slice(0, stop).join(";\n"));
  expect(await lake.all(stored)).toEqual(before);
  expect(await count(lake, "samples")).toBe(before.length - cut);
  for (const statement of INGEST_TABLES) await lake.run(statement);
  expect(await lake.all(stored)).toEqual(before);
});
