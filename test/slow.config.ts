import all from "../vitest.config.ts";
import { longestFirst } from "./longest-first.ts";
import { SLOW } from "./slow.ts";

/** Half of the suite's time is theirs. */
const LONGEST = [
  "orders/histories-long.test.ts",
  "flow/buying-killed.test.ts",
  "orders/histories-real.test.ts",
  "flow/letters.test.ts",
  // It waits for a settlement to be final.
  "flow/operate-page.test.ts",
  "flow/kill.test.ts",
  "roles/archive-faults.test.ts",
  "2-ingest/ingest.test.ts",
  "flow/bad-input.test.ts",
  "flow/buy.test.ts",
  "corrections/model.test.ts",
  "roles/payees.test.ts",
];

/** `npm run test:slow`. */
export default {
  test: {
    ...all.test,
    maxWorkers: 3,
    root: new URL("..", import.meta.url).pathname,
    include: SLOW,
    globalSetup: "test/helpers/programs.ts",
    sequence: { sequencer: longestFirst(LONGEST) },
  },
};
