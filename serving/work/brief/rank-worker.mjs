/**
 * The thread of summariser.ts, which ranks sentences of untrusted texts. It registers a loader for TypeScript itself,
 * since the flags of its parent do not apply to it.
 */
import { register } from "tsx/esm/api";
import { serveQuestions } from "../../../infra/bounded-thread-half.mjs";

register();
const { rank } = await import("./rank.ts");

serveQuestions(({ question, texts, most }) => rank(question, texts, most));
