import { type ChildProcess, spawn } from "node:child_process";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { refuseUnnamedExit } from "./exit-codes.ts";
import { runs } from "./programs.ts";

const ROOT = resolve(import.meta.dirname, "../..");

export interface StartRun {
  child: ChildProcess;
  /** Event ids whose append was acknowledged, as this parent heard them: the oracle of the kill tests. */
  acked: string[];
  /** Resolves when the process is gone and its pipes are read to the end. */
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null; stdout: string; stderr: string }>;
  /** Where it listens, as it prints it. @throws when it ends before that */
  serving(): Promise<string>;
  /** SIGKILL of the whole process group, from outside. */
  kill(): void;
}

/** `touchstone start ...` as a process group of its own, its acknowledgements on file descriptor 3. */
export function runStart(args: string[], env: Record<string, string> = {}): StartRun {
  const child = spawn(process.execPath, [...runs("touchstone.ts"), "start", ...args, "--acks", "3"], {
    cwd: ROOT,
    detached: true,
    stdio: ["ignore", "pipe", "pipe", "pipe"],
    // Demos of several tests run at once.
    env: { ...process.env, TOUCHSTONE_MARKET_WITNESS_PORTS: "[0,0]", ...env },
  });
  const acked: string[] = [];
  createInterface({ input: child.stdio[3] as NodeJS.ReadableStream }).on("line", (line) => acked.push(line));
  let stdout = "";
  let stderr = "";
  const listens = /^Serving at (http:\S+) /m;
  child.stdout!.on("data", (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr!.on("data", (chunk: Buffer) => {
    stderr = (stderr + chunk.toString()).slice(-100_000);
  });
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null; stdout: string; stderr: string }>(
    (done) => {
      child.once("close", (code, signal) => done({ code, signal, stdout, stderr }));
    },
  ).then((end) => {
    refuseUnnamedExit(["start"], end.code);
    return end;
  });
  // A test that waits for no end hears of a wrong one by its own checks.
  ended.catch(() => undefined);
  return {
    child,
    acked,
    ended,
    serving: () =>
      new Promise((found, failed) => {
        const look = () => {
          const at = listens.exec(stdout)?.[1];
          if (at) found(at);
        };
        child.stdout!.on("data", look);
        look();
        void ended.then(({ stderr }) => failed(new Error(`ended before it served: ${stderr}`)));
      }),
    kill: () => {
      if (child.pid !== undefined && child.exitCode === null && child.signalCode === null)
        process.kill(-child.pid, "SIGKILL");
    },
  };
}
