import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type FileBatch, openFileBatch } from "../../../infra/store/file-batch.ts";
import { drawn, SEED } from "../../helpers/drawn.ts";

let dir: string;
let batch: FileBatch;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "file-batch-"));
  batch = openFileBatch();
});
afterEach(async () => {
  await batch.close();
  await rm(dir, { recursive: true });
});

const draw = drawn(SEED);
/** Views into larger memory, as bundles are, of lengths from nothing on. */
function files(count: number, prefix: string, longest: number) {
  const memory = Buffer.alloc(count * longest, 0).map(() => Math.floor(draw() * 256));
  return Array.from({ length: count }, (_, i) => {
    const at = i * longest;
    return { path: join(dir, prefix + i), bytes: memory.subarray(at, at + Math.floor(draw() * longest)) };
  });
}

it.each([
  ["a few", 3],
  ["so many that a thread does it", 200],
])(`writes %s, each with its own bytes, batch after batch (seed ${SEED})`, async (_, count) => {
  for (const prefix of ["a", "b", "c"]) {
    const all = files(count, prefix, 2_000);
    expect(await batch.write(all)).toEqual(all.map(() => null));
    for (const { path, bytes } of all) expect(Buffer.compare(await readFile(path), bytes)).toBe(0);
  }
  expect(await readdir(dir)).toHaveLength(3 * count);
});

it.each([3, 200])("says of each of %i files what is wrong with it, and writes the others", async (count) => {
  const all = files(count, "a", 100);
  await writeFile(all[1]!.path, "taken");
  all[2]!.path = join(dir, "no", "such", "folder");
  const codes = await batch.write(all);
  expect(codes.slice(0, 3)).toEqual([null, "EEXIST", "ENOENT"]);
  expect(codes.slice(3)).toEqual(all.slice(3).map(() => null));
  expect(await readFile(all[1]!.path, "utf8")).toBe("taken");
  const moves = all.map(({ path }) => ({ from: path, to: `${path}.to` }));
  await writeFile(moves[0]!.to, "taken");
  expect((await batch.move(moves)).slice(0, 3)).toEqual(["EEXIST", null, "ENOENT"]);
});

it("writes more than the memory that it shares with its thread", async () => {
  const large = Buffer.alloc(65 * 1024 * 1024, 7);
  const all = [{ path: join(dir, "large"), bytes: large as Uint8Array }, ...files(3, "a", 100)];
  expect(await batch.write(all)).toEqual([null, null, null, null]);
  for (const { path, bytes } of all) expect(Buffer.compare(await readFile(path), bytes)).toBe(0);
});
