import { type ChildProcess, spawn } from "node:child_process";
import { resolve } from "node:path";
import { refuseUnnamedExit } from "./exit-codes.ts";
import { runs } from "./programs.ts";

const ROOT = resolve(import.meta.dirname, "../..");

export interface Running {
  child: ChildProcess;
  /** What it printed so far. */
  said: { out: string; err: string };
  /** Resolves when the text matches what was printed on stdout. @throws when the process ends or takes too long */
  says(pattern: RegExp): Promise<RegExpMatchArray>;
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  /** SIGKILL of its whole group, if anything of it is left. */
  end(): Promise<void>;
}

/** `touchstone ARGS` as a process group of its own, with these settings and none of this machine's. */
export function touchstone(args: readonly string[], settings: Record<string, string>): Running {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOUCHSTONE_")));
  const child = spawn(process.execPath, [...runs("touchstone.ts"), ...args], {
    cwd: ROOT,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...env, ...settings },
  });
  const said = { out: "", err: "" };
  child.stdout!.on("data", (chunk: Buffer) => {
    said.out += chunk;
  });
  child.stderr!.on("data", (chunk: Buffer) => {
    said.err = (said.err + chunk).slice(-50_000);
  });
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((done) => {
    child.once("close", (code, signal) => done({ code, signal }));
  }).then((end) => {
    refuseUnnamedExit(args, end.code);
    return end;
  });
  // A test that waits for no end hears of a wrong one by its own checks.
  ended.catch(() => undefined);
  return {
    child,
    said,
    ended,
    async says(pattern) {
      for (let i = 0; i < 6_000; i++) {
        const match = said.out.match(pattern);
        if (match) return match;
        if (child.exitCode !== null) break;
        await new Promise((done) => setTimeout(done, 50));
      }
      throw new Error(`touchstone ${args.join(" ")} did not say ${pattern}:\n${said.out}\n${said.err}`);
    },
    async end() {
      try {
        process.kill(-child.pid!, "SIGKILL");
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
      }
      await ended;
    },
  };
}
