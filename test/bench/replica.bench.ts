/**
 * A serving replica over a record of many endpoints: how long it takes to start, what memory an endpoint costs it, and
 * checks that are made, not kept; against reading the same leaves with their proofs and doing nothing with them.
 * Run: npx tsx test/bench/replica.bench.ts [cards, default 20,000] [checks] [--record=DIR]
 * With --record the record lies in that folder: it is made there once, and stays (mirror.bench.ts uses the same).
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { RecordReader, readCheckpoint } from "../../pipelines/published/reader.ts";
import { ManualClock } from "../helpers/serving.ts";
import { against, peakGb, ratio, shown, timed } from "./ratio.ts";
import { BENCH, makeRecord, openRecord } from "./record-data.ts";
import { AT, specOf } from "./record-text.ts";
import { checksOf, replicaOver } from "./replica.ts";

const args = process.argv.slice(2);
const [asked = 20_000, checks = 5_000] = args.filter((arg) => !arg.startsWith("--")).map(Number);
const kept = args.find((arg) => arg.startsWith("--record="))?.slice("--record=".length);

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;
/** Bytes that are held once nothing is left over. */
function held(): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const record = (kept && (await openRecord(kept))) || (await makeRecord(asked, kept));
const store = await openDirectoryStore(`${record.dir}/public`);
try {
  const { cards, leaves } = record;
  console.log(`${leaves.toLocaleString("en")} leaves of ${cards.toLocaleString("en")} endpoints`);
  const head = (await readCheckpoint(store, BENCH.trust))!;
  const reader = await RecordReader.open(store, head);
  const read = await timed(async () => {
    for await (const { leaf } of reader.leaves()) if (!leaf.kind) throw new Error("a leaf of no kind");
  });
  const before = held();
  const { follower, app } = replicaOver(store, { ...BENCH, clock: new ManualClock(AT) });
  const start = await timed(() => follower.refresh());
  const bytes = held() - before;
  const some = await checksOf(app, { cards, checks, urlOf: (i) => specOf(i).url });
  console.log(`leaves, read and proven  ${shown(read)}`);
  console.log(`replica, until it serves ${shown(start)}  ${(bytes / cards).toFixed(0)} bytes an endpoint`);
  console.log(`checks, each made        ${shown(some)}  ${((some.cpu / checks) * 1e6).toFixed(0)} us CPU each`);
  console.log(`peak ${peakGb().toFixed(2)} GB`);
  ratio(`replica: start of ${cards} endpoints, of reading the leaves`, against(start, read), "said, no bound");
} finally {
  await store.close();
  await record.remove();
}
