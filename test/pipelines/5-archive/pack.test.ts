import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { THREADED_BYTES } from "../../../pipelines/5-archive/hashing.ts";
import { Packing, unpack } from "../../../pipelines/5-archive/pack.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "pack-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const PIECE = 1_500_000;
/** Lines that no two pieces share. */
const pieceOf = (n: number): Buffer => Buffer.from(`piece ${n} é\n`.repeat(PIECE / 10));

describe.each([
  ["here", 2],
  ["beside what else is done", Math.ceil((1.5 * THREADED_BYTES) / PIECE)],
])("a text that is hashed %s", (_, pieces) => {
  const texts = Array.from({ length: pieces }, (_, n) => pieceOf(n));
  const whole = Buffer.concat(texts);
  const want = {
    contentHash: createHash("sha256").update(whole).digest("hex"),
    unpackedBytes: whole.length,
  };
  const lines = (PIECE / 10) * pieces;
  let packed: Buffer;

  test("is packed with its hash and length", async () => {
    const packing = new Packing(whole.length);
    // Some of them lie in memory that is shared with others.
    for (const [n, text] of texts.entries()) await packing.write(n % 2 ? text : whole.subarray(0, text.length));
    const got = await packing.end();
    const mixed = Buffer.concat(texts.map((text, n) => (n % 2 ? pieceOf(n) : whole.subarray(0, text.length))));
    expect(decompress(got.bytes).equals(mixed)).toBe(true);
    expect(got.contentHash).toBe(createHash("sha256").update(mixed).digest("hex"));
    expect(got.unpackedBytes).toBe(mixed.length);
    const again = new Packing(whole.length);
    for (let n = 0; n < pieces; n++) await again.write(pieceOf(n));
    const { bytes, ...promised } = await again.end();
    expect(promised).toEqual(want);
    packed = bytes;
  });

  test("is unpacked with its hash, length and lines, and into a file", async () => {
    expect(await unpack(packed, whole.length)).toEqual({ ...want, lines });
    const path = join(dir, "text");
    expect(await unpack(packed, whole.length, createWriteStream(path))).toEqual({ ...want, lines });
    expect((await readFile(path)).equals(whole)).toBe(true);
  });

  test("is refused when it unpacks to more than it says, or ends early", async () => {
    await expect(unpack(packed, whole.length - 1)).rejects.toThrow(/more than/);
    await expect(unpack(packed.subarray(0, packed.length >> 1), whole.length)).rejects.toThrow();
    await expect(unpack(Buffer.from("no frame"), whole.length)).rejects.toThrow();
  });

  test("is dropped when something failed", async () => {
    const packing = new Packing(whole.length);
    await packing.write(pieceOf(0));
    packing.drop();
  });
});
