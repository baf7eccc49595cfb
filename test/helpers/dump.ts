import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { decompress } from "zstd-napi";
import type { Store } from "../../infra/store/store.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";

/** Private objects that say who read, graded and published what; segments and staged leaves are left out. */
const TELLING = /^(?:runs|refused|generation|owners)\/|\/commit\//;
const FRAME = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);

const textOf = (bytes: Uint8Array): Uint8Array =>
  FRAME.equals(bytes.subarray(0, FRAME.length)) ? decompress(Buffer.from(bytes)) : bytes;

/**
 * What a broken record is explained with, as files under a folder: runs, refusals, generations, what owners wrote of
 * each partition, commits of the chains, and the leaves of the tree, a line each. Frames are unpacked.
 */
export async function dumpRecord(dir: string, privateStore: Store, leaves: readonly Leaf[]): Promise<void> {
  await mkdir(dir, { recursive: true });
  await writeFile(join(dir, "leaves.ndjson"), leaves.map((leaf) => `${JSON.stringify(leaf)}\n`).join(""));
  for (let startAfter: string | undefined; ; ) {
    const page = await privateStore.list("", startAfter ? { startAfter } : {});
    if (page.length === 0) return;
    startAfter = page.at(-1)!.key;
    for (const { key, modifiedAt } of page) {
      if (!TELLING.test(key)) continue;
      const object = await privateStore.get(key);
      const path = join(dir, "private", key);
      await mkdir(dirname(path), { recursive: true });
      if (object) await writeFile(`${path}.${modifiedAt.toISOString().slice(11, 23)}`, textOf(object.bytes));
    }
  }
}
