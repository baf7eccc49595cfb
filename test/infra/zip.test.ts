import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { unzipped, zipEntries } from "../../infra/zip.ts";
import { zipOf } from "../helpers/zip.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "zip-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const FILES = {
  "a.txt": Buffer.from("first"),
  "folder/ü.csv": Buffer.alloc(300_000, "some,text\n"),
  empty: Buffer.alloc(0),
};

async function read(bytes: Uint8Array): Promise<Record<string, Buffer>> {
  const path = join(dir, "x.zip");
  await writeFile(path, bytes);
  const files: Record<string, Buffer> = {};
  for (const entry of await zipEntries(path)) {
    const chunks: Buffer[] = [];
    for await (const chunk of unzipped(path, entry)) chunks.push(chunk);
    files[entry.name] = Buffer.concat(chunks);
  }
  return files;
}

test.each([false, true])("what was packed comes out, with sizes of ZIP64: %s", async (wide) => {
  expect(await read(zipOf(FILES, wide))).toEqual(FILES);
});

test("a ZIP that was cut off anywhere, or has one byte changed, never gives other bytes", async () => {
  const whole = zipOf({ "a.csv": Buffer.from("lei,name\n".repeat(40)) });
  for (let at = 0; at < whole.length; at += 5) {
    await expect(read(whole.subarray(0, at))).rejects.toMatchObject({ name: "ZipUnreadable" });
    const changed = Buffer.from(whole);
    changed[at]! ^= 0x55;
    const files = await read(changed).catch((error: Error) => error);
    if (files instanceof Error) expect(files.name).toBe("ZipUnreadable");
    else for (const bytes of Object.values(files)) expect(bytes.toString()).toBe("lei,name\n".repeat(40));
  }
});
