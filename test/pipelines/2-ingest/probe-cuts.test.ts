import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { type Lake, openLake } from "../../../infra/lake/duckdb.ts";
import { Values } from "../../../infra/lake/parquet/repeating-column.ts";
import { sql } from "../../../infra/lake/sql.ts";
import type { LogRecord } from "../../../infra/log/log.ts";
import { INGEST_TABLES } from "../../../pipelines/2-ingest/load.ts";
import { type BodyText, CUT, ProbeCuts, wholeBody } from "../../../pipelines/2-ingest/probe-cuts.ts";
import { readRow } from "../../../pipelines/2-ingest/row.ts";
import { bodyBytes, Segment } from "../../../pipelines/2-ingest/segment.ts";
import { fc } from "../../helpers/histories.ts";
import { at, capOf, handshake, SHA, TERMS } from "./records.ts";
import { openTestWorld } from "./world.ts";

const SHA_OF = (n: number): string => n.toString(16).padStart(64, "0");

/** As our observers write it. */
const probe = (over: object = {}): Record<string, unknown> => ({
  ...{ differs: [], fault: null, honest: true, latency_ms: 12.5, live: true, pay_to: "0x11", planned: "free" },
  ...{ price: "0.020000", slot: { block: 80_000, minute: 12 }, state: "asked", status: 402, terms: null, wall: false },
  ...over,
});
const tool = (over: object = {}) => probe({ initialize_ms: 31, tool: "sum", tool_present: true, ...over });
const textOf = (body: unknown): string => canonicalText(body);
const whole = (text: string): BodyText => ({ of: `{"body":${text},`, from: 8, end: 8 + text.length });

/** What is left of a text, or null where it is kept whole. @param times that it is shown, for a shape to be known */
function cutOf(type: string, body: unknown, times = 2) {
  const cuts = new ProbeCuts(new Values<string>());
  const text = typeof body === "string" ? body : textOf(body);
  let cut = null;
  for (let i = 0; i < times; i++) {
    cut = cuts.cut(type, 0, whole(text));
    if (cut) expect(wholeBody(cut)).toBe(text);
  }
  return cut;
}

describe("a body", () => {
  test.each([
    ["a handshake", "handshake", probe(), 3],
    ["one with terms", "handshake", probe({ terms: { ...TERMS, sha256: SHA } }), 4],
    ["one that nobody answered", "handshake", probe({ latency_ms: null, state: "silent" }), 3],
    ["a probe of a tool", "mcp.probe", tool(), 3],
    ["one of a tool with terms", "mcp.probe", tool({ terms: TERMS, latency_ms: null }), 4],
    ["one with more in its slot", "handshake", probe({ slot: { block: 80_000, minute: 12, more: 3 } }), 3],
    ["text of any language", "handshake", probe({ differs: ["prix: 2 \u20ac", "\u{1f600}"] }), 3],
  ])("is cut: %s", (_, type, body, cuts) => {
    const cut = cutOf(type, body);
    expect(cut?.shape.split(CUT)).toHaveLength(cuts + 1);
    expect(cut).toMatchObject({ block: 80_000, minute: 12, sha: cuts === 4 ? SHA : null });
  });

  test.each([
    ["another type", "paid.intent", probe()],
    ["a tool's as if it were a handshake's", "mcp.probe", probe()],
    ["members in another order", "handshake", JSON.stringify({ live: true, ...probe() })],
    ["space in between", "handshake", JSON.stringify(probe(), null, 1)],
    ["no slot", "handshake", probe({ slot: undefined })],
    ["a block with a zero in front", "handshake", textOf(probe()).replace("80000", "080000")],
    ["a block of ten digits", "handshake", probe({ slot: { block: 1_000_000_000, minute: 1 } })],
    ["a block below zero", "handshake", probe({ slot: { block: -1, minute: 1 } })],
    ["a time with an exponent", "handshake", probe({ latency_ms: 1e-7 })],
    ["a time of many digits", "handshake", probe({ latency_ms: 1.2345678 })],
    ["a time that is a text", "handshake", probe({ latency_ms: "5" })],
    ["a time with a zero in front", "handshake", textOf(probe()).replace("12.5", "012.5")],
    ["a time that only another member says", "handshake", probe({ differs: [{ a: 1, latency_ms: 5, live: true }] })],
    ["two times", "handshake", textOf(probe()).replace('"live"', '"latency_ms":7,"live"')],
    ["a hash that goes on", "handshake", probe({ terms: { a: 1, sha256: `${SHA}0` } })],
    ["a hash of another member", "handshake", probe({ terms: { a: { b: 1, sha256: SHA } } })],
  ])("is kept whole: %s", (_, type, body) => {
    expect(cutOf(type, body)).toBeNull();
  });

  test("that has no hash where others have one, or another kind of text there, is cut without it", () => {
    for (const sha256 of ["", SHA.toUpperCase(), "x".repeat(64)]) {
      const cut = cutOf("handshake", probe({ terms: { a: 1, sha256 } }), 3);
      expect(cut).toMatchObject({ sha: null, block: 80_000 });
    }
  });
});

