import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["bench", "browser", "cluster", "deploy/containers", "outside", "python"].map((name) => `test/${name}/**`),
    // Real parts (a chain, sellers, DuckDB, SQLite) share two cores: slow is not wrong. What took 40 s alone took more
    // than 120 on a machine with ten times as much to do.
    testTimeout: 600_000,
    hookTimeout: 1_800_000,
    expect: { poll: { timeout: 120_000 } },
    pool: "forks",
    // Half of what a test file takes are waits: for disks, for children, for a chain's next block.
    maxWorkers: 2,
  },
});
