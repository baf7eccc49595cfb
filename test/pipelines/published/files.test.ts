import { describe, expect, it } from "vitest";
import { compress } from "zstd-napi";
import { sha256hex } from "../../../infra/canonical.ts";
import { type NamedFile, readFile } from "../../../pipelines/published/files.ts";

const text = Buffer.from(Array.from({ length: 90_000 }, (_, i) => `{"row":${i},"of":"a file of lines"}\n`).join(""));
const packed = compress(text);
const file: NamedFile = {
  ...{ key: "evidence/x", sha256: "", bytes: packed.length, rows: 90_000 },
  ...{ unpacked_sha256: sha256hex(text), unpacked_bytes: text.length },
};
const flipped = Buffer.from(text);
flipped[1_500_000]! ^= 1;

const FRAMES: [what: string, packed: Uint8Array, says: RegExp | null][] = [
  ["the file", packed, null],
  ["another text of that length", compress(flipped), /90000 lines of [0-9a-f]{64}/],
  ["a line less", compress(text.subarray(0, text.lastIndexOf(0x0a, -2) + 1)), /89999 lines/],
  ["a byte more", compress(Buffer.concat([text, Buffer.from("x")])), /decompresses to more than/],
  ["data without end", compress(Buffer.alloc(200_000_000)), /decompresses to more than/],
  ["a frame that is cut", packed.subarray(0, -1), /the frame is cut off/],
  ["two frames", Buffer.concat([packed, compress(Buffer.from(""))]), /after the end of the frame/],
  ["no frame", Buffer.from("junk"), /./],
  ["nothing", Buffer.alloc(0), /the frame is cut off/],
];

describe("a file of lines", () => {
  it.each(FRAMES)("%s", async (_, bytes, says) => {
    if (says === null) await readFile(bytes, file);
    else await expect(readFile(bytes, file)).rejects.toThrow(says);
  });

  it("a line that is too long", async () => {
    const long = Buffer.concat([Buffer.alloc(5 * 1024 * 1024, 0x61), Buffer.from("\n")]);
    const of = { ...file, rows: 1, unpacked_sha256: sha256hex(long), unpacked_bytes: long.length };
    await expect(readFile(compress(long), of)).rejects.toThrow("a longer one");
  });
});
