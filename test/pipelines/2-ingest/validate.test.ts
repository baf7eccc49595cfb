import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { canonicalText } from "../../../infra/canonical.ts";
import type { LogRecord } from "../../../infra/log/log.ts";
import { linePartsOf } from "../../../pipelines/2-ingest/day-segments.ts";
import { readRow } from "../../../pipelines/2-ingest/row.ts";
import { compile, isValid, matchBulkRecord, textPattern } from "../../../pipelines/2-ingest/validate.ts";
import { BODIES, TOPIC_OF } from "../../../pipelines/record/bodies.ts";
import { type Envelope, readEnvelope } from "../../../pipelines/record/envelope.ts";
import { fc } from "../../helpers/histories.ts";
import { at, correction, handshake, intent, listing, result, settlement } from "./records.ts";

const GOLDEN = new URL("../record/records-v1.golden.json", import.meta.url);
const golden = Object.values(JSON.parse(readFileSync(GOLDEN, "utf8")) as Record<string, unknown>).map(textOf);
const ours = [
  handshake("a", at("02:00:00")),
  listing("a", at("02:00:00")),
  intent("a", at("02:00:00")),
  correction("a", at("02:00:00"), { record_id: null }),
].map(({ value }) => Buffer.from(value).toString());
const sent = intent("b", at("03:00:00")).eventId;
const after = [result("b", sent, at("03:01:00")), settlement("b", sent, at("03:02:00"))];
const texts = [...golden, ...ours, ...after.map(({ value }) => Buffer.from(value).toString())];

/** The record's text, however the golden file keeps it. */
function textOf(one: unknown): string {
  if (typeof one === "string") return one;
  return JSON.stringify(one);
}

const zodSays = (text: string) => readEnvelope(Buffer.from(text));

/** Every path into a JSON value, the value itself first. */
function pathsOf(value: unknown, path: string[] = []): string[][] {
  if (typeof value !== "object" || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([name, member]) => pathsOf(member, [...path, name]))];
}

function put(value: unknown, path: readonly string[], change: (old: unknown) => unknown): unknown {
  const [name, ...rest] = path;
  if (name === undefined) return change(value);
  const copy = (Array.isArray(value) ? [...value] : { ...(value as object) }) as Record<string, unknown>;
  const next = put(copy[name], rest, change);
  if (next === undefined) delete copy[name];
  else copy[name] = next;
  return copy;
}

const odd = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }),
  fc.constantFrom(
    undefined,
    null,
    "",
    -1,
    1.5,
    360,
    2 ** 53,
    1e300,
    true,
    [],
    {},
    "\u{1f600}".repeat(160),
    "é".repeat(301),
  ),
  fc.nat({ max: 70_000 }).map((n) => "x".repeat(n)),
  fc.constantFrom(31, 60, 61, 120, 121, 160, 200, 201, 301, 1_001, 2_001).map((n) => "\u{1f600}".repeat(n)),
  fc.nat({ max: 70 }).map((n) => Array.from({ length: n }, () => ({ defect: "d", says: "s" }))),
);

describe("the compiled schema", () => {
  test("stands for every type of record, so none is slow for want of a word", () => {
    expect(Object.entries(BODIES).filter(([, schema]) => !compile(schema))).toEqual([]);
    expect(isValid({ ...JSON.parse(texts[0]!), type: "constructor" })).toBe(false);
  });

  test("takes every record that we write, and every golden one", () => {
    for (const text of texts) {
      const read = zodSays(text);
      if (!read.ok) throw new Error(read.reason);
      expect(isValid(JSON.parse(text))).toBe(true);
      expect(read.envelope).toEqual(JSON.parse(text));
    }
  });

  test("says yes exactly where zod does and leaves the value as it is, whatever member is changed", () => {
    const places = texts.flatMap((text) => pathsOf(JSON.parse(text)).map((path) => ({ text, path })));
    let taken = 0;
    let refused = 0;
    fc.assert(
      fc.property(fc.constantFrom(...places), odd, ({ text, path }, value) => {
        const changed = JSON.stringify(put(JSON.parse(text), path, () => value)) ?? "null";
        const read = zodSays(changed);
        const quick = isValid(JSON.parse(changed));
        // Lengths of the envelope's own members are taken more strictly, which only costs time.
        const stricter = read.ok && path.length === 1;
        if (!stricter || quick) expect({ changed, quick }).toEqual({ changed, quick: read.ok });
        if (read.ok) expect(read.envelope).toEqual(JSON.parse(changed));
        if (quick) taken++;
        else refused++;
      }),
      { numRuns: 4_000 },
    );
    expect(Math.min(taken, refused)).toBeGreaterThan(200);
  });

  test("asks zod where JSON Schema has no word for what a schema does", () => {
    const name = z.string();
    for (const schema of [
      z.looseObject({ name: name.refine((text) => text !== "x") }),
      z.looseObject({ name: name.trim() }),
      z.looseObject({ name: name.default("x") }),
      z.looseObject({ name: name.transform((text) => text.length) }),
      z.looseObject({ name: name.catch("x") }),
      z.looseObject({ name: z.date() }),
      z.looseObject({ name: z.url() }),
      z.looseObject({ name: name.regex(/a/).regex(/b/) }),
      z.looseObject({ constructor: name }),
      z.looseObject({ deep: z.array(z.looseObject({ name: name.refine(() => false) })) }),
    ])
      expect(compile(schema)).toBeNull();
    expect(compile(z.looseObject({ name }))?.({ name: "x" })).toBe(true);
  });
});

