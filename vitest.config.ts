import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/bench/**", "test/browser/**", "test/cluster/**"],
    // Real parts (a chain, sellers, DuckDB, SQLite) share two cores: slow is not wrong.
    testTimeout: 120_000,
    hookTimeout: 240_000,
    pool: "forks",
  },
});
