import { describe, expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import type { LogRecord } from "../../../infra/log/log.ts";
import { type OpenedBatch, openPacked } from "../../../infra/log/packed.ts";
import { readRow } from "../../../pipelines/2-ingest/row.ts";
import { Segment } from "../../../pipelines/2-ingest/segment.ts";
import { recordId } from "../../../pipelines/record/ids.ts";
import { fc } from "../../helpers/histories.ts";
import { packedOf } from "./packed-log.ts";
import { capOf, SHA, TERMS } from "./records.ts";

/** What is taken for what came before it, against what is read whole: the same rows, and nothing that is refused. */
const PARTITION = 0;
const PROBE = {
  ...{ differs: [], fault: null, honest: true, latency_ms: 12.5, live: true, pay_to: "0x11", planned: "free" },
  ...{ price: "0.020000", slot: { block: 80_000, minute: 12 }, state: "asked", status: 402, terms: null, wall: false },
};
const TOOL = { initialize_ms: 31, tool: "sum", tool_present: true };

interface Drawn {
  name: string;
  body: object;
  type: string;
  producer: string;
  time: string;
  /** Of the value's text, of the key and of the event id in the head. */
  edit: ((text: string) => string) | null;
  key: string | null;
  eventId: string | null;
}

const hex = (n: number) => n.toString(16).padStart(64, "0");
const mostly = <T>(usual: fc.Arbitrary<T>, ...others: fc.Arbitrary<T>[]) =>
  fc.oneof({ weight: 20, arbitrary: usual }, ...others);
const DAY = Date.parse("2026-02-27T00:00:00.000Z");

const measured = mostly<number | null>(
  fc.integer({ min: 0, max: 9_999_999 }).map((n) => n / 1_000),
  fc.constant(null),
  fc.integer({ min: -3, max: 1_000_000_000 }),
  fc.constantFrom(0, 999_999_999, 999_999_999.999999, 1e-7, 1e21, 1_000_000_000),
);
const slots = fc.record({
  block: mostly(fc.nat({ max: 90_000 }), fc.constantFrom(0, 999_999_999, 1_000_000_000, -1)),
  minute: mostly(fc.nat({ max: 359 }), fc.constantFrom(360, 361, 999, 3_599, -1)),
});
const bodies = fc
  .record({
    latency_ms: measured,
    initialize_ms: measured,
    slot: slots,
    isTool: fc.boolean(),
    terms: fc.option(fc.nat({ max: 2 }).map((n) => ({ ...TERMS, sha256: n === 0 ? SHA : hex(n) }))),
    pay_to: mostly(fc.constantFrom("0x11", "0x22"), fc.constantFrom("é", "x".repeat(201))),
  })
  .map(({ isTool, initialize_ms, ...over }) => ({ ...PROBE, ...over, ...(isTool && { ...TOOL, initialize_ms }) }));
const times = mostly(
  fc.integer({ min: DAY, max: DAY + 3 * 86_400_000 }).map((ms) => new Date(ms).toISOString()),
  fc.constantFrom("2026-02-28T23:59:59.999Z", "2026-02-29T01:00:00.000Z", "2026-02-28T24:00:00.000Z"),
  fc.constantFrom("2026-02-28T01:60:00.000Z", "2026-02-28T01:00:60.000Z", "2026-02-28T01-00:00.000Z"),
);
const edits = fc
  .tuple(
    fc.nat(),
    fc.nat({ max: 3 }),
    fc.constantFrom("", "0", "1", "-", ".", "e5", '"', "\\", ",", "}", " ", "é", "null", "A", "rec_", "\x1f"),
  )
  .map(([n, length, piece]) => (text: string) => {
    const at = n % text.length;
    return text.slice(0, at) + piece + text.slice(at + length);
  });
const drawn: fc.Arbitrary<Drawn> = fc.record({
  name: fc.constantFrom("a", "b"),
  body: bodies,
  type: mostly(fc.constant("own"), fc.constantFrom("handshake", "mcp.probe", "ask")),
  producer: mostly(fc.constant("test/1"), fc.constantFrom("test/2", "é", 'a"b', "\u007f")),
  time: times,
  edit: mostly(fc.constant(null), edits, edits, edits, edits),
  key: mostly<string | null>(fc.constant(null), fc.constantFrom(capOf("a"), capOf("b"), "", "cap_x")),
  eventId: mostly<string | null>(fc.constant(null), fc.constantFrom("", "rec_x", recordId("handshake", "b", "1"))),
});
/** A few, and more that say what those do but for their cuts and one thing or another. */
const runs = fc
  .tuple(
    fc.array(drawn, { minLength: 1, maxLength: 4 }),
    fc.array(fc.tuple(fc.nat({ max: 99 }), drawn), { minLength: 10, maxLength: 40 }),
  )
  .map(([first, later]) => {
    const repeats = later.map(([n, own]): Drawn => {
      const { name, body, type, producer } = first[n % first.length]!;
      const { latency_ms, slot } = own.body as typeof PROBE;
      return n % 7 === 0 ? own : { ...own, name, type, producer, body: { ...body, latency_ms, slot } };
    });
    return [...first, ...repeats];
  });

function recordOf({ name, body, type, producer, time, edit, key, eventId }: Drawn, offset: number): LogRecord {
  const cap = capOf(name);
  const own = type !== "own" ? type : Object.hasOwn(body, "tool") ? "mcp.probe" : "handshake";
  const event_id = recordId(own, cap, String(offset % 50));
  const text = canonicalText({ body, cap, event_id, key: cap, observed_at: time, producer, type: own, v: 1 });
  return {
    ...{ topic: "observations.free", partition: PARTITION, offset, key: key ?? cap, eventId: eventId ?? event_id },
    ...{ value: Buffer.from(edit ? edit(text) : text), appendedAt: new Date(1_760_000_000_000 + offset) },
  };
}

/** The segment of a batch's rows, offsets of those that are refused, and how many were known. */
function made(batch: OpenedBatch, topic: string, mayKnow: boolean) {
  const segment = new Segment({ topic, partition: PARTITION });
  const refused: number[] = [];
  let known = 0;
  for (let i = 0; i < batch.count; i++) {
    if (mayKnow && segment.addKnown(batch, i)) {
      known++;
      continue;
    }
    const read = readRow(batch.opened(i));
    if (read.ok) segment.add(read.row);
    else refused.push(batch.offset(i));
  }
  return { known, rows: segment.rows, refused, bytes: Buffer.from(segment.close()).toString("base64") };
}

describe("a probe that repeats what came before it", () => {
  test("makes the row that it makes when it is read whole, and none that is refused, whatever is changed in it", async () => {
    let [all, refused] = [0, 0];
    const topics = fc.constantFrom("observations.free", "observations.mcp");
    await fc.assert(
      fc.asyncProperty(topics, runs, async (topic, run) => {
        const batch = await openPacked(topic, PARTITION, await packedOf(run.map(recordOf)));
        const { known, ...rows } = made(batch, topic, true);
        const { known: _, ...wanted } = made(batch, topic, false);
        expect(rows).toEqual(wanted);
        all += known;
        refused += rows.refused.length;
      }),
      { numRuns: 250 },
    );
    expect(Math.min(all, refused)).toBeGreaterThan(1_000);
  });

  test("is known by any character of its own: each of them changed, it is read as it is read whole", async () => {
    const base: Drawn = {
      ...{ name: "a", type: "own", producer: "test/1", time: "2026-02-27T10:11:12.013Z", edit: null, key: null },
      ...{ eventId: null, body: { ...PROBE, terms: TERMS } },
    };
    const { length } = recordOf(base, 0).value;
    const changed = Array.from({ length }, (_, at) => at).flatMap((at) =>
      ["0", "z", '"', "\\"].map((piece): Drawn => {
        return { ...base, edit: (text) => text.slice(0, at) + piece + text.slice(at + 1) };
      }),
    );
    const records = [base, base, ...changed].map(recordOf);
    const batch = await openPacked("observations.free", PARTITION, await packedOf(records));
    const { known, ...rows } = made(batch, "observations.free", true);
    const { known: _, ...wanted } = made(batch, "observations.free", false);
    expect(rows).toEqual(wanted);
    expect(known).toBeGreaterThan(50);
    expect(rows.refused.length).toBeGreaterThan(500);
  });

  test.each([
    ["a minute of the next slot", { slot: { block: 80_000, minute: 360 } }],
    ["a minute below zero", { slot: { block: 80_000, minute: -1 } }],
    ["a time below zero", { latency_ms: -1 }],
  ])("is refused as ever with %s", async (_, over) => {
    const base = { name: "a", type: "own", producer: "test/1", time: "2026-02-27T10:11:12.013Z" };
    const [first, second] = [PROBE, { ...PROBE, ...over }].map((body): Drawn => {
      return { ...base, body, edit: null, key: null, eventId: null };
    });
    const records = [first!, first!, second!, first!].map(recordOf);
    const batch = await openPacked("observations.free", PARTITION, await packedOf(records));
    expect(made(batch, "observations.free", true)).toMatchObject({ known: 2, rows: 3, refused: [2] });
  });
});
