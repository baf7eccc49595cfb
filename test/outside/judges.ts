import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isInstalled, type Tool } from "../../fixtures/cluster/tools.ts";
import { pythonVenv } from "../helpers/python-venv.ts";

/**
 * Where the judges come from: a virtual environment of Python (requirements.txt), Node packages (js/package-lock.json) and
 * Go modules (go/). `setup` fetches the first two with pip and npm, once for each text of those files, and compiles what the
 * Go programs need into Go's own cache. Programs in js/ find their packages beside themselves.
 */
const HERE = import.meta.dirname;
/**
 * What the judges take on an idle machine, once they are fetched and built; who takes longer is told so. The limit only
 * ends what hangs: others may use the machine, too.
 */
const USUAL_MS = 240_000;
const LIMIT_MS = 10 * USUAL_MS;

interface NeededTool extends Tool {
  /** Test files that cannot run without it. */
  needs: readonly string[];
}

const TOOLS: Record<string, NeededTool> = {
  python3: {
    command: ["python3", "-c", "import ensurepip, venv"],
    install: "Python 3.10 or later; apt-get install python3-venv",
    needs: ["bundle.test.ts", "keys.test.ts", "mcp.test.ts", "notices.test.ts", "tables.test.ts", "x402.test.ts"],
  },
  go: {
    command: ["go", "version"],
    install: "Go 1.26 or newer",
    needs: ["bundle.test.ts", "keys.test.ts", "notices.test.ts", "openapi.test.ts", "witness.test.ts"],
  },
  ssh: { command: ["ssh", "-V"], install: "apt-get install openssh-client", needs: ["witness.test.ts"] },
  chromium: { command: ["chromium", "--version"], install: "apt-get install chromium", needs: ["cors.test.ts"] },
};

/** The interpreter of Python that has the packages. */
export const PYTHON = process.env.OUTSIDE_PYTHON ?? "python3";

/** Builds the program of that folder of go/ into `dir`. @returns its path */
export function goProgram(name: string, dir: string): string {
  const program = join(dir, name);
  execFileSync("go", ["build", "-o", program, `./${name}`], { cwd: join(HERE, "go"), stdio: "inherit" });
  return program;
}

/** Torchwood's witness and the reader in go/witness, built into `dir`. */
export function torchwood(dir: string): { litewitness: string; reader: string } {
  const [litewitness, reader] = [join(dir, "litewitness"), join(dir, "reader")];
  const build = (program: string, what: string) =>
    execFileSync("go", ["build", "-o", program, what], { cwd: join(HERE, "go/witness"), stdio: "inherit" });
  build(litewitness, "filippo.io/torchwood/cmd/litewitness");
  build(reader, ".");
  return { litewitness, reader };
}

/** Debian puts daemons, and Go's archive its command, where a user's PATH may not look. */
const SEARCHED = `${process.env.PATH ?? ""}:/usr/local/go/bin`;

const missingTools = (): NeededTool[] =>
  Object.values(TOOLS).filter((tool) => !isInstalled(tool, { ...process.env, PATH: SEARCHED }));

/**
 * Test files whose judge is not on this machine, each named on stderr.
 * @throws Error where `CI` is set
 */
export function leftOut(): string[] {
  const missing = missingTools();
  for (const { command, install, needs } of missing) {
    process.stderr.write(`*** A JUDGE IS MISSING: ${command[0]} (${install}): test/outside/{${needs}} ***\n`);
  }
  if (missing.length > 0 && process.env.CI) throw new Error("CI is set, and a judge of test/outside is missing");
  return missing.flatMap(({ needs }) => needs.map((file) => `test/outside/${file}`));
}

/** Node packages of js/, installed as its lock says. Their scripts do not run. */
async function nodePackages(): Promise<void> {
  const folder = join(HERE, "js");
  const lock = createHash("sha256")
    .update(readFileSync(join(folder, "package-lock.json")))
    .digest("hex");
  const whole = join(folder, "node_modules", ".whole");
  if (existsSync(whole) && readFileSync(whole, "utf8") === lock) return;
  process.stderr.write("> npm ci in test/outside/js\n");
  const args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  await ended(spawn("npm", args, { cwd: folder, stdio: ["ignore", 2, 2] }));
  writeFileSync(whole, lock);
}

const ended = (child: ChildProcess): Promise<void> =>
  new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`${child.spawnargs.join(" ")}: ${code}`))));
  });

/** Modules of go/, fetched and compiled; a build from nothing takes longer than a test may. */
async function goModules(): Promise<void> {
  const go = (folder: string, ...args: string[]) => {
    process.stderr.write(`> go ${args.join(" ")} in test/outside/${folder}\n`);
    return ended(spawn("go", args, { cwd: join(HERE, folder), stdio: ["ignore", 2, 2] }));
  };
  await go("go", "build", "-o", "/dev/null", "./...");
  await go("go/api", "tool", "oapi-codegen", "-version");
  await go("go/witness", "build", "-o", "/dev/null", "filippo.io/torchwood/cmd/litewitness");
}

/** Before the files of a run. @returns what comes after them */
export async function setup(): Promise<() => void> {
  process.env.PATH = SEARCHED;
  const fetched = Promise.all([nodePackages(), isInstalled(TOOLS.go!, { ...process.env }) ? goModules() : undefined]);
  if (isInstalled(TOOLS.python3!))
    process.env.OUTSIDE_PYTHON = join(pythonVenv(join(HERE, "requirements.txt")), "bin/python");
  await fetched;
  const began = performance.now();
  const bound = setTimeout(() => {
    process.stderr.write(`*** test/outside took longer than ${LIMIT_MS / 1000} s and was ended ***\n`);
    process.exit(1);
  }, LIMIT_MS);
  return () => {
    clearTimeout(bound);
    const seconds = Math.round((performance.now() - began) / 1000);
    if (1000 * seconds > USUAL_MS) process.stderr.write(`*** test/outside took ${seconds} s: more than usual ***\n`);
  };
}
