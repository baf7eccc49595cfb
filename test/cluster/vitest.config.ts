import { defineConfig } from "vitest/config";
import { longestFirst } from "../longest-first.ts";

const LONGEST = [
  ...["schedules.test.ts", "flow-faults.test.ts", "schedules-real.test.ts", "market.test.ts", "log-faults.test.ts"],
  ...["roles.test.ts", "owners.test.ts", "cluster/archive.test.ts"],
];

/** What needs tools beyond Node: each test file says which, and test/cluster/run.ts looks for them first. */
export default defineConfig({
  test: {
    root: new URL("../..", import.meta.url).pathname,
    include: ["test/cluster/**/*.test.ts"],
    globalSetup: "test/helpers/programs.ts",
    sequence: { sequencer: longestFirst(LONGEST) },
    // These end what hangs, and nothing else: a machine may be many times as slow as usual.
    ...{ testTimeout: 1_800_000, hookTimeout: 3_600_000, expect: { poll: { timeout: 120_000 } } },
    pool: "forks",
    // Every file has brokers and stores of its own, and most of its time goes by in waits for what was killed or cut.
    maxWorkers: 3,
  },
});
