import { type ChildProcess, spawn } from "node:child_process";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import type { Readable } from "node:stream";

/** A running anvil. It dies with its parent, however the parent dies. */
export interface AnvilProcess {
  readonly rpcUrl: string;
  readonly port: number;
  /** Process id of anvil itself, not of its guard. */
  readonly pid: number;
  /** Settles when anvil has ended, asked or not, with what it said on stderr. Never rejects. */
  readonly ended: Promise<{ code: number | null; stderr: string }>;
  /** Ask anvil to write its state and end; kill it after ten seconds. Resolves when it is gone. */
  stop(): Promise<void>;
}

/**
 * The guard: a shell that runs anvil and reads its own stdin, which is a pipe only we hold. When we close it, or die
 * by any signal, the read ends and anvil is told to write its state and go. So the clean stop and the crash are one
 * path, and no anvil is left behind. It prints anvil's pid, so that we can end anvil if somebody kills the guard.
 */
const GUARD = `
exec 3<&0
"$@" </dev/null >/dev/null 3<&- &
node=$!
echo "$node"
exec >/dev/null
(
  read -r _ <&3
  kill -TERM "$node" 2>/dev/null
  tries=0
  while kill -0 "$node" 2>/dev/null && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -KILL "$node" 2>/dev/null
) &
watch=$!
exec 3<&-
wait "$node"
code=$?
kill "$watch" 2>/dev/null
exit "$code"
`;

/** Path of the native binary inside the npm package; no install script is needed. Throws when there is none. */
export function anvilBinary(): string {
  const require = createRequire(import.meta.url);
  const cpu = process.arch === "x64" ? "amd64" : process.arch;
  const name = `@foundry-rs/anvil-${process.platform}-${cpu}`;
  try {
    const anvil = createRequire(require.resolve("@foundry-rs/anvil/package.json"));
    return join(dirname(anvil.resolve(`${name}/package.json`)), "bin", "anvil");
  } catch (cause) {
    throw new Error(`no local chain on this machine: package ${name} is not installed`, { cause });
  }
}

/** A port nobody listens on now; `wanted` itself, or an error that names it, when it is given. */
export async function freePort(wanted = 0): Promise<number> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => reject(new Error(`port ${wanted} is taken or not allowed`, { cause })));
    server.listen(wanted, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address ? address.port : wanted;
      server.close(() => resolve(port));
    });
  });
}

/** Start anvil with these arguments under its guard. Resolves when the guard has told its pid, before it answers. */
export async function spawnAnvil(port: number, args: readonly string[]): Promise<AnvilProcess> {
  const command = [anvilBinary(), "--quiet", "--host", "127.0.0.1", "--port", String(port), ...args];
  const guard = spawn("/bin/sh", ["-c", GUARD, "anvil-guard", ...command], { stdio: ["pipe", "pipe", "pipe"] });
  // Writing to a guard that is gone is not an event: its end is.
  guard.stdin.on("error", () => {});
  const stderr = tail(guard.stderr);
  const pid = await firstNumber(guard);
  const ended = new Promise<{ code: number | null; stderr: string }>((resolve) => {
    guard.once("close", (code) => resolve({ code, stderr: stderr() }));
    // The guard was killed alone: anvil lives on without it, and now goes too, with what is left of the guard.
    guard.once("exit", (_code, signal) => {
      if (signal) killQuietly(pid);
      guard.stdin.end();
    });
  });
  const stop = async () => {
    guard.stdin.end();
    await ended;
  };
  return { rpcUrl: `http://127.0.0.1:${port}`, port, pid, ended, stop };
}

function firstNumber(guard: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    guard.once("error", (cause) => reject(new Error("the local chain could not be started", { cause })));
    guard.once("exit", (code) => reject(new Error(`the local chain's guard ended at once (exit ${code})`)));
    guard.stdout?.once("data", (bytes: Buffer) => resolve(Number.parseInt(bytes.toString("utf8"), 10)));
  });
}

/** The last 2,000 characters of a stream, kept while it runs so that it never blocks its writer. */
function tail(stream: Readable): () => string {
  let kept = "";
  stream.setEncoding("utf8").on("data", (more: string) => {
    kept = (kept + more).slice(-2_000);
  });
  return () => kept.trim();
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGTERM");
  } catch {
    // Gone already: that is what was wanted.
  }
}
