import { configureGlobal } from "fast-check";
import { SEED } from "./drawn.ts";

// A history that fails is printed with its seed and shrunk; which ones are drawn at all is decided by the commit.
configureGlobal({ seed: SEED });

export * as fc from "./fast-check.ts";
