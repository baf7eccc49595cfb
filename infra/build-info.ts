import packaged from "../package.json" with { type: "json" };
import type { Config } from "./config.ts";

/** What this process is: said in its first log line and in its metrics. */
export interface BuildInfo {
  version: string;
  /** As the builder named it; `unknown` where nobody did. */
  revision: string;
  node: string;
}

export const buildInfo = ({ revision }: Pick<Config, "revision">): BuildInfo => ({
  version: packaged.version,
  revision: revision ?? "unknown",
  node: process.version,
});
