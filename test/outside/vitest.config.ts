import { defineConfig } from "vitest/config";
import { leftOut } from "./judges.ts";

/** Programs of others judge what the service serves: `npm run test:outside`. */
export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    include: ["test/outside/*.test.ts"],
    exclude: leftOut(),
    globalSetup: ["test/helpers/programs.ts", "test/outside/judges.ts"],
    // These end what hangs, and nothing else.
    testTimeout: 600_000,
    hookTimeout: 1_800_000,
    expect: { poll: { timeout: 120_000 } },
    pool: "forks",
    maxWorkers: 2,
  },
});
