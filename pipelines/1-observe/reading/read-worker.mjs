/**
 * The thread of reader.ts. What reads is TypeScript, so a loader comes before it: the flags of whoever began this
 * thread (tsx, a test runner, none) are not passed on, and it is the same everywhere.
 */
// The packages that reading stands on, before the loader: it would be asked for each of their hundred files, on a
// thread of its own, and that is a quarter of what it takes to begin. One that is missing here is only found more
// slowly.
import "ajv";
import "ajv/dist/2020.js";
import "ajv-formats";
import "csv-parse/sync";
import "tldts";
import "yaml";
import "zod";
import { register } from "tsx/esm/api";
import { answering } from "../../../infra/bounded-thread-half.mjs";

register();
const { QUESTIONS } = await import("./questions.ts");

answering(({ name, of }) => {
  try {
    return { ok: true, value: QUESTIONS[name](of) };
  } catch (error) {
    return { ok: false, says: `the reader stumbled: ${String(error).slice(0, 300)}` };
  }
});
