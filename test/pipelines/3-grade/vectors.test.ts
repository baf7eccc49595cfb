import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readVectors } from "./vectors.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "vectors-"));
});
afterEach(() => rm(dir, { recursive: true }));

test.each(["no such folder", ".", ""])(
  "VECTORS_DIR that holds no vectors (%j) is an error, not a step back to ours",
  (name) => {
    expect(() => readVectors(name && join(dir, name))).toThrow("no grading vectors");
  },
);

test("nor is a file without a vector taken for vectors that all pass", async () => {
  await mkdir(join(dir, "grading"));
  await writeFile(join(dir, "grading/vectors.json"), "[]");
  expect(() => readVectors(dir)).toThrow("no grading vectors");
});

test("those of VECTORS_DIR are read, and ours where it is not set", async () => {
  await cp("fixtures/vectors/grading", join(dir, "grading"), { recursive: true });
  expect(readVectors(dir)).toEqual(readVectors(undefined));
});
