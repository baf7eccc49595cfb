/**
 * The thread of words.ts: holds the index and answers from it. What indexes is TypeScript, so a loader comes before it,
 * whatever the flags of the process that began this thread.
 */
import "better-sqlite3";
import { register } from "tsx/esm/api";
import { serveQuestions } from "../../infra/bounded-thread-half.mjs";

register();
const { TextIndex } = await import("../../infra/text-index.ts");

let index = null;
/** Messages of texts since the index was begun: a thread that died and was begun again has fewer than were sent. */
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
