import { defineConfig } from "vitest/config";

/** Run by `npm run test:python`, which names the Python of its environment. */
export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    include: ["test/python/*.test.ts"],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    pool: "forks",
  },
});
