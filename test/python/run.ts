import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pythonVenv } from "../helpers/python-venv.ts";

/**
 * `npm run test:python`: an environment with pinned packages, the wheel of the client built and installed into it, its
 * types, the table of cases, real payments, and the judges of the action and of the page's workflow. Needs python3 (3.10 or
 * later, with venv), PyPI, and Go for actionlint.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const PACKAGE = join(ROOT, "serving/client-python");
const ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12";
const venv = pythonVenv(join(import.meta.dirname, "requirements.txt"));
const bin = (name: string): string => join(venv, "bin", name);

/** Runs a step; the first that fails ends the whole. */
function step(command: string, args: string[], env: Record<string, string> = {}): void {
  process.stderr.write(`> ${command} ${args.join(" ")}\n`);
  const { status } = spawnSync(command, args, { cwd: ROOT, stdio: "inherit", env: { ...process.env, ...env } });
  if (status !== 0) process.exit(status ?? 1);
}

const dist = join(venv, "dist");
// A module that is gone would still be packed out of an earlier build's folder.
for (const old of [dist, join(PACKAGE, "build")]) rmSync(old, { recursive: true, force: true });
step(bin("python"), ["-m", "build", "--wheel", "--no-isolation", "--outdir", dist, PACKAGE]);
const wheel = join(dist, readdirSync(dist).find((name) => name.endsWith(".whl"))!);
step(bin("pip"), ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall", wheel]);
step(bin("mypy"), ["--strict", "--cache-dir", join(venv, "mypy"), join(PACKAGE, "touchstone_client")]);
step(bin("pyright"), ["--pythonpath", bin("python"), "--project", PACKAGE, join(PACKAGE, "touchstone_client")]);
step(bin("pytest"), ["-q", "-p", "no:cacheprovider", import.meta.dirname]);
step("npx", ["vitest", "run", "--config", "test/python/vitest.config.ts"], { PYTHON: bin("python") });

step(bin("check-jsonschema"), ["--builtin-schema", "vendor.github-actions", "infra/action/action.yml"]);
const [, workflow] = /```yaml\n(.*?)```/s.exec(readFileSync(join(ROOT, "docs/listings.md"), "utf8"))!;
const example = join(venv, "workflows", "listing.yml");
mkdirSync(join(venv, "workflows"), { recursive: true });
writeFileSync(example, workflow!);
step(bin("check-jsonschema"), ["--builtin-schema", "vendor.github-workflows", example]);
step("go", ["run", ACTIONLINT, example]);
