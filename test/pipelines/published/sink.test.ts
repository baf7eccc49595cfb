import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { PartFolder } from "../../../pipelines/published/sink.ts";
import { drawn, SEED } from "../../helpers/drawn.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "parts-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const KEY = "segment/3.ndjson.zst";
const draw = drawn(SEED);
const chunks = (count: number) =>
  Array.from({ length: count }, () => Buffer.alloc(Math.floor(draw() * 70_000), Math.floor(draw() * 256)));
const fileIn = async () => join(dir, (await readdir(dir)).find((name) => !name.endsWith(".json"))!);

it(`what came lies on the disk in its order, and the next process goes on behind it (seed ${SEED})`, async () => {
  const [first, second] = [chunks(60), chunks(60)];
  const part = await new PartFolder(dir).open(KEY);
  await part.restart('"one"');
  for (const chunk of first) await part.write(chunk);
  expect(Buffer.compare(await readFile(await fileIn()), Buffer.concat(first))).toBe(0);
  expect(Buffer.compare(await part.bytes(), Buffer.concat(first))).toBe(0);

  const next = await new PartFolder(dir).open(KEY);
  expect([next.receivedBytes, next.etag]).toEqual([Buffer.concat(first).length, '"one"']);
  for (const chunk of second) await next.write(chunk);
  expect(Buffer.compare(await next.bytes(), Buffer.concat([...first, ...second]))).toBe(0);
  await next.remove();
  expect(await readdir(dir)).toEqual([]);
});

it("what begins again has nothing of what came before", async () => {
  const part = await new PartFolder(dir).open(KEY);
  await part.restart('"one"');
  await part.write(Buffer.from("the first try"));
  await part.restart('"two"');
  await part.write(Buffer.from("another"));
  expect((await part.bytes()).toString()).toBe("another");
  const next = await new PartFolder(dir).open(KEY);
  expect([next.receivedBytes, next.etag]).toEqual([7, '"two"']);
});

it("what nobody could go on with is not written down", async () => {
  const part = await new PartFolder(dir).open(KEY);
  await part.restart('"one"');
  await part.write(Buffer.from("the first try"));
  await part.restart(null);
  await part.write(Buffer.from("an object without a name"));
  expect((await part.bytes()).toString()).toBe("an object without a name");
  expect(await readdir(dir)).toEqual([]);
});

it("a fault of our own disk is told to whoever writes, and to whoever reads", async () => {
  const part = await new PartFolder(dir).open(KEY);
  await part.restart('"one"');
  await part.write(Buffer.from("here"));
  expect((await stat(await fileIn())).size).toBe(4);
  await rm(dir, { recursive: true });
  await expect(part.write(Buffer.from("there"))).rejects.toThrow("ENOENT");
  await expect(part.bytes()).rejects.toThrow("ENOENT");
});
