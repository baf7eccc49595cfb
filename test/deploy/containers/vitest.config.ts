import { defineConfig } from "vitest/config";

/** `npm run test:deploy`: one world of containers after the other. */
export default defineConfig({
  test: {
    root: new URL("../../..", import.meta.url).pathname,
    include: ["test/deploy/containers/**/*.test.ts"],
    testTimeout: 600_000,
    hookTimeout: 1_800_000,
    pool: "forks",
    fileParallelism: false,
    bail: 1,
  },
});
