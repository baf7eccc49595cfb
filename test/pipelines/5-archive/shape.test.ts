import { describe, expect, test } from "vitest";
import { IdDigest } from "../../../pipelines/5-archive/id-digest.ts";
import { LinePiece } from "../../../pipelines/5-archive/line-piece.ts";
import { probeLine } from "../../../pipelines/5-archive/probe-line.ts";
import { ProbeRecords } from "../../../pipelines/5-archive/probe-records.ts";
import { ProbeShape } from "../../../pipelines/5-archive/probe-shape.ts";
import { openTestWorld } from "../2-ingest/world.ts";

const CAP = `cap_${"A".repeat(26)}`;
const ID = `rec_${"B".repeat(26)}`;
const TIME = "2026-11-10T05:06:07.089Z";
const SHA = "ab".repeat(32);
const CUT = "\x1f";

interface Cuts {
  measured: string;
  slot: string;
  sha: string;
}
const plain: Cuts = { measured: "120.5", slot: '{"block":1,"minute":2}', sha: SHA };

/** A body of an asked probe with these cuts, as its shape and as it was. */
function asked({ measured, slot, sha }: Cuts, before = '{"differs":[],"fault":null,"honest":true,"latency_ms":') {
  const pieces = [
    before,
    ',"live":true,"price":"0.020000","slot":',
    ',"state":"asked","status":402,"terms":{"offers":[{"asset":"é\\",","network":"n","payable":true}],"protocols":["x402"],"sha256":"',
    '","x402_version":1},"wall":false}',
  ];
  const cuts = [measured, slot, sha];
  return { shape: pieces.join(CUT), body: pieces.reduce((text, piece, n) => text + cuts[n - 1] + piece) };
}

const recordOf = ({ measured, slot, sha }: Cuts) => [ID, TIME, measured, slot, sha].join(CUT);
/** What a shape makes of one record of it. */
function lineOf(shape: string, cuts: Cuts): string {
  const records = Buffer.from(`${recordOf(cuts)}\x1e`);
  const piece = new LinePiece();
  new ProbeShape(CAP, shape, false).write(
    new ProbeRecords([{ cap: CAP, shape, count: 1, look: "", records }]),
    0,
    piece,
  );
  expect(piece.ids.toString()).toBe(ID);
  return piece.text.toString("utf8");
}
const alone = (body: string) => `${probeLine({ event_id: ID, cap: CAP, t: Date.parse(TIME), body }, false)}\n`;

describe("a line out of a shape is the line of the record", () => {
  test.each<[string, Partial<Cuts>]>([
    ["as we write it", {}],
    ["nothing measured", { measured: "null" }],
    ["a number of one digit", { measured: "7" }],
    ["fifteen digits", { measured: "123456789.123456" }],
    ["a number of another print", { measured: "120.50" }],
    ["a number with an exponent", { measured: "1.205e2" }],
    ["a number of more digits than a double has", { measured: "0.30000000000000004000" }],
    ["a small number", { measured: "0.0000001" }],
    ["minus nothing", { measured: "-0" }],
    ["spaces", { measured: " 120.5 " }],
    ["another slot", { slot: '{"block":1,"minute":2,"more":{"latency_ms":9}}' }],
    ["members where the slot is", { slot: '{"block":1},"status":200,"slot":{"block":2}' }],
    ["a second number where the first is", { measured: '5,"latency_ms":6' }],
    ["members where the number is", { measured: '5,"price":"0.070000"' }],
    ["a shorter hash", { sha: "ab" }],
    ["a hash with an escape", { sha: `\\u0061${SHA.slice(0, 58)}` }],
  ])("%s", (_, over) => {
    const cuts = { ...plain, ...over };
    const { shape, body } = asked(cuts);
    expect(lineOf(shape, cuts)).toBe(alone(body));
  });

  test.each<[string, string]>([
    ["a member of that name elsewhere", '{"control":{"a":1,"latency_ms":'],
    ["the same member before", '{"control":{"latency_ms":3},"differs":[],"fault":"ours","latency_ms":'],
    ["in an array", '{"differs":[{"x":1,"latency_ms":'],
  ])("where the number is %s", (_, before) => {
    const closed = before.includes("fault")
      ? plain.measured
      : `${plain.measured}}${before.includes("[") ? "]" : ""},"latency_ms":44`;
    const cuts = { ...plain, measured: closed };
    const { shape, body } = asked(cuts, before);
    JSON.parse(body);
    expect(lineOf(shape, cuts)).toBe(alone(body));
  });

  test("nothing was cut out", () => {
    const { body } = asked(plain);
    expect(lineOf(body, { measured: "", slot: "", sha: "" })).toBe(alone(body));
  });
});

test("ids have one digest, in the engine and here", async () => {
  const world = await openTestWorld();
  try {
    const ids = Array.from({ length: 50 }, (_, n) => `rec_${n}`);
    const digest = new IdDigest();
    for (const id of ids) digest.add(id);
    const query = `SELECT bit_xor(md5_number(id))::VARCHAR AS digest FROM (SELECT unnest(from_json($ids, '["VARCHAR"]')) AS id)`;
    expect(await world.lake.all(query, { ids: JSON.stringify(ids) })).toEqual([{ digest: digest.value() }]);
  } finally {
    await world.close();
  }
});
