import { describe, expect, test } from "vitest";
import { ArchiveUnproven } from "../../../pipelines/5-archive/errors.ts";
import { LinePiece } from "../../../pipelines/5-archive/line-piece.ts";
import { LineFiles } from "../../../pipelines/5-archive/pack-lines.ts";
import { ProbeRecords } from "../../../pipelines/5-archive/probe-records.ts";
import { fc } from "../../helpers/histories.ts";

const CAP = `cap_${"A".repeat(26)}`;
const TIME = String(Date.parse("2026-11-10T05:06:07.089Z"));
const idOf = (n: number): string => `rec_${n.toString(36).toUpperCase().padStart(26, "0")}`;
const recordOf = (id: string, measured = "5"): string =>
  `${[id, TIME, measured, '{"block":1,"minute":2}', ""].join("\x1f")}\x1e`;
const group = (records: string, count: number) => ({
  ...{ cap: CAP, shape: "", form: null, sha: null, lookHigh: 0, lookLow: 0, count },
  records: Buffer.from(records),
});

describe("records of one endpoint", () => {
  const ids = fc.oneof(
    fc.nat(40).map(idOf),
    // The characters that order them by number, and others that do not.
    fc.stringMatching(/^[0-9A-Z]{26}$/).map((text) => `rec_${text}`),
    fc.stringMatching(/^[AB]{3}$/).map((text) => `rec_${text.padEnd(26, "C")}`),
  );

  test("come in the order of their ids, whichever shape each is of", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(ids, fc.nat(2), fc.string({ maxLength: 3 })), { minLength: 1 }), (drawn) => {
        const by = [0, 1, 2].map((g) => drawn.filter(([, own]) => own === g));
        const own = by.filter((some) => some.length > 0);
        const said = (text: string) => text.replaceAll("\x1e", "").replaceAll("\x1f", "");
        const records = new ProbeRecords(
          own.map((some) => group(some.map(([id, , text]) => recordOf(id, said(text))).join(""), some.length)),
        );
        const order = [...records.inOrder()];
        expect([...order].sort((a, b) => a - b)).toEqual(own.flat().map((_, n) => n));
        const told = order.map((n) => records.text(n).slice(0, 30));
        expect(told).toEqual(drawn.map(([id]) => id).sort());
        for (const n of order) {
          const [id, , text] = own.flat()[n]!;
          expect(records.text(n)).toBe(recordOf(id, said(text)).slice(0, -1));
          expect(own[records.group[n]!]).toContain(own.flat()[n]);
        }
      }),
    );
  });

  test("more of them than are ordered by number are in order too", () => {
    const many = Array.from({ length: 9_001 }, (_, n) => idOf((n * 7_919) % 9_001));
    const records = new ProbeRecords([group(many.map((id) => recordOf(id)).join(""), many.length)]);
    expect([...records.inOrder()].map((n) => many[n])).toEqual([...many].sort());
  });

  test.each<[string, string, number]>([
    ["fewer than were counted", recordOf(idOf(1)), 2],
    ["more than were counted", recordOf(idOf(1)) + recordOf(idOf(2)), 1],
    ["one that does not end", recordOf(idOf(1)).slice(0, -1), 1],
    ["an id of another length", recordOf(`${idOf(1)}X`), 1],
    ["a time of another length", recordOf(idOf(1)).replace(TIME, TIME.slice(1)), 1],
  ])("%s are refused", (_, records, count) => {
    expect(() => new ProbeRecords([group(records, count)])).toThrow(ArchiveUnproven);
  });
});

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
