import { execFile } from "node:child_process";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
// @ts-expect-error a plain script: what npm run build runs
import { buildScript } from "../../serving/client/build.mjs";

const ROOT = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);

/** The file of the package and of `/client.mjs`, built where the service looks for it. @returns its path */
export async function builtClient(): Promise<string> {
  await buildScript();
  return join(ROOT, "serving/client/dist/client.mjs");
}

/**
 * The package as npm packs it. @param whole with its declarations, as `npm pack` makes it: some seconds more
 * @returns path of the tarball
 */
export async function packedClient(into: string, { whole = false } = {}): Promise<string> {
  if (!whole) await builtClient();
  const args = ["pack", "--workspace", "touchstone-client", "--pack-destination", into, "--json"];
  const { stdout } = await run("npm", whole ? args : [...args, "--ignore-scripts"], { cwd: ROOT });
  // What its scripts print comes first.
  const [{ filename }] = JSON.parse(stdout.slice(stdout.indexOf("[\n")));
  return join(into, filename);
}

/** Packages that a user of the library brings, as they are installed here. */
const BROUGHT = ["@x402", "@types", "mppx", "viem", "undici-types"];

/** A project of somebody else that has installed the package, without a network. @returns its folder */
export async function installedClient(tarball: string, dir: string): Promise<string> {
  const modules = join(dir, "node_modules");
  await mkdir(modules, { recursive: true });
  await writeFile(join(dir, "package.json"), JSON.stringify({ name: "user", private: true, type: "module" }));
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", tarball], { cwd: dir });
  for (const name of BROUGHT) {
    await mkdir(dirname(join(modules, name)), { recursive: true });
    await symlink(join(ROOT, "node_modules", name), join(modules, name));
  }
  return dir;
}
