import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FILES, LIES, recorded } from "../pipelines/monitor/equivocation-lies.ts";
import { PYTHON } from "./judges.ts";

/** Recorded equivocations, proven by the script of docs/monitor.md, which has none of our code. */
const run = promisify(execFile);
const SCRIPT = join(import.meta.dirname, "../../docs/verify-an-equivocation.py");
let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "equivocation-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

async function verdictOf(value: unknown, ...keys: string[]): Promise<string> {
  const file = join(dir, "file.json");
  await writeFile(file, JSON.stringify(value));
  try {
    return (await run(PYTHON, [SCRIPT, file, ...keys])).stdout;
  } catch (error) {
    const { code, stderr } = error as { code: number; stderr: string };
    return `${code}: ${stderr}`;
  }
}

describe.each(FILES)("%s", (name) => {
  const file = recorded(name);
  const other = recorded(FILES.find((one) => one !== name)!);

  test("is proven, under its keys and under those given, and not under another log's", async () => {
    expect(await verdictOf(file)).toMatch(/^proven: touchstone\.test signed two histories: .*believing/);
    expect(await verdictOf(file, ...file.log_keys)).toMatch(/^proven: (?!.*believing)/);
    expect(await verdictOf(file, ...other.log_keys)).toMatch(/^1: NOT proven/);
  });

  const lies = LIES.filter(([, lie]) => JSON.stringify(lie(file)) !== JSON.stringify(file));
  test.each(lies)("%s: no proof", async (lie, change) => {
    // Two roots of one size contradict each other in either order.
    const stays = name === "equal-sizes" && lie === "the notes exchanged";
    expect(await verdictOf(change(file))).toMatch(stays ? /^proven/ : /^1: NOT proven/);
  });
});
