import packageJson from "../package.json" with { type: "json" };
import type { Config } from "./config.ts";

/** Version, source revision and Node release of this process, for its first log line and its metrics. */
export interface BuildInfo {
  version: string;
  /** Source revision from the settings; `unknown` when the settings name none. */
  revision: string;
  node: string;
}

/** Returns the build information of this process. */
export const buildInfo = ({ revision }: Pick<Config, "revision">): BuildInfo => ({
  version: packageJson.version,
  revision: revision ?? "unknown",
  node: process.version,
});
