import { defineConfig } from "vitest/config";

/** The pages in a real headless Chromium (Debian's package): `npm run test:browser`. */
export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    include: ["test/browser/**/*.test.ts"],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    pool: "forks",
    // Half of what a test takes are waits for the browser's processes.
    maxWorkers: 2,
    maxConcurrency: 2,
  },
});
