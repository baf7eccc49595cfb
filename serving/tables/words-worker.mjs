/**
 * The thread of words.ts: holds the index and answers from it. The index is written in TypeScript, so this file
 * registers a loader before it imports the index, whatever the flags of the process that started this thread.
 */
import "better-sqlite3";
import { register } from "tsx/esm/api";
import { serveQuestions } from "../../infra/bounded-thread-half.mjs";

register();
const { TextIndex } = await import("../../infra/text-index.ts");

let index = null;
/** Number of batches of texts in this index. A thread that was restarted has fewer than were sent to it. */
let batches = 0;

serveQuestions(({ kinds, sent, put, match, byClass }) => {
  if (index === null || (put && sent === 0)) {
    index = new TextIndex(kinds);
    batches = 0;
  }
  if (match) return sent <= batches ? { matched: index.match(match, byClass) } : {};
  if (sent !== batches) return {};
  index.put(put);
  batches++;
  return {};
});
