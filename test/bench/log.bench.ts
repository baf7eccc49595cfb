/**
 * Figures of the embedded log: `npx tsx test/bench/log.bench.ts [folder]`. 500 B values, 4 partitions; the folder should
 * lie on the disk that is to be measured (default: the system's temporary folder).
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import type { Log, NewRecord } from "../../infra/log/log.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";

const VALUE = Buffer.alloc(500, "x");
let made = 0;
const batch = (n: number): NewRecord[] =>
  Array.from({ length: n }, () => {
    const id = String(made++).padStart(26, "0");
    return { topic: "observations.free", partition: made % 4, eventId: `rec_${id}`, key: `cap_${id}`, value: VALUE };
  });

async function rate(name: string, records: number, work: () => Promise<void>): Promise<void> {
  const from = performance.now();
  await work();
  const seconds = (performance.now() - from) / 1_000;
  console.log(
    `${name.padEnd(44)} ${Math.round(records / seconds)
      .toLocaleString("en")
      .padStart(10)} rec/s`,
  );
}

async function readAll(log: Log, maxRecords: number): Promise<void> {
  for (let partition = 0; partition < 4; partition++) {
    for (let from = 0; ; ) {
      const found = await log.read("observations.free", partition, from, { maxRecords });
      if (found.length === 0) break;
      from += found.length;
    }
  }
}

const dir = await mkdtemp(join(process.argv[2] ?? tmpdir(), "log-bench-"));
const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 4 });
for (const [size, times] of [
  [1, 1_000],
  [100, 500],
  [1_000, 300],
] as const) {
  await rate(`append, ${size} a batch, one after the other`, size * times, async () => {
    for (let i = 0; i < times; i++) await log.append(batch(size));
  });
}
await rate("append, 1 a batch, 200 at once", 100_000, async () => {
  const one = async () => {
    for (let i = 0; i < 500; i++) await log.append(batch(1));
  };
  await Promise.all(Array.from({ length: 200 }, one));
});
for (const size of [1_000, 10_000]) await rate(`read, ${size} at a time`, made, () => readAll(log, size));
await log.close();
await rm(dir, { recursive: true });
