import { mergeConfig } from "vitest/config";
import all from "../vitest.config.ts";
import { SLOW } from "./slow.ts";

/** `npm test`: what is not of the slow suite. */
export default mergeConfig(all, { test: { root: new URL("..", import.meta.url).pathname, exclude: SLOW } });
