import { spawnSync } from "node:child_process";
import { isInstalled, SEARCHED, TOOLS } from "./tools.ts";

/**
 * `npm run test:cluster [-- --skip-missing]`: the suite that needs tools beyond Node. A tool that is missing fails it
 * with what to install; with --skip-missing its tests are left out, and that is said, too.
 */
const args = process.argv.slice(2);
const skip = args.includes("--skip-missing");
const missing = Object.entries(TOOLS).filter(([, tool]) => !isInstalled(tool, SEARCHED));
for (const [name, { install, needs }] of missing) {
  process.stderr.write(
    `${skip ? "LEFT OUT" : "missing"}: ${name} (${install}) for ${needs.join(", ")} of test/cluster\n`,
  );
}
if (missing.length && !skip) process.exit(1);
const exclude = missing.flatMap(([, { needs }]) => needs.flatMap((file) => ["--exclude", `test/cluster/${file}`]));
const rest = args.filter((arg) => arg !== "--skip-missing");
const vitest = ["vitest", "run", "--config", "test/cluster/vitest.config.ts", ...exclude, ...rest];
process.exit(spawnSync("npx", vitest, { stdio: "inherit", env: SEARCHED }).status ?? 1);
