import { type ChildProcessByStdio, spawn } from "node:child_process";
import { resolve as absolute } from "node:path";
import type { Readable, Writable } from "node:stream";

/** Without a question for so long, the helper is let go. */
const IDLE_MS = 5_000;
/**
 * Reads paths, a line each, and says of each whether `sync -f` was content. A shell that was begun once is small: beginning
 * a process takes a large one tens of milliseconds of its main thread, each time. It ends with its input, so with us.
 */
const SCRIPT = 'while IFS= read -r path; do if sync -f -- "$path" </dev/null; then echo y; else echo n; fi; done';

type Shell = ChildProcessByStdio<Writable, Readable, null>;

interface Helper {
  shell: Shell;
  waiting: ((done: boolean) => void)[];
  idle: NodeJS.Timeout | null;
}

let helper: Helper | null = null;

/** syncfs(2) on the file system of this path, by way of coreutils, since Node has no name for it. False: nothing is known. */
export function syncWhole(path: string): Promise<boolean> {
  // A line for each: no other path can be told to the helper.
  if (path.includes("\n")) return Promise.resolve(false);
  helper ??= begun();
  if (!helper) return Promise.resolve(false);
  const { shell, waiting, idle } = helper;
  if (idle) clearTimeout(idle);
  helper.idle = null;
  refer(shell, true);
  return new Promise((resolve) => {
    waiting.push(resolve);
    shell.stdin.write(`${absolute(path)}\n`);
  });
}

function begun(): Helper | null {
  const shell: Shell = spawn("sh", ["-c", SCRIPT], { stdio: ["pipe", "pipe", "ignore"] });
  const own: Helper = { shell, waiting: [], idle: null };
  const gone = () => {
    if (helper === own) helper = null;
    if (own.idle) clearTimeout(own.idle);
    for (const resolve of own.waiting.splice(0)) resolve(false);
  };
  shell.on("error", gone);
  shell.on("exit", gone);
  // Out of descriptors it has none of its own either.
  if (!shell.stdin || !shell.stdout) return null;
  shell.stdin.on("error", gone);
  shell.stdout.on("data", (said: Buffer) => {
    for (const letter of said.toString("latin1").replaceAll("\n", "")) own.waiting.shift()?.(letter === "y");
    if (own.waiting.length > 0 || helper !== own) return;
    refer(shell, false);
    own.idle = setTimeout(() => {
      helper = null;
      shell.stdin.end();
    }, IDLE_MS);
    own.idle.unref();
  });
  return own;
}

/** A helper that nobody waits for keeps no process alive. */
function refer(shell: Shell, wanted: boolean): void {
  const parts = [shell, shell.stdin, shell.stdout] as unknown as { ref(): void; unref(): void }[];
  for (const part of parts) wanted ? part.ref() : part.unref();
}