const CHANGES = fc.oneof(
  fc.constant((text: string) => text),
  fc
    .tuple(fc.nat(), fc.nat({ max: 12 }), fc.constantFrom("", "0", "9", ".", ",", '"', "e", "null", '"live":', "}"))
    .map(
      ([n, length, piece]) =>
        (text: string) =>
          text.slice(0, n % text.length) + piece + text.slice((n % text.length) + length),
    ),
);
const PROBES = fc
  .record({
    latency_ms: fc.oneof(fc.constant(null), fc.nat(), fc.double({ noNaN: true, noDefaultInfinity: true })),
    slot: fc.record({ block: fc.integer(), minute: fc.nat({ max: 400 }) }),
    terms: fc.option(fc.record({ sha256: fc.nat({ max: 3 }).map(SHA_OF), a: fc.nat({ max: 2 }) })),
    pay_to: fc.constantFrom("0x11", "0x22", "é"),
  })
  .map(probe);

test("whatever a body is made of, shape and cuts are it again, and what was cut is what JSON says", () => {
  const keys = fc.constantFrom(0, 1);
  fc.assert(
    fc.property(fc.array(fc.tuple(keys, PROBES, CHANGES), { maxLength: 30 }), (all) => {
      const cuts = new ProbeCuts(new Values<string>());
      for (const [key, body, changed] of all) {
        const text = changed(textOf(body));
        const cut = cuts.cut("handshake", key, whole(text));
        if (cut === null) continue;
        expect(wholeBody(cut)).toBe(text);
        const read = JSON.parse(text);
        expect(read.slot).toEqual({ block: cut.block, minute: cut.minute });
        expect(read.latency_ms).toBe(JSON.parse(cut.measured));
        if (cut.sha !== null) expect(read.terms.sha256).toBe(cut.sha);
      }
    }),
    { numRuns: 500 },
  );
});

test("endpoints that never say the same twice are kept whole before long", () => {
  const cuts = new ProbeCuts(new Values<string>());
  let [cut, bytes] = [0, 0];
  for (let n = 0; n < 10_000; n++) {
    const made = cuts.cut("handshake", n % 10, whole(textOf(probe({ pay_to: `0x${n}` }))));
    if (made === null) continue;
    cut++;
    bytes += made.shape.length;
  }
  expect(cut).toBeGreaterThan(4_000);
  expect(cut).toBeLessThan(4_200);
  expect(bytes).toBeLessThan(2_000_000);
});

