import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";

/** commands/early-stop.ts in a process that then loads for ever, as a role does whose log does not answer. */
const ROOT = resolve(import.meta.dirname, "../..");
const STARTING = `
  await import("./commands/early-stop.ts");
  setInterval(() => {}, 1_000);
  process.stdout.write("loading\\n");
`;
const LISTENS = `process.on("SIGTERM", () => setTimeout(() => process.exit(7), 50)); ${STARTING}`;

/** How the script ends when it is sent the signal. @param first it is the first process of a pid namespace, as in a container */
async function stopped(script: string, signal: NodeJS.Signals, first = false) {
  const node = [process.execPath, "--import", "tsx", "--input-type=module", "-e", script];
  const words = first ? ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", ...node] : node;
  const child = spawn(words[0]!, words.slice(1), { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((done) => child.once("exit", (code, by) => done(code ?? by)));
  await new Promise((done) => child.stdout.once("data", done));
  // Only the namespace's parent sees its pid: children of `unshare` are listed by the kernel.
  const pid = first ? Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8")) : child.pid!;
  process.kill(pid, signal);
  const end = await Promise.race([ended, sleep(150_000, "still there", { ref: false })]);
  child.kill("SIGKILL");
  return end;
}

test.each(["SIGTERM", "SIGINT"] as const)("%s while it starts ends it as if nothing had listened", async (signal) => {
  expect(await stopped(STARTING, signal)).toBe(signal);
});

test("a command that listens stops in its own way", async () => {
  expect(await stopped(LISTENS, "SIGTERM")).toBe(7);
});

test("the first process of a container ends, too, where the kernel spares it", async () => {
  if (process.getuid?.() !== 0) {
    process.stdout.write("not tried: a pid namespace of its own needs root\n");
    return;
  }
  expect(await stopped(STARTING, "SIGTERM", true)).toBe(143);
});

test("nothing is imported before it", () => {
  const [first] = /^import .*$/m.exec(readFileSync(join(ROOT, "touchstone.ts"), "utf8"))!;
  expect(first).toBe('import "./commands/early-stop.ts";');
});
