import { expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import { PackedLines } from "../../../pipelines/5-archive/evidence.ts";

test.each([
  ["nothing", 0],
  ["a few lines", 5],
  ["more than is packed in one call", 4_000],
])("%s comes out as one frame of the lines that went in", async (_, count) => {
  const line = (i: number) => ({ b: "x".repeat(1_000 + (i % 7)), a: i });
  const file = new PackedLines();
  for (let i = 0; i < count; i += 3) {
    await file.add(Array.from({ length: Math.min(3, count - i) }, (_, k) => line(i + k)));
  }
  const text = Array.from({ length: count }, (_, i) => `${canonicalText(line(i))}\n`).join("");
  const packed = await file.end();
  expect(decompress(packed.bytes).toString("utf8")).toBe(text);
  expect(packed).toMatchObject({ rows: count, unpackedBytes: text.length, unpackedSha256: sha256hex(text) });
});
