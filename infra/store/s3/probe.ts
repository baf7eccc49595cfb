import { randomBytes } from "node:crypto";
import { StoreUnfit } from "../errors.ts";
import type { Store } from "../store.ts";

/**
 * Is this a store that our promises can stand on? Creates an object, tries to create it again, swaps it from a wrong and
 * from the right etag, and takes it away.
 * @throws StoreUnfit for a store that lets a second creator or a stale swap win
 */
export async function probeStore(store: Store): Promise<void> {
  const key = `probe/${randomBytes(8).toString("hex")}`;
  const bytes = (text: string): Uint8Array => Buffer.from(text);
  try {
    if ((await store.create(key, bytes("one"))).result !== "created") throw new StoreUnfit("a free key was taken");
    if ((await store.create(key, bytes("two"))).result !== "exists") {
      throw new StoreUnfit("it creates over an object: conditional writes (If-None-Match) are not enforced");
    }
    const { etag } = (await store.head(key))!;
    const stale = await store.swap(key, bytes("three"), '"00000000000000000000000000000000"');
    if (stale.result !== "lost") {
      throw new StoreUnfit("it swaps from a stale etag: conditional writes (If-Match) are not enforced");
    }
    if ((await store.swap(key, bytes("four"), etag)).result !== "swapped") {
      throw new StoreUnfit("it refuses a swap from the newest etag");
    }
    const read = await store.get(key);
    if (Buffer.from(read?.bytes ?? []).toString("utf8") !== "four")
      throw new StoreUnfit("it does not give back what was written");
  } finally {
    await store.delete(key);
  }
}
