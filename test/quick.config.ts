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
    // These end what hangs, and nothing else: a test that takes 4 s of an idle machine took 33 on one whose memory others used.
    ...{ testTimeout: 180_000, hookTimeout: 600_000, expect: { poll: { timeout: 60_000 } } },
    globalSetup: "test/helpers/programs.ts",
  },
});
