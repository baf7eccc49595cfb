import { describe, expect, test } from "vitest";
import { wholeBody } from "../../../pipelines/2-ingest/probe-cuts.ts";
import { ArchiveUnproven } from "../../../pipelines/5-archive/errors.ts";
import { IdDigest } from "../../../pipelines/5-archive/id-digest.ts";
import { NOBODY, PAYEE } from "../../../pipelines/5-archive/line-templates.ts";
import { probeLine } from "../../../pipelines/5-archive/probe-line.ts";
import { fc } from "../../helpers/histories.ts";
import { openTestWorld } from "../2-ingest/world.ts";
import { linesOf, type Told, templatesOf } from "./bundles.ts";

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

const recordOf = ({ measured, slot, sha }: Cuts) => [ID, Date.parse(TIME), measured, slot, sha].join(CUT);
const DAY = TIME.slice(0, 10);
/** What a shape makes of records of it, one behind the other. */
const cutHere = (shape: string, all: readonly Cuts[], isTool: boolean): string =>
  written({ shape, form: null, sha: null }, all.map(recordOf), isTool);
function written(alike: Pick<Told, "shape" | "form" | "sha">, records: readonly string[], isTool = false): string {
  const groups = [{ ...alike, cap: CAP, records }];
  const piece = linesOf(groups, templatesOf(groups, DAY, isTool));
  expect(piece.ids.toString()).toBe(ID.repeat(records.length));
  return piece.text.toString("utf8");
}
const lineOf = (shape: string, ...all: Cuts[]): string => cutHere(shape, all, false);
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
        expect(cutHere(shape, all, true)).toBe(want);
      }),
    );
  });

  test("nothing was cut out", () => {
    const { body } = asked(plain);
    expect(lineOf(body, { measured: "", slot: "", sha: "" })).toBe(alone(body));
  });
});

describe("a line out of a shape that was cut when its records came", () => {
  const OTHER = "cd".repeat(32);
  const ingested = (isTool: boolean, hasSha: boolean) => {
    const [before, after] = isTool ? ["initialize_ms", ',"tool":"é","tool_present":true'] : ["latency_ms", ""];
    const terms = hasSha
      ? [',"status":402,"terms":{"offers":[],"protocols":["x402"],"sha256":"', '"}']
      : [',"terms":null'];
    const pieces = [
      `{"fault":null,"${before}":`,
      ',"live":true,"price":"0.020000","slot":{"block":',
      ',"minute":',
      `}${terms[0]}`,
      ...terms.slice(1),
    ];
    pieces.push(`${pieces.pop()}${after},"wall":false}`);
    return pieces.join(CUT);
  };
  const time = fc.constantFrom("null", "0", "7.25", "120.5", "120.50", "0.000000", "99999.999999");
  const at = fc.nat(86_399_999).map((ms) => Date.parse(DAY) + ms);

  test("is the line of the whole record, whatever the slot was and whether the hash is the usual one", () => {
    const record = fc.record({ time, second: time, at, sha: fc.constantFrom(SHA, OTHER), block: fc.nat(999_999_999) });
    fc.assert(
      fc.property(
        fc.array(record, { minLength: 1, maxLength: 12 }),
        fc.boolean(),
        fc.boolean(),
        (all, isTool, hasSha) => {
          const shape = ingested(isTool, hasSha);
          const cuts = all.map(({ time, second, ...rest }) => {
            return { ...rest, measured: isTool ? `${time},"latency_ms":${second}` : time };
          });
          const records = cuts.map(({ at, measured, sha }) => {
            return [ID, at, measured, !hasSha || sha === SHA ? "" : sha].join(CUT);
          });
          const want = cuts.map(({ at, measured, sha, block }) => {
            const body = wholeBody({ shape, measured, block, minute: 7, sha: hasSha ? sha : null });
            return `${probeLine({ event_id: ID, cap: CAP, t: at, body }, isTool)}\n`;
          });
          expect(written({ shape, form: 1, sha: hasSha ? SHA : null }, records, isTool)).toBe(want.join(""));
        },
      ),
    );
  });

  const one = (sha: string, hasSha = true, usual: string | null = SHA) =>
    written({ shape: ingested(false, hasSha), form: 1, sha: usual }, [[ID, Date.parse(TIME), "5", sha].join(CUT)]);
  const PLAIN = [ID, Date.parse(TIME), "5", ""].join(CUT);
  const FORMED = { cap: CAP, shape: ingested(false, false), form: 1, sha: null, records: [PLAIN] };
  test.each<[string, () => string]>([
    ["that has no hash where the shape has one", () => one("", true, null)],
    ["whose hash is none", () => one("none")],
    ["that has a hash where the shape has none", () => one(SHA, false)],
    ["with more cuts than its shape", () => one(`${SHA}${CUT}5`)],
    ["of a shape with fewer cuts", () => written({ shape: `a${CUT}b${CUT}c`, form: 1, sha: null }, [PLAIN])],
    ["of a shape with more cuts", () => written({ shape: CUT.repeat(5), form: 1, sha: null }, [PLAIN])],
    ["of a shape that nobody knows", () => linesOf([FORMED], templatesOf([], DAY)).text.toString()],
  ])("a record is refused %s", (_, make) => {
    expect(make).toThrow(ArchiveUnproven);
  });

  test.each([-1, 86_400_000])("a record of another day is refused, %i ms off", (off) => {
    const record = [ID, Date.parse(DAY) + off, "5", ""].join(CUT);
    const alike = { shape: ingested(false, true), form: 1, sha: SHA };
    expect(() => written(alike, [record])).toThrow(ArchiveUnproven);
    expect(() => written(alike, [record.replace(`${CUT}5${CUT}`, `${CUT}5.0${CUT}`)])).toThrow(ArchiveUnproven);
  });
});

