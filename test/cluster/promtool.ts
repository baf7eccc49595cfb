import { spawnSync } from "node:child_process";
import { join } from "node:path";

const DEPLOY = join(import.meta.dirname, "../../infra/deploy");

/** Prometheus' own tool, in the folder of the rules. @returns what it says @throws that it found something, and what */
export function promtool(args: readonly string[], input = ""): string {
  const { error, status, stdout, stderr } = spawnSync("promtool", args, { cwd: DEPLOY, encoding: "utf8", input });
  if (error) throw new Error(`promtool is missing (apt-get install prometheus): ${error.message}`);
  if (status !== 0) throw new Error(`promtool ${args.join(" ")}: ${stdout}${stderr}`);
  return stdout;
}
