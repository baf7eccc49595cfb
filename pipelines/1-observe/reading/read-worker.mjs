/**
 * The thread of reader.ts. The reading code is TypeScript, so this file registers a loader first. The flags of the
 * process that started the thread (tsx, a test runner, none) are not passed on, so the thread is the same everywhere.
 */
// The packages that the reading code uses are imported before the loader is registered. Otherwise the loader, which
// runs in another thread, would load each of their hundred files, a quarter of the start's time. A package that is
// missing in this list is only loaded more slowly.
import "ajv";
import "ajv/dist/2020.js";
import "ajv-formats";
import "csv-parse/sync";
import "jsonpath-rfc9535";
import "re2js";
import "tldts";
import "yaml";
import "zod";
import { register } from "tsx/esm/api";
import { serveQuestions } from "../../../infra/bounded-thread-half.mjs";

register();
const { QUESTIONS } = await import("./questions.ts");

serveQuestions(({ name, of }) => {
  try {
    return { ok: true, value: QUESTIONS[name](of) };
  } catch (error) {
    return { ok: false, says: `our reader failed: ${String(error).slice(0, 300)}` };
  }
});
