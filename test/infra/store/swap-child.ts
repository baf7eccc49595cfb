/** Counts the object `count` up by swaps, `times` times, and prints how many swaps it lost. Arguments: root, times. */
import { openDirectoryStore } from "../../../infra/store/directory.ts";

const [root, times] = process.argv.slice(2);
if (!root || !times) throw new Error("usage: swap-child ROOT TIMES");
const store = await openDirectoryStore(root);
let lost = 0;
for (let done = 0; done < Number(times); ) {
  const now = (await store.get("count"))!;
  const next = Buffer.from(String(Number(Buffer.from(now.bytes).toString()) + 1));
  if ((await store.swap("count", next, now.etag)).result === "swapped") done++;
  else lost++;
}
await store.close();
console.log(lost);
