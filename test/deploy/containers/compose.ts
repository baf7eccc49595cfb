import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { attempt, env, run } from "./podman.ts";

/** Docker Compose itself, as others wrote it, over podman's Docker API: it reads compose.yaml, and we only ask. */
const VERSION = "v2.40.3";
const PACKAGE = "github.com/docker/compose/v2";
const CACHE = join(homedir(), ".cache", "touchstone", `docker-compose-${VERSION}`);

/** The program, built once out of Go's module proxy. @throws with the compiler's words */
function program(): string {
  const binary = join(CACHE, "docker-compose");
  if (existsSync(binary)) return binary;
  process.stderr.write(`building Docker Compose ${VERSION} into ${CACHE}: a minute or two, once\n`);
  const source = join(CACHE, "source");
  mkdirSync(source, { recursive: true });
  // `go install` refuses a module that excludes versions of others: it is built as a part of one that requires it.
  writeFileSync(join(source, "go.mod"), `module compose\ngo 1.24\nrequire ${PACKAGE} ${VERSION}\n`);
  writeFileSync(join(source, "tools.go"), `//go:build tools\n\npackage tools\n\nimport _ "${PACKAGE}/cmd"\n`);
  const go = { cwd: source, env: { CGO_ENABLED: "0", GOFLAGS: "-mod=mod -buildvcs=false" } };
  run("go", ["mod", "tidy"], go);
  run("go", ["build", "-trimpath", "-ldflags=-s -w", "-o", binary, `${PACKAGE}/cmd`], go);
  rmSync(source, { recursive: true, force: true });
  return binary;
}

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** What `podman inspect` says of a container, as far as it is looked at here. */
export interface Container {
  Id: string;
  State: {
    Status: string;
    Running: boolean;
    Pid: number;
    ExitCode: number;
    FinishedAt: string;
    Health?: { Status: string };
  };
  Config: { Labels: Record<string, string> };
  RestartCount: number;
  service: string;
}

/** A project of compose.yaml, run by Docker Compose. */
export interface Project {
  /** The same command line as a user's, after `docker compose -f .. --env-file ..`. */
  compose(...words: string[]): Promise<Ended>;
  /** One word of ours in a container of a service, as by `docker compose run --rm`. @returns its end, and what it said */
  once(service: string, ...words: string[]): Promise<Ended>;
  /** Every container of it, also those that ended. */
  containers(): Container[];
  /** Ends the API and the timers; takes containers, networks and volumes away. */
  close(): Promise<void>;
}

/** Between two rounds of health checks, and between two checks of a container that is healthy, ms. */
const ROUND_MS = 4_000;
const HEALTHY_MS = 20_000;
/** Podman's API ends by itself when nobody has asked for so long, s: a run that is killed ends nothing. */
const IDLE_S = 1_800;

/** What a run that was killed left of the project goes, or its brokers, money and record would be this one's. */
function clear(name: string): void {
  const label = `label=com.docker.compose.project=${name}`;
  for (const [kind, list, remove] of [
    ["container", ["ps", "--all"], ["rm", "--force", "--volumes", "--time", "0"]],
    ["volume", ["volume", "ls"], ["volume", "rm", "--force"]],
    ["network", ["network", "ls"], ["network", "rm", "--force"]],
  ] as const) {
    const left = run("podman", [...list, "--quiet", "--filter", label])
      .split("\n")
      .filter(Boolean);
    if (left.length === 0) continue;
    process.stderr.write(`a run before this one left ${left.length} of ${kind}: removed\n`);
    run("podman", [...remove, ...left]);
  }
}

/**
 * @param files compose files, the first being ours
 * @param envFile what a user has in `.env`
 */
