import { mergeConfig } from "vitest/config";
import all from "../vitest.config.ts";
import { SLOW } from "./slow.ts";

/**
 * `npm test`: what is not of the slow suite. The files of one worker share its modules: loading them anew for each of 285
 * files was a third of the whole time. So a test puts back what it changes of the process, as it does within its file.
 */
export default mergeConfig(all, {
  test: {
    ...{ root: new URL("..", import.meta.url).pathname, exclude: SLOW, isolate: false, maxWorkers: 4 },
    // The longest takes 17 s beside four other suites. A hook may start a chain and a whole market.
    ...{ testTimeout: 30_000, hookTimeout: 120_000, expect: { poll: { timeout: 20_000 } } },
    globalSetup: "test/helpers/programs.ts",
  },
});
