import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { canonicalBytes } from "../../../infra/canonical.ts";
import { BODIES, type RecordType, TOPIC_OF } from "../../../pipelines/record/bodies.ts";
import { type Envelope, readEnvelope, sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { recordId } from "../../../pipelines/record/ids.ts";

/** One record of every type, version 1: bytes that every later reader must still take. */
const golden = JSON.parse(readFileSync(join(import.meta.dirname, "records-v1.golden.json"), "utf8")) as Envelope[];

describe("golden records of version 1", () => {
  test("there is one of every type", () => {
    expect(new Set(golden.map((record) => record.type))).toEqual(new Set(Object.keys(BODIES)));
  });

  test("a charge and a hold given back stand there in both forms: for good, and in a block that may vanish", () => {
    const bodies = golden.flatMap(({ type, body }) => (type === "order.step" ? [body as Record<string, unknown>] : []));
    const finals = (state: string) => bodies.filter((one) => one.state === state).map(({ final }) => final);
    expect([finals("settled"), finals("voided")]).toEqual([[undefined, false], [false]]);
  });

  test.each(golden.map((record) => [record.type, record] as const))("%s reads back byte for byte", (type, record) => {
    const sealed = sealEnvelope(record, 4);
    expect(Buffer.from(sealed.value).toString()).toBe(canonicalBytes(record).toString());
    expect(sealed.topic).toBe(TOPIC_OF[type as RecordType]);
    const read = readEnvelope(sealed.value);
    expect(read).toEqual({ ok: true, envelope: record });
  });
});

const one = golden[0]!;
const changed = (change: object): Uint8Array => canonicalBytes({ ...one, ...change });

describe("bytes that are no record come back with a reason", () => {
  test.each<[string, Uint8Array, RegExp]>([
    ["no JSON", Buffer.from("{"), /not JSON/],
    ["no UTF-8", Buffer.from([0xff, 0xfe, 0x7b]), /not JSON/],
    ["an array", Buffer.from("[]"), /envelope/],
    ["null", Buffer.from("null"), /not an object/],
    ["a version from the future", changed({ v: 2 }), /version 2 is from the future/],
    ["version zero", changed({ v: 0 }), /version 0 was never written/],
    ["an unknown type", changed({ type: "gossip" }), /unknown type/],
    ["a type of Object's own", changed({ type: "constructor" }), /unknown type/],
    ["a time without milliseconds", changed({ observed_at: "2026-11-15T00:00:00Z" }), /observed_at/],
    ["an id of another kind", changed({ event_id: "cap_00000000000000000000000000" }), /event_id/],
    ["a body of another type", changed({ body: {} }), /body|slot|expected/],
  ])("%s", (_name, bytes, reason) => {
    const read = readEnvelope(bytes);
    expect(read.ok).toBe(false);
    expect((read as { reason: string }).reason).toMatch(reason);
  });

  test("an unknown member is kept", () => {
    const read = readEnvelope(changed({ body: { ...one.body, later: { x: 1 } }, extra: "y" }));
    expect(read).toMatchObject({ ok: true, envelope: { extra: "y", body: { later: { x: 1 } } } });
  });
});

test("we never write what we would not read", () => {
  expect(() => sealEnvelope({ ...one, body: {} } as unknown as Envelope, 4)).toThrow();
  expect(() => sealEnvelope({ ...one, event_id: "x" }, 4)).toThrow();
});

test("a copy of a record has the same id, known before the act", () => {
  expect(recordId("handshake", "k", "1/2", 0)).toBe(recordId("handshake", "k", "1/2", 0));
  expect(recordId("handshake", "k", "1/2", 1)).not.toBe(recordId("handshake", "k", "1/2", 0));
});
