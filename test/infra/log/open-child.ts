/**
 * Opens one new log after the other at moments that others keep too, and says of each its id or what was thrown. Arguments:
 * folder, how many; a message says when the first is opened (Unix ms).
 */
import { join } from "node:path";
import { openLogFile } from "../../../infra/log/log-file.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";

/** Between two logs. */
const PAUSE_MS = 25;

const [dir, logs] = process.argv.slice(2);
if (!dir || !logs || !process.send) throw new Error("usage: open-child DIR LOGS, forked");

process.once("message", (first: number) => {
  const said: string[] = [];
  for (let n = 0; n < Number(logs); n++) {
    while (Date.now() < first + n * PAUSE_MS);
    try {
      const log = openLogFile(join(dir, `${n}.sqlite`), { topics: TOPICS, partitions: 2 });
      said.push(log.id);
      log.db.close();
    } catch (error) {
      said.push(String(error));
    }
  }
  process.send!(said);
  process.disconnect();
});
process.send("ready");
