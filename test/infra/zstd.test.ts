import { describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { sha256hex } from "../../infra/canonical.ts";
import { BadFrame, streamFrame, TextPacker, ZstdPacking } from "../../infra/zstd.ts";
import { fc } from "../helpers/histories.ts";

const PIECE = 300_000;
/** Lines that no two pieces share. */
const pieceOf = (n: number): Buffer => Buffer.from(`piece ${n} é\n`.repeat(PIECE / 10));

describe.each([
  ["nothing", 0],
  ["less than is packed in one call", 3],
  ["more than that", 20],
])("%s", (_, pieces) => {
  const text = Buffer.concat(Array.from({ length: pieces }, (_, n) => pieceOf(n)));

  async function packed() {
    const packing = new ZstdPacking();
    for (let n = 0; n < pieces; n++) await packing.add(pieceOf(n));
    return packing.end();
  }

  test("comes out as one frame of what went in, with its hash and length, and again the same", async () => {
    const got = await packed();
    expect(decompress(got.packed).equals(text)).toBe(true);
    expect(got).toMatchObject({ sha256: sha256hex(text), bytes: text.length });
    expect((await packed()).packed.equals(got.packed)).toBe(true);
  });

  test("is unpacked in pieces, and by nobody who expects less", async () => {
    const got = await packed();
    const copies: Buffer[] = [];
    const unpacked = (frame: Buffer, most: number) =>
      streamFrame(frame, most, (chunk) => copies.push(Buffer.from(chunk)));
    expect(await unpacked(got.packed, text.length)).toBe(text.length);
    expect(Buffer.concat(copies).equals(text)).toBe(true);
    if (text.length > 0) await expect(unpacked(got.packed, text.length - 1)).rejects.toThrow(/more than/);
    await expect(unpacked(got.packed.subarray(0, got.packed.length >> 1), text.length)).rejects.toThrow(BadFrame);
  });
});

test("texts that resemble each other are packed small, and come back as they were", () => {
  const packer = new TextPacker();
  const card = (n: number) =>
    JSON.stringify({ url: `https://seller-${n}.example/ä/東`, flags: ["no_example"], figures: { n } });
  const texts = ["", ...Array.from({ length: 50 }, (_, n) => card(n)), "x".repeat(100_000), "\u0000\uffff"];
  for (const first of [0, 1, 51]) {
    const order = [texts[first]!, ...texts];
    const packed = order.map((text) => packer.pack(text));
    expect(packed.map((one) => packer.unpack(one))).toEqual(order);
  }
  const drawn = fc.oneof(fc.string({ unit: "binary", maxLength: 600 }), fc.constantFrom(...texts.slice(0, 9)));
  fc.assert(
    fc.property(fc.array(drawn, { maxLength: 20 }), (all) => {
      const packed = all.map((text, n) => packer.pack(n % 2 === 0 ? text : Buffer.from(text)));
      expect(packed.map((one) => packer.unpack(one))).toEqual(all);
    }),
    { numRuns: 30 },
  );
  const cards = new TextPacker();
  cards.pack(card(0));
  expect(cards.pack(card(1)).length).toBeLessThan(card(1).length / 2);
});