describe("a row", () => {
  const recordOf = (text: string): LogRecord => {
    const { event_id, key, type } = JSON.parse(text) as Envelope;
    const place = { topic: TOPIC_OF[type], partition: 0, offset: 7, appendedAt: new Date(0) };
    return { ...place, eventId: event_id, key, value: Buffer.from(text) };
  };

  /** Types whose bodies take no member that they do not name. */
  const STRICT = ["paid.commitment", "web.receipt"];

  test("keeps the body's bytes as they came, whichever way it was read", () => {
    const spaced = fc.constantFrom(undefined, 1, "\t");
    const more = fc.oneof(fc.jsonValue({ maxDepth: 3 }), fc.constantFrom(1e21, 1e-7, -0, "\\", "\u2028", "é", "e+1"));
    fc.assert(
      fc.property(fc.constantFrom(...texts), more, spaced, fc.boolean(), (text, value, space, sorted) => {
        const changed = JSON.parse(text) as Envelope;
        const body = sorted ? changed.body : { zzz: value, ...changed.body };
        const all = JSON.stringify({ ...changed, body }, null, space);
        const read = readRow(recordOf(all));
        if (!sorted && STRICT.includes(changed.type)) {
          expect(read.ok).toBe(false);
          return;
        }
        if (!read.ok) throw new Error(read.rejected.reason);
        const kept = read.row.body;
        expect(all).toContain(kept);
        expect(JSON.parse(kept)).toEqual(JSON.parse(all).body);
      }),
    );
  });

  test("any change of a record is refused, or gives a row whose body is that of its JSON", () => {
    const pieces = ["\\", '"', "{", "}", ",", "1e5", " ", "\t", "\n", "\u0000", "\u001f", "\ufffd", "é", "__proto__"];
    const change = fc.oneof(
      fc.constantFrom(...pieces).chain((piece) =>
        fc.nat().map((n) => (text: string) => {
          const at = n % text.length;
          return text.slice(0, at) + piece + text.slice(at);
        }),
      ),
      fc.nat().map((n) => (text: string) => text.slice(0, n % text.length) + text.slice((n % text.length) + 1)),
      fc.integer({ min: 295, max: 305 }).map((n) => (text: string) => text.replace("{", `{"x":${"9".repeat(n)},`)),
      fc.integer({ min: 60, max: 66 }).map((n) => (text: string) => {
        const nested = `"x":${"[".repeat(n)}${"]".repeat(n)},`;
        return text.replace('{"body":{', `{"body":{${nested}`);
      }),
    );
    const sorted = texts.map((text) => canonicalText(JSON.parse(text)));
    let [taken, refused] = [0, 0];
    fc.assert(
      fc.property(fc.constantFrom(...sorted), change, (text, changed) => {
        const value = Buffer.from(changed(text));
        const read = readRow({ ...recordOf(text), value });
        if (!read.ok) {
          refused++;
          expect(Buffer.from(read.rejected.raw, "base64").equals(value)).toBe(true);
          return;
        }
        taken++;
        const zod = readEnvelope(value);
        if (!zod.ok) throw new Error(zod.reason);
        expect(JSON.parse(read.row.body)).toEqual((JSON.parse(value.toString()) as Envelope).body);
        const line = linePartsOf(read.row).join("");
        expect(line.split("\x1f")).toHaveLength(11);
        expect(line.indexOf("\n")).toBe(line.length - 1);
      }),
      { numRuns: 2_000 },
    );
    expect(Math.min(taken, refused)).toBeGreaterThan(50);
  });

  test("a body said twice is the last one, as JSON.parse takes it", () => {
    const text = ours[0]!;
    const { body } = JSON.parse(text) as Envelope;
    const twice = text.replace('{"body":', `{"body":{"first":1},"body":`);
    const read = readRow(recordOf(twice));
    if (!read.ok) throw new Error(read.rejected.reason);
    expect(JSON.parse(read.row.body)).toEqual(body);
  });

  test("a member called __proto__ changes nothing and is not lost from the body", () => {
    const text = ours[0]!.replace('{"body":{', '{"body":{"__proto__":{"live":1},');
    const read = readRow(recordOf(text));
    if (!read.ok) throw new Error(read.rejected.reason);
    expect(read.row.body).toContain('"__proto__":{"live":1}');
  });

  test("a version with a zero in front is no JSON, and refused", () => {
    for (const text of texts.map((one) => canonicalText(JSON.parse(one)))) {
      const value = Buffer.from(text.replace(/"v":1\}$/, '"v":01}'));
      const read = readRow({ ...recordOf(text), value });
      expect(read).toMatchObject({ ok: false, rejected: { reason: expect.stringMatching(/not JSON/) } });
    }
  });

  test("half a character is refused with its bytes", () => {
    const bytes = Buffer.from(ours[0]!);
    bytes[bytes.indexOf("test/1")] = 0xc3;
    const read = readRow({ ...recordOf(ours[0]!), value: bytes });
    expect(read).toMatchObject({ ok: false, rejected: { reason: expect.stringMatching(/not JSON/) } });
  });
});

