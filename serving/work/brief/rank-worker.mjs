/**
 * The thread of summariser.ts: ranks sentences of what strangers wrote. What ranks is TypeScript, so a loader comes
 * before it, whatever the flags of whoever began this thread.
 */
import { register } from "tsx/esm/api";
import { answering } from "../../../infra/bounded-thread-half.mjs";

register();
const { rank } = await import("./rank.ts");

answering(({ question, texts, most }) => rank(question, texts, most));