describe("in a lake", () => {
  let dir: string;
  let lake: Lake;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "probe-cuts-"));
    lake = await openLake(join(dir, "lake.duckdb"), { memoryLimit: "512MB", threads: 2, init: INGEST_TABLES });
  });
  afterAll(async () => {
    await lake.close();
    await rm(dir, { recursive: true, force: true });
  });

  const PLACE = { topic: "observations.free", partition: 0 };
  const bodies = [
    probe(),
    probe({ slot: { block: 80_000, minute: 13 } }),
    probe({ terms: TERMS }),
    probe({ latency_ms: null, differs: ["\u20ac"] }),
    probe({ latency_ms: 1e-7 }),
    probe({ terms: { ...TERMS, sha256: SHA_OF(7) }, slot: { block: 0, minute: 0 } }),
  ].map(textOf);

  function segmentOf(texts: readonly string[], mayCut: boolean): Uint8Array {
    const segment = new Segment(PLACE);
    texts.forEach((text, n) => {
      const row = { offset: n, eventId: `rec_${n}`, type: "handshake", key: "cap_a", cap: null, observedMs: n };
      const more = { producer: "test/1", v: 1, appendedMs: n, extra: null };
      segment.add({ ...row, ...more, body: mayCut ? whole(text) : Buffer.from(text) });
    });
    return segment.close();
  }

  test("and in a segment bodies are what they were, cut or not, and whoever reads Parquet can put them together", async () => {
    const path = join(dir, "one.parquet");
    for (const mayCut of [true, false]) {
      const bytes = segmentOf(bodies, mayCut);
      await writeFile(path, bytes);
      const rows = await lake.all<{ body: string }>(
        `SELECT whole_body(body, pieces_of(shape), measured, block, minute, sha) AS body FROM segment_rows('${path}') ORDER BY "offset"`,
      );
      expect(rows.map(({ body }) => body)).toEqual(bodies);
      const file = new Uint8Array(bytes).buffer;
      const alone = await parquetReadObjects({ file, compressors });
      expect(Object.hasOwn(alone[0]!, "shape")).toBe(mayCut);
      // Who asks for `body` is given all of them or none.
      expect(Object.hasOwn(alone[0]!, "body")).toBe(!mayCut);
      const kept = alone.map(({ body, uncut }) => (mayCut ? uncut : body) as string | null);
      expect(kept.map((body, n) => body ?? wholeBody(alone[n] as never))).toEqual(bodies);
      expect(kept.filter((body) => body === null)).toHaveLength(mayCut ? bodies.length - 1 : 0);
    }
  });

  test("segments with cuts and without become one by compaction", async () => {
    const [cut, uncut, all] = ["cut", "uncut", "all"].map((name) => join(dir, `${name}.parquet`));
    await writeFile(cut!, segmentOf(bodies, true));
    await writeFile(uncut!, segmentOf(bodies, false));
    await lake.run(`SET VARIABLE files = ['${cut}', '${uncut}']`);
    await lake.run(sql("11_compacted"), { segment: all! });
    const rows = await lake.all<{ body: string }>(
      `SELECT whole_body(body, pieces_of(shape), measured, block, minute, sha) AS body FROM segment_rows('${all}') ORDER BY body`,
    );
    expect(rows.map(({ body }) => body)).toEqual([...bodies, ...bodies].sort());
    await expect(lake.all(`SELECT body FROM read_parquet('${all}')`)).rejects.toThrow(/body/);
  });
});

test("a lake has the bodies as the log had them, each shape once, and forgets shapes that no record has", async () => {
  const world = await openTestWorld();
  try {
    const records = ["a", "b"].flatMap((name) =>
      [1, 2, 3].map((n) => handshake(name, at(`0${n}:00:00`), { terms: TERMS, latency_ms: n })),
    );
    const odd = handshake("a", at("04:00:00"), { terms: TERMS, latency_ms: 1e-7 });
    for (const one of [records.slice(0, 3), [...records.slice(3), odd]]) {
      await world.append(...one);
      await world.ingest.pass();
    }
    const { lake } = world;
    const rows = await lake.all<{ event_id: string; body: string }>("SELECT event_id, body FROM event_whole");
    const bodyIn = (value: Uint8Array, eventId: string): string => {
      const read = readRow({ ...PLACE_OF, value, eventId, key: capOf("a") } as LogRecord);
      return read.ok
        ? Buffer.from(bodyBytes(read.row.body)).toString()
        : canonicalText(JSON.parse(Buffer.from(value).toString()).body);
    };
    const wanted = [...records, odd].map(({ eventId, value }) => [eventId, bodyIn(value, eventId)]);
    expect(new Map(rows.map(({ event_id, body }) => [event_id, body]))).toEqual(new Map(wanted as [string, string][]));
    const shapes = "SELECT count(*)::INTEGER AS shapes, count(DISTINCT text)::INTEGER AS texts FROM shape";
    expect(await lake.all(shapes)).toEqual([{ shapes: 1, texts: 1 }]);
    expect(await lake.all("SELECT event_id FROM event WHERE body IS NOT NULL")).toEqual([{ event_id: odd.eventId }]);
    const latencies = await lake.all("SELECT latency_ms FROM every_sample ORDER BY latency_ms");
    expect(latencies.map((row) => (row as { latency_ms: number }).latency_ms)).toEqual([1e-7, 1, 1, 2, 2, 3, 3]);
    await lake.run("DELETE FROM event WHERE body IS NULL");
    await lake.run(sql("69_shapes_left"));
    expect(await lake.all(shapes)).toEqual([{ shapes: 0, texts: 0 }]);
  } finally {
    await world.close();
  }
});

const PLACE_OF = { topic: "observations.free", partition: 0, offset: 0, appendedAt: new Date(0) };
