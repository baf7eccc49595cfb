import { defineConfig } from "vitest/config";

/** What needs tools beyond Node: each test file says which, and test/cluster/run.ts looks for them first. */
export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    include: ["test/cluster/**/*.test.ts"],
    globalSetup: "test/helpers/programs.ts",
    testTimeout: 120_000,
    hookTimeout: 300_000,
    pool: "forks",
    // Every file has brokers and stores of its own, and most of its time goes by in waits for what was killed or cut.
    maxWorkers: 2,
  },
});
