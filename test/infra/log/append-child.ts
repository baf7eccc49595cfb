/**
 * A writer to be killed: appends batches of growing numbers and prints `topic partition offset eventId` for each record
 * as soon as its append resolved. Arguments: folder, name.
 */
import { writeSync } from "node:fs";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";

const [dir, name] = process.argv.slice(2);
if (!dir || !name) throw new Error("usage: append-child DIR NAME");
const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 2 });

let made = 0;
async function appendForever(worker: number): Promise<void> {
  for (;;) {
    const records = Array.from({ length: 1 + (made % 7) }, () => {
      const eventId = `rec_${name}_${made++}`;
      return { topic: "asks", partition: made % 2, eventId, key: eventId, value: Buffer.from(`${eventId} ${worker}`) };
    });
    const appended = await log.append(records);
    writeSync(1, appended.map((a) => `${a.topic} ${a.partition} ${a.offset} ${a.eventId}\n`).join(""));
  }
}
await Promise.all([0, 1, 2].map(appendForever));
