import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const CACHE = resolve(import.meta.dirname, "../../.cache");

/**
 * A virtual environment with the packages of a requirements file, made once for each text of that file.
 * @returns its folder
 * @throws Error if python3 or pip fails
 */
export function pythonVenv(pins: string): string {
  const hash = createHash("sha256").update(readFileSync(pins)).digest("hex").slice(0, 12);
  const venv = join(CACHE, `python-${hash}`);
  const whole = join(venv, "whole");
  if (existsSync(whole)) return venv;
  rmSync(venv, { recursive: true, force: true });
  run("python3", ["-m", "venv", venv]);
  run(join(venv, "bin/pip"), ["install", "--quiet", "--disable-pip-version-check", "-r", pins]);
  writeFileSync(whole, "");
  return venv;
}

function run(command: string, args: string[]): void {
  process.stderr.write(`> ${command} ${args.join(" ")}\n`);
  const { status, error } = spawnSync(command, args, { stdio: "inherit" });
  if (status !== 0) throw new Error(`${command} ${args[0]} failed: ${error?.message ?? `exit ${status}`}`);
}
