import { describe, expect, test } from "vitest";
import { IdDigest } from "../../../pipelines/5-archive/id-digest.ts";
import { LinePiece } from "../../../pipelines/5-archive/line-piece.ts";
import { probeLine } from "../../../pipelines/5-archive/probe-line.ts";
import { ProbeRecords } from "../../../pipelines/5-archive/probe-records.ts";
import { ProbeShape } from "../../../pipelines/5-archive/probe-shape.ts";
import { fc } from "../../helpers/histories.ts";
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
/** What a shape makes of records of it, one behind the other. */
function linesOf(shape: string, all: readonly Cuts[], isTool: boolean): string {
  const text = all.map((cuts) => `${recordOf(cuts)}\x1e`).join("");
  const records = new ProbeRecords([
    { cap: CAP, shape, isIngested: false, count: all.length, look: "", records: Buffer.from(text) },
  ]);
  const [made, piece] = [new ProbeShape(CAP, shape, isTool, false), new LinePiece()];
  for (const n of all.keys()) made.write(records, n, piece);
  expect(piece.ids.toString()).toBe(ID.repeat(all.length));
  return piece.text.toString("utf8");
}
const lineOf = (shape: string, ...all: Cuts[]): string => linesOf(shape, all, false);
const alone = (body: string, isTool = false): string =>
  `${probeLine({ event_id: ID, cap: CAP, t: Date.parse(TIME), body }, isTool)}\n`;

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
    ["a number of ten digits", { measured: "1234567890.5" }],
    ["seven decimals", { measured: "1.1234567" }],
    ["a slot with something behind it", { slot: '{"block":1,"minute":2} ' }],
    ["a hash of large letters", { sha: SHA.toUpperCase() }],
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

  test.each<[string, Partial<Cuts>]>([
    ["a zero too many in front", { measured: "007" }],
    ["half of a word", { measured: "nul" }],
    ["a point with nothing behind it", { measured: "5." }],
    ["a slot without a number", { slot: '{"block":,"minute":2}' }],
  ])("what is no JSON makes no line: %s", (_, over) => {
    const cuts = { ...plain, ...over };
    expect(() => lineOf(asked(cuts).shape, cuts)).toThrow(SyntaxError);
  });

  test("also behind records of the same shape with other times and hashes", () => {
    const measured = fc.constantFrom("null", "0", "7.25", "120.5", "1e3", "99999.999999");
    const sha = fc.constantFrom(SHA, "cd".repeat(32), `${SHA.slice(0, 63)}c`, SHA.toUpperCase());
    fc.assert(
      fc.property(fc.array(fc.tuple(measured, sha), { minLength: 1, maxLength: 12 }), (drawn) => {
        const all = drawn.map(([measured, sha]) => ({ ...plain, measured, sha }));
        const bodies = all.map((cuts) => asked(cuts).body);
        expect(lineOf(asked(plain).shape, ...all)).toBe(bodies.map((body) => alone(body)).join(""));
      }),
    );
  });

  test("of a tool, which has two times", () => {
    const time = fc.constantFrom("null", "0", "7.25", "120.5", "1e3", "99999.999999");
    const toolOf = (cuts: Cuts) => {
      const made = asked(cuts, '{"differs":[],"fault":null,"honest":true,"initialize_ms":');
      return { ...made, body: made.body.replace(',"wall":false}', ',"tool":"é","tool_present":true,"wall":false}') };
    };
    fc.assert(
      fc.property(fc.array(fc.tuple(time, time), { minLength: 1, maxLength: 8 }), (drawn) => {
        const all = drawn.map(([first, second]) => ({ ...plain, measured: `${first},"latency_ms":${second}` }));
        const shape = toolOf(plain).shape.replace(',"wall":false}', ',"tool":"é","tool_present":true,"wall":false}');
        const want = all.map((cuts) => alone(toolOf(cuts).body, true)).join("");
        expect(linesOf(shape, all, true)).toBe(want);
      }),
    );
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
