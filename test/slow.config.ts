import all from "../vitest.config.ts";
import { SLOW } from "./slow.ts";

/** `npm run test:slow`. */
export default {
  test: {
    ...all.test,
    root: new URL("..", import.meta.url).pathname,
    include: SLOW,
    globalSetup: "test/helpers/programs.ts",
  },
};
