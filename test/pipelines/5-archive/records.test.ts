import { describe, expect, test } from "vitest";
import { ArchiveUnproven } from "../../../pipelines/5-archive/errors.ts";
import { LinePiece } from "../../../pipelines/5-archive/line-piece.ts";
import { LineFiles } from "../../../pipelines/5-archive/pack-lines.ts";
import { ProbeRecords } from "../../../pipelines/5-archive/probe-records.ts";
import { fc } from "../../helpers/histories.ts";
import { bundleOf } from "./bundles.ts";

const CAP = `cap_${"A".repeat(26)}`;
const TIME = String(Date.parse("2026-11-10T05:06:07.089Z"));
const idOf = (n: number): string => `rec_${n.toString(36).toUpperCase().padStart(26, "0")}`;
const recordOf = (id: string, measured = "5"): string =>
  [id, TIME, measured, '{"block":1,"minute":2}', ""].join("\x1f");
const group = (records: readonly string[], cap = CAP, form = 1) => ({ cap, shape: "", form, sha: null, records });

describe("records of a bundle", () => {
  const id = fc.oneof(
    fc.nat(40).map(idOf),
    // The characters that order them by number, and others that do not.
    fc.stringMatching(/^[0-9A-Z]{26}$/).map((text) => `rec_${text}`),
    fc.stringMatching(/^[AB]{3}$/).map((text) => `rec_${text.padEnd(26, "C")}`),
  );
  const cap = fc.constantFrom("cap_B", "cap_A", CAP, "cap_é", "");
  const drawn = fc.record({ id, cap, form: fc.nat(2), says: fc.stringMatching(/^[ -~é]{0,3}$/) });
  // Few are put in order in another way than many.
  const some = fc.oneof(fc.array(drawn, { minLength: 1 }), fc.array(drawn, { minLength: 40, maxLength: 80 }));

  test("come endpoint after endpoint in the order of their ids, whichever shape each is of", () => {
    fc.assert(
      fc.property(some, (all) => {
        const said = all.map(({ says, ...rest }) => ({
          ...rest,
          text: recordOf(rest.id, says),
        }));
        const kinds = [...new Set(said.map(({ cap, form }) => JSON.stringify([cap, form])))];
        const groups = kinds.map((kind) => {
          const own = said.filter(({ cap, form }) => JSON.stringify([cap, form]) === kind);
          return group(
            own.map(({ text }) => text),
            own[0]!.cap,
            own[0]!.form,
          );
        });
        const records = new ProbeRecords(bundleOf(groups), all.length);
        const got: { cap: string; id: string; form: number | null; text: string }[] = [];
        for (const own of records.endpoints()) {
          const count = records.inOrder(own);
          for (const n of records.order.subarray(0, count)) {
            const { cap, form } = records.groups[records.group[n]!]!;
            got.push({ id: records.text(n).slice(0, 30), cap, form, text: records.text(n) });
          }
        }
        const places = got.map(({ cap, id }) => [cap, id]);
        expect(places).toEqual(said.map(({ cap, id }) => [cap, id]).sort(byPlace));
        const printed = (one: unknown) => JSON.stringify(one);
        expect(got.map(printed).sort()).toEqual(
          said.map(({ id, cap, form, text }) => printed({ id, cap, form, text })).sort(),
        );
      }),
    );
  });

  test("more of an endpoint than are ordered by number are in order too", () => {
    const many = Array.from({ length: 9_001 }, (_, n) => idOf((n * 7_919) % 9_001));
    const records = new ProbeRecords(bundleOf([group(many.map((id) => recordOf(id)))]), many.length);
    expect(records.inOrder(records.groups)).toBe(many.length);
    expect([...records.order.subarray(0, many.length)].map((n) => many[n])).toEqual([...many].sort());
  });

  const two = bundleOf([group([recordOf(idOf(1)), recordOf(idOf(2))])]).toString();
  test.each<[string, string, number]>([
    ["fewer than were counted", two, 3],
    ["more than were counted", two, 1],
    ["fewer than their group says", two.replace("\x1d2\x1d", "\x1d3\x1d"), 3],
    ["more than their group says", two.replace("\x1d2\x1d", "\x1d1\x1d"), 1],
    ["none", "", 1],
    ["one that does not end", two.slice(0, -1), 2],
    ["an id of another length", two.replace(idOf(1), `${idOf(1)}X`), 2],
    ["a time of another length", two.replace(TIME, TIME.slice(1)), 2],
    ["a time that is no number", two.replace(TIME, TIME.replace("1", "-")), 2],
    ["a count that is no number", two.replace("\x1d2\x1d", "\x1dtwo\x1d"), 2],
    ["a group without a shape", two.replace("\x1d1\x1d", "\x1d\x1d"), 2],
    ["a group that ends early", two.slice(0, 20), 2],
  ])("%s are refused", (_, bundle, count) => {
    expect(() => new ProbeRecords(Buffer.from(bundle), count)).toThrow(ArchiveUnproven);
  });
});

const byPlace = (a: string[], b: string[]): number => (a.join("\0") < b.join("\0") ? -1 : 1);

describe("lines on their way into a file", () => {
  const into = () => new LineFiles({ workDir: "" }, 3);

  test.each<[string, [string, string][]]>([
    [
      "an id stands there twice",
      [
        ["A", idOf(1)],
        ["A", idOf(1)],
      ],
    ],
    [
      "an id stands before another",
      [
        ["A", idOf(2)],
        ["A", idOf(1)],
      ],
    ],
    [
      "a capability comes again",
      [
        ["A", idOf(1)],
        ["B", idOf(2)],
        ["A", idOf(3)],
      ],
    ],
  ])("are refused when %s", async (_, rows) => {
    const lines = into();
    expect(() => {
      for (const [cap, id] of rows) lines.push(cap, id, "{}\n");
    }).toThrow(ArchiveUnproven);
    await lines.drop();
  });

  test("of the next capability may have smaller ids", async () => {
    const lines = into();
    lines.push("A", idOf(2), "{}\n");
    lines.push("B", idOf(1), "{}\n");
    await lines.drop();
  });

  test("a piece has room for any line, and begins in order behind the one before it", () => {
    const piece = new LinePiece();
    const long = `${"x".repeat(3_000_000)}\n`;
    piece.add(idOf(1), "{}\n");
    piece.add(idOf(2), long);
    expect(piece.isDue).toBe(true);
    expect(piece.text.toString()).toBe(`{}\n${long}`);
    expect(piece.ids.toString()).toBe(idOf(1) + idOf(2));
    const memory = new ArrayBuffer(2 * 1024 * 1024);
    const { text } = piece;
    piece.begin(memory);
    expect([piece.ids.length, piece.text.length, piece.lastId, text.toString()]).toEqual([
      0,
      0,
      idOf(2),
      `{}\n${long}`,
    ]);
    piece.add(idOf(2), "{}\n");
    expect([piece.isInOrder, piece.ids.toString(), piece.text.buffer === memory]).toEqual([false, idOf(2), true]);
    piece.add(idOf(3), "{}\n");
    expect(piece.isInOrder).toBe(true);
    expect(() => piece.add("rec_short", "{}\n")).toThrow(RangeError);
  });
});