describe("the pattern of the two bulk types", () => {
  const isBulk = (text: string) => /"type":"(?:handshake|mcp\.probe)","v":1\}$/.test(text);
  const full = handshake("a", at("02:00:00"), {
    says: "it said (so), 50% of it",
    control: { url: "https://control.example/", ok: false, at: at("02:00:01") },
    signed_offers: { present: 2, unread: 0, valid: 1, authorised: 1 },
    latency_ms: 812.5,
    differs: [{ defect: "price_differs", says: "dearer" }],
    url: "https://s.example/a?b=1",
    method: "POST",
  });
  const canonical = [...texts, Buffer.from(full.value).toString()]
    .map((text) => canonicalText(JSON.parse(text)))
    .filter(isBulk);

  /** What the pattern takes is what zod takes, unchanged, with the body's own bytes. */
  function sound(text: string): boolean {
    const found = matchBulkRecord(text);
    if (found === null) return false;
    const read = zodSays(text);
    if (!read.ok) throw new Error(`matched, and zod says ${read.reason}: ${text}`);
    const { body, ...rest } = found;
    expect({ ...rest, body: JSON.parse(body) }).toEqual(read.envelope);
    expect(JSON.parse(text)).toEqual(read.envelope);
    expect(text.slice('{"body":'.length)).toSatisfy((after: string) => after.startsWith(body));
    return true;
  }

  test("takes the records of both types that we write", () => {
    expect(canonical.length).toBeGreaterThanOrEqual(3);
    for (const text of canonical) expect(sound(text), text).toBe(true);
  });

  test("takes no value that zod refuses, whatever member is changed", () => {
    const places = canonical.flatMap((text) => pathsOf(JSON.parse(text)).map((path) => ({ text, path })));
    let taken = 0;
    fc.assert(
      fc.property(fc.constantFrom(...places), odd, ({ text, path }, value) => {
        if (sound(JSON.stringify(put(JSON.parse(text), path, () => value)) ?? "null")) taken++;
      }),
      { numRuns: 4_000 },
    );
    expect(taken).toBeGreaterThan(100);
  });

  test("takes no text that zod refuses, whatever characters are changed: 100,000 texts", () => {
    const parts = [
      ...'"\\{}[],:.-+0123456789eEtfn \n\u0001\u00e9\ud83dZT',
      '"live"',
      "null",
      '"a":1,',
      "1e5",
      "-0",
      "01",
      "\\u0041",
    ];
    const random = fc.sample(fc.nat({ max: 2 ** 30 }), { numRuns: 300_000, seed: 31 });
    let taken = 0;
    for (let n = 0; n < 100_000; n++) {
      const text = canonical[n % canonical.length]!;
      const at = random[3 * n]! % text.length;
      const cut = random[3 * n + 1]! % 3;
      const put = parts[random[3 * n + 2]! % parts.length]!;
      if (sound(`${text.slice(0, at)}${put}${text.slice(at + cut)}`)) taken++;
    }
    expect(taken).toBeGreaterThan(1_000);
  });

  test.each<[string, z.ZodType]>([
    ["a pattern with alternatives", z.string().regex(/^a|b$/)],
    ["a pattern without ends", z.string().regex(/a/)],
    ["a pattern that takes a quote", z.string().regex(/^[ -~]{3}$/)],
    [
      "a pattern with a length beside it",
      z
        .string()
        .regex(/^a{9}$/)
        .max(3),
    ],
    ["no members at all", z.looseObject({})],
    ["no member that is required", z.looseObject({ a: z.string().optional() })],
    ["an empty list alone", z.array(z.string()).max(0)],
    ["a list of unknown values", z.looseObject({ a: z.array(z.unknown()) })],
    ["a number between bounds", z.looseObject({ a: z.number().min(2).max(3.5) })],
    ["a multiple", z.looseObject({ a: z.int().multipleOf(5) })],
    ["a constant", z.looseObject({ a: z.literal('x"y') })],
    ["a record of texts", z.looseObject({ a: z.record(z.string(), z.string()) })],
  ])("is not made of %s", (_name, schema) => {
    expect(textPattern(z.toJSONSchema(schema) as Parameters<typeof textPattern>[0])).toBeNull();
  });

  test("counts to every bound digit by digit", () => {
    for (const most of [1, 9, 10, 36, 99, 100, 359, 1000, 1099]) {
      const pattern = textPattern({ type: "integer", minimum: 0, maximum: most });
      for (let n = 0; n <= 12_000; n++)
        expect(new RegExp(`^${pattern}$`).test(String(n)), `${n} of ${most}`).toBe(n <= most);
      for (const text of ["", "-1", "00", "01", "1.0"]) expect(new RegExp(`^${pattern}$`).test(text)).toBe(false);
    }
  });
});
