import { defineConfig } from "vitest/config";

/** Run by `npm run test:python`, which names the Python of its environment. */
export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    include: ["test/python/*.test.ts"],
    // These end what hangs, and nothing else.
    testTimeout: 600_000,
    hookTimeout: 1_800_000,
    expect: { poll: { timeout: 120_000 } },
    pool: "forks",
  },
});
