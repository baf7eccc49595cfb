import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { canonicalText } from "../../../infra/canonical.ts";
import type { LogRecord } from "../../../infra/log/log.ts";
import { shapeOf } from "../../../pipelines/2-ingest/body-shape.ts";
import { scanMember } from "../../../pipelines/2-ingest/json-text.ts";
import { plainRow, textOf as textOfBytes } from "../../../pipelines/2-ingest/plain.ts";
import { compileQuick, isQuickEnvelope, isQuickType, translated } from "../../../pipelines/2-ingest/quick.ts";
import { readRow } from "../../../pipelines/2-ingest/row.ts";
import { bodyBytes, type Row } from "../../../pipelines/2-ingest/segment.ts";
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

describe("the quick verdict", () => {
  test("stands for every type of record, so none is slow for want of a word", () => {
    expect(Object.keys(BODIES).filter((type) => !isQuickType(type))).toEqual([]);
    expect(isQuickType("constructor")).toBe(false);
  });

  test("takes every record that we write, and every golden one", () => {
    for (const text of texts) {
      const read = zodSays(text);
      if (!read.ok) throw new Error(read.reason);
      expect(isQuickEnvelope(JSON.parse(text))).toBe(true);
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
        const quick = isQuickEnvelope(JSON.parse(changed));
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
      expect(compileQuick(schema)).toBeNull();
    expect(compileQuick(z.looseObject({ name }))?.({ name: "x" })).toBe(true);
  });
});

describe("the shape of a body", () => {
  const judged = texts.map((text) => {
    const envelope = JSON.parse(text) as Envelope;
    const body = canonicalText(envelope.body);
    return { envelope, body, shape: shapeOf(translated(BODIES[envelope.type])!, JSON.parse(body)) };
  });
  const isWhole = (shape: RegExp, text: string): boolean => {
    shape.lastIndex = 0;
    return shape.test(text) && shape.lastIndex === text.length;
  };

  test("is found for every record that we write, and fits the record itself", () => {
    for (const { body, shape } of judged) expect(shape && isWhole(shape, body), body).toBe(true);
  });

  test("fits nothing that zod does not take as it is, whatever member or character is changed", () => {
    const places = judged.flatMap((one) => pathsOf(JSON.parse(one.body)).map((path) => ({ ...one, path })));
    const near = fc.oneof(
      fc.constantFrom<unknown>(null, true, false, 0, 1, -1, 0.5, 35, 36, 359, 360, 1e15, 999_999_999_999_999, "", "x"),
      fc.constantFrom("0.020000", "1.2", "2026-11-10T02:00:00.000Z", "ab".repeat(32), "AB".repeat(32), "1".repeat(78)),
      fc.integer({ min: 58, max: 62 }).map((n) => "x".repeat(n)),
      odd,
    );
    const edit = fc.record({
      piece: fc.constantFrom("", "0", "1", "9", "-", ".", "e5", '"', "\\", ",", "{", "}", "]", " ", "é", "null", ":"),
      at: fc.nat(),
      cut: fc.nat({ max: 2 }),
    });
    const mutated = fc.oneof(
      fc.tuple(fc.constantFrom(...places), near).map(([{ path, ...one }, value]) => {
        return { ...one, changed: JSON.stringify(put(JSON.parse(one.body), path, () => value)) ?? "null" };
      }),
      fc.tuple(fc.constantFrom(...judged), edit).map(([one, { piece, at, cut }]) => {
        const from = at % one.body.length;
        return { ...one, changed: one.body.slice(0, from) + piece + one.body.slice(from + cut) };
      }),
    );
    let fitting = 0;
    fc.assert(
      fc.property(mutated, ({ envelope, body, shape, changed }) => {
        if (!isWhole(shape!, changed)) return;
        if (changed !== body) fitting++;
        const read = zodSays(JSON.stringify({ ...envelope, body: 0 }).replace('"body":0', () => `"body":${changed}`));
        if (!read.ok) throw new Error(`${changed}: ${read.reason}`);
        expect(read.envelope.body).toEqual(JSON.parse(changed));
        expect(scanMember(`{"body":${changed}}`, "body")).toMatchObject({ text: changed, odd: false });
      }),
      { numRuns: 6_000 },
    );
    expect(fitting).toBeGreaterThan(300);
  });

  test.each([
    [
      z.looseObject({ n: z.int().min(0).max(359) }),
      "n",
      ["0", "9", "10", "99", "100", "299", "350", "359"],
      ["360", "400", "00", "-0", "1.5"],
    ],
    [z.looseObject({ n: z.int().min(0).max(36) }), "n", ["0", "7", "36"], ["37", "40", "036"]],
    [z.looseObject({ n: z.int().min(0).max(5) }), "n", ["0", "5"], ["6", "-1"]],
    [z.looseObject({ n: z.number().min(0).max(1) }), "n", ["0", "1", "0.25"], ["1.5", "-0.5", "2", "0.1e1"]],
    [z.looseObject({ n: z.number().gt(0).max(1) }), "n", ["1", "0.5", "0.000001"], ["0", "0.0", "-0.5", "1.1", "1e-3"]],
    [z.looseObject({ n: z.int().min(1).max(1_000_000) }), "n", ["1", "10", "999999", "1000000"], ["0", "1000001"]],
    [z.looseObject({ n: z.string().max(3) }), "n", ['""', '"abc"'], ['"abcd"', '"é"', '"\\n"', "null"]],
    [
      z.looseObject({
        n: z
          .string()
          .regex(/^a{2}$/)
          .nullable(),
      }),
      "n",
      ['"aa"', "null"],
      ['"aaa"', '"a"'],
    ],
  ])("keeps to the bounds of its members: %#", (schema, name, fits, not) => {
    const shape = shapeOf(translated(schema)!, { [name]: null })!;
    for (const text of fits) expect(isWhole(shape, `{"${name}":${text}}`), text).toBe(true);
    for (const text of not) expect(isWhole(shape, `{"${name}":${text}}`), text).toBe(false);
  });

  test("is not made where its members do not stand each for itself, or a text may reach over its end", () => {
    const none = (schema: z.ZodType, value: unknown) => expect(shapeOf(translated(schema)!, value)).toBeNull();
    none(z.looseObject({ n: z.string().regex(/^.*$/) }), { n: "x" });
    none(z.looseObject({ n: z.string().regex(/^a|b$/) }), { n: "a" });
    none(z.looseObject({ n: z.string().regex(/a/) }), { n: "a" });
    none(z.looseObject({ n: z.number().gt(3) }), { n: 1 });
    none(z.strictObject({ n: z.string() }), { n: "x", more: 1 });
    none(z.looseObject({ n: z.string() }), { more: 1 });
    none(z.looseObject({ n: z.array(z.string()).max(1) }), { n: ["a", "b"] });
    none(z.looseObject({}), { é: 1 });
  });
});

describe("a row", () => {
  const recordOf = (text: string): LogRecord => {
    const { event_id, key, type } = JSON.parse(text) as Envelope;
    const place = { topic: TOPIC_OF[type], partition: 0, offset: 7, appendedAt: new Date(0) };
    return { ...place, eventId: event_id, key, value: Buffer.from(text) };
  };

  const bodyOf = ({ body }: Row): string => Buffer.from(bodyBytes(body)).toString();

  /** Types whose bodies take no member that they do not name. */
  const STRICT = ["paid.commitment"];

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
        const kept = bodyOf(read.row);
        expect(all).toContain(kept);
        expect(JSON.parse(kept)).toEqual(JSON.parse(all).body);
      }),
    );
  });

  test("is read at a glance in the form that we write, and member by member in any other, to the same end", () => {
    const member = fc.constantFrom("body", "cap", "event_id", "key", "observed_at", "producer", "type", "v");
    const change = fc.oneof(
      fc.constant((text: string) => text),
      fc.tuple(member, fc.jsonValue({ maxDepth: 1 })).map(
        ([name, value]) =>
          (text: string) =>
            text.replace(/(?=,"(?:cap|event_id)":)/, `,"${name}":${JSON.stringify(value)}`),
      ),
      fc.constantFrom("\\", '"', "{", "}", ",", "1e5", " ", "\t", "\u0000", "\ufffd", "é", "__proto__").chain((piece) =>
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
    const glance = (record: LogRecord) => plainRow(record, textOfBytes(record.value));
    for (const text of ours) expect(glance(recordOf(text)), text).not.toBeNull();
    const sorted = texts.map((text) => canonicalText(JSON.parse(text)));
    fc.assert(
      fc.property(fc.constantFrom(...sorted), change, (text, changed) => {
        const record = { ...recordOf(text), value: Buffer.from(changed(text)) };
        const row = glance(record);
        // A first member that nobody knows makes it read member by member; nothing else may differ by it.
        const around = record.value.toString().replace("{", '{"zzz":1,');
        const read = readRow({ ...record, value: Buffer.from(around) });
        if (row === null) return;
        if (!read.ok) throw new Error(`${changed(text)}: ${read.rejected.reason}`);
        const shown = (one: Row) => ({ ...one, body: bodyOf(one) });
        expect(shown(read.row)).toEqual({ ...shown(row), extra: '{"zzz":1}' });
      }),
      { numRuns: 2_000 },
    );
  });

  test("a body said twice is the last one, as JSON.parse takes it", () => {
    const text = ours[0]!;
    const { body } = JSON.parse(text) as Envelope;
    const twice = text.replace('{"body":', `{"body":{"first":1},"body":`);
    const read = readRow(recordOf(twice));
    if (!read.ok) throw new Error(read.rejected.reason);
    expect(JSON.parse(bodyOf(read.row))).toEqual(body);
  });

  test("a member called __proto__ changes nothing and is not lost from the body", () => {
    const text = ours[0]!.replace('{"body":{', '{"body":{"__proto__":{"live":1},');
    const read = readRow(recordOf(text));
    if (!read.ok) throw new Error(read.rejected.reason);
    expect(bodyOf(read.row)).toContain('"__proto__":{"live":1}');
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
