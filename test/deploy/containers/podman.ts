import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SEARCHED } from "../../cluster/tools.ts";

/** Debian's packages that run containers here, and the program by which each is known to be there. */
export const NEEDED: Readonly<Record<string, string>> = {
  ...{ podman: "podman", buildah: "buildah", runc: "runc", conmon: "conmon", catatonit: "catatonit" },
  ...{ mmdebstrap: "mmdebstrap", iptables: "iptables", netavark: "/usr/lib/podman/netavark" },
  "aardvark-dns": "/usr/lib/podman/aardvark-dns",
};

/** The other runtime knows nothing of mixed cgroups, and no limit above this machine's own can be asked for. */
const conf = (files: string): string => `[containers]
default_ulimits = ["nofile=${files}:${files}", "nproc=4000:4000"]
[engine]
runtime = "runc"
`;

export const env: NodeJS.ProcessEnv = { ...SEARCHED };

/** Settings of podman for these tests alone. */
export function configure(dir: string): void {
  mkdirSync(dir, { recursive: true });
  const files = run("sh", ["-c", "ulimit -Hn"]).trim();
  writeFileSync(join(dir, "containers.conf"), conf(files));
  env.CONTAINERS_CONF = join(dir, "containers.conf");
}

interface Options {
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  input?: string;
}

/** Runs a program to its end. @returns what it printed @throws with all that it said when it fails */
export function run(program: string, args: readonly string[], options: Options = {}): string {
  const { status, stdout, stderr, error } = attempt(program, args, options);
  if (status === 0) return stdout;
  throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? `ended with ${status}`}\n${stdout}${stderr}`);
}

/** The same, whatever comes of it. */
export const attempt = (program: string, args: readonly string[], options: Options = {}) =>
  spawnSync(program, args, { encoding: "utf8", maxBuffer: 1 << 28, ...options, env: { ...env, ...options.env } });