describe("endpoints that differ in who is paid", () => {
  /** Texts in which a payee may seem to stand, and what no payee looks like. */
  const texts = [
    "",
    "0xAb1",
    "9",
    "é",
    'a"b',
    "x\\",
    'a","pay_to":"b',
    'a","pay_to":"c',
    '"pay_to":"0xAb1"',
    '\\","pay_to":"',
  ];
  const text = fc.constantFrom(...texts);
  const cap = fc.stringMatching(/^cap_[0-9A-Z]{26}$/);
  const endpoint = fc.record({
    cap: fc.oneof(cap, fc.constantFrom("cap_x", `cap_${"é".repeat(26)}`)),
    payee: text,
    asset: text,
  });

  /** A body as we write it, with what is cut out of it standing there. */
  const bodyOf = ({ payee, asset }: { payee: string; asset: string }) =>
    `{"differs":[],"fault":null,"honest":true,"latency_ms":${MEASURED},"live":true,"pay_to":${JSON.stringify(payee)},` +
    `"price":"0.020000","slot":${SLOT},"state":"asked","status":402,"terms":{"offers":[{"asset":${JSON.stringify(asset)},` +
    `"network":"n","pay_to":${JSON.stringify(payee)},"payable":true}],"protocols":["x402"],"sha256":"${SHA}"},"wall":false}`;
  const [MEASURED, SLOT] = ["120.5", '{"block":1,"minute":2}'];
  const shapeOf = (body: string) => body.replace(`:${MEASURED},`, `:${CUT},`).replace(SLOT, CUT).replace(SHA, CUT);

  test("share a template, and every line is that of its own record", () => {
    fc.assert(
      fc.property(fc.array(endpoint, { minLength: 2, maxLength: 12 }), (all) => {
        const templates = templatesOf([], DAY);
        for (const { cap, ...said } of all) {
          const body = bodyOf(said);
          const record = recordOf({ measured: MEASURED, slot: SLOT, sha: SHA });
          const piece = linesOf([{ cap, shape: shapeOf(body), form: null, sha: null, records: [record] }], templates);
          const line = probeLine({ event_id: ID, cap, t: Date.parse(TIME), body }, false);
          expect(piece.text.toString("utf8")).toBe(`${line}\n`);
        }
      }),
    );
  });

  test("plain payees have one template, whose hash and capability are not in it", () => {
    const templates = templatesOf([], DAY);
    const made = ["0xAb1", "0xCd2", "9"].map((payee, n) => {
      const cap = `cap_${String(n).repeat(26)}`;
      return templates.of({ cap, form: null, shape: shapeOf(bodyOf({ payee, asset: "a" })) });
    });
    expect(made[0]!.template).not.toBeNull();
    expect(new Set(made).size).toBe(1);
    expect(templates.of({ cap: CAP, form: null, shape: shapeOf(bodyOf({ payee: "é", asset: "a" })) })).not.toBe(
      made[0],
    );
  });

  test("are told apart by the engine as they are here", async () => {
    const world = await openTestWorld();
    try {
      const all = texts.flatMap((payee) => texts.map((asset) => shapeOf(bodyOf({ payee, asset }))));
      const rows = await world.lake.all<{ text: string }>(
        `SELECT regexp_replace(unnest(from_json($all, '["VARCHAR"]')), $varying, $blank, 'g') AS text`,
        { all: JSON.stringify(all), varying: PAYEE.source, blank: NOBODY },
      );
      expect(rows.map(({ text }) => text)).toEqual(all.map((shape) => shape.replace(PAYEE, NOBODY)));
    } finally {
      await world.close();
    }
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
