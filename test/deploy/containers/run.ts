import { spawnSync } from "node:child_process";
import { ENGINE_TOOLS, isInstalled } from "../../../fixtures/cluster/tools.ts";
import { SEARCHED } from "../../cluster/tools.ts";
import { NEEDED } from "./podman.ts";

/**
 * `npm run test:deploy`: our image, and compose.yaml under Docker Compose and podman. It needs root, Debian's packages,
 * and Go, Java and Maven for what stands in for other images. What is missing is named; where CI=true that is a failure,
 * elsewhere it is said and nothing is run.
 */
const isProgram = (name: string): boolean =>
  spawnSync("sh", ["-c", `command -v ${name}`], { env: SEARCHED }).status === 0;
const packages = Object.entries(NEEDED).filter(([, program]) => !isProgram(program));
const tools = (["go", "java", "maven"] as const).filter((name) => !isInstalled(ENGINE_TOOLS[name], SEARCHED));
const missing = [
  ...(process.getuid?.() === 0 ? [] : ["root: containers with networks of their own are started"]),
  ...(packages.length > 0 ? [`apt-get install ${packages.map(([name]) => name).join(" ")}`] : []),
  ...tools.map((name) => ENGINE_TOOLS[name].install),
];
if (missing.length > 0) {
  process.stderr.write(`NOT RUN: infra/deploy/Dockerfile and compose.yaml. What is missing here:\n`);
  for (const one of missing) process.stderr.write(`  ${one}\n`);
  process.exit(process.env.CI ? 1 : 0);
}
const vitest = ["vitest", "run", "--config", "test/deploy/containers/vitest.config.ts", ...process.argv.slice(2)];
process.exit(spawnSync("npx", vitest, { stdio: "inherit", env: SEARCHED }).status ?? 1);