export async function openProject(
  dir: string,
  name: string,
  files: readonly string[],
  envFile: string,
): Promise<Project> {
  const binary = program();
  clear(name);
  const socket = join(dir, "podman.sock");
  const api = spawn("podman", ["system", "service", `--time=${IDLE_S}`, `unix://${socket}`], { env, stdio: "ignore" });
  for (let tries = 0; !existsSync(socket); tries++) {
    if (tries > 300 || api.exitCode !== null) throw new Error("podman's API did not come up");
    await sleep(100);
  }
  // A variable of the environment wins over the file's: of this process's own (vitest has a BASE_URL) none is meant.
  const told = new Set([...readFileSync(envFile, "utf8").matchAll(/^([A-Z0-9_]+)=/gm)].map(([, one]) => one));
  const bare = Object.fromEntries(Object.entries(env).filter(([one]) => !told.has(one)));
  const words = ["--project-name", name, ...files.flatMap((file) => ["--file", file]), "--env-file", envFile];
  const compose = (...rest: string[]): Promise<Ended> => {
    const own = { ...bare, DOCKER_HOST: `unix://${socket}`, COMPOSE_PROGRESS: "plain", COMPOSE_MENU: "false" };
    return ended(spawn(binary, [...words, ...rest], { env: own, stdio: ["ignore", "pipe", "pipe"] }));
  };
  // Its log is whole; what is attached to a container that ends at once may come too late for what it said.
  const once = async (service: string, ...rest: string[]): Promise<Ended> => {
    const own = `${name}-once`;
    const begun = await compose("run", "--detach", "--no-deps", "--name", own, service, ...rest);
    if (begun.code !== 0) return begun;
    // Not synchronously: the world outside, which it may ask, is in this process.
    const code = Number((await ended(spawn("podman", ["wait", own], { env }))).stdout);
    const { stdout, stderr } = attempt("podman", ["logs", own]);
    run("podman", ["rm", own]);
    return { code, stdout, stderr };
  };
  const containers = (): Container[] => {
    const ids = run("podman", ["ps", "--all", "--quiet", "--filter", `label=com.docker.compose.project=${name}`]);
    const all = ids.split("\n").filter(Boolean);
    if (all.length === 0) return [];
    // One that went away in between fails the whole look: it is looked at again.
    const { status, stdout } = attempt("podman", ["inspect", ...all]);
    if (status !== 0) return containers();
    return (JSON.parse(stdout) as Container[]).map((one) => ({
      ...one,
      service: one.Config.Labels["com.docker.compose.service"]!,
    }));
  };
  const stop = new AbortController();
  const checking = checkHealth(name, stop.signal);
  return {
    ...{ compose, once, containers },
    async close() {
      stop.abort();
      await checking;
      const { code, stderr } = await compose("down", "--volumes", "--timeout", "1");
      api.kill("SIGTERM");
      if (code !== 0) throw new Error(`docker compose down: ${stderr}`);
    },
  };
}

/** What a process said, when it has ended. */
export function ended(child: ReturnType<typeof spawn>): Promise<Ended> {
  const said = { stdout: "", stderr: "" };
  for (const which of ["stdout", "stderr"] as const) {
    child[which]!.setEncoding("utf8").on("data", (more: string) => {
      said[which] += more;
    });
  }
  return new Promise((done, fail) => {
    child.once("error", fail);
    child.once("close", (code) => done({ code, ...said }));
  });
}

/**
 * Podman leaves the timing of health checks to systemd's timers, which a container or a CI machine may not have. What is
 * healthy is checked as seldom as compose.yaml's longest interval says: a check of a broker starts a Java machine, and
 * all of them every four seconds took more of two cores than the services.
 */
async function checkHealth(name: string, signal: AbortSignal): Promise<void> {
  const checkedAt = new Map<string, number>();
  while (!signal.aborted) {
    const filters = ["--filter", `label=com.docker.compose.project=${name}`, "--filter", "status=running"];
    const running = ["ps", "--format", "{{.ID}} {{.Status}}", ...filters];
    const lines = (await ended(spawn("podman", running, { env }))).stdout.split("\n").filter(Boolean);
    for (const line of lines) {
      const id = line.split(" ", 1)[0]!;
      const isDue = performance.now() - (checkedAt.get(id) ?? Number.NEGATIVE_INFINITY) >= HEALTHY_MS;
      if (signal.aborted || (line.includes("(healthy)") && !isDue)) continue;
      checkedAt.set(id, performance.now());
      await ended(spawn("podman", ["healthcheck", "run", id], { env }));
    }
    await sleep(ROUND_MS, undefined, { signal }).catch(() => undefined);
  }
}
