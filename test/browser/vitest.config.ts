import { defineConfig } from "vitest/config";

/** The pages in a real headless Chromium (Debian's package): `npm run test:browser`. */
export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    include: ["test/browser/**/*.test.ts"],
    // These end what hangs, and nothing else.
    testTimeout: 600_000,
    hookTimeout: 1_800_000,
    expect: { poll: { timeout: 120_000 } },
    pool: "forks",
    // Half of what a test takes are waits for the browser's processes.
    maxWorkers: 2,
    maxConcurrency: 2,
  },
});
