import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../fixtures/ports.ts";

/** `npm run cluster` as a user runs it: until a seller of the market is answered for, and then Ctrl-C. */
const ROOT = new URL("../..", import.meta.url).pathname;
let child: ChildProcess;
let port: number;
let said = "";

beforeAll(async () => {
  port = await freePort();
  // A group of its own, as the foreground of a terminal is.
  child = spawn("npm", ["run", "cluster", "--", "--port", String(port)], { cwd: ROOT, detached: true });
  for (const stream of [child.stdout!, child.stderr!])
    stream.on("data", (bytes: Buffer) => {
      said += bytes.toString();
    });
});
afterAll(async () => {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  process.kill(-child.pid!, "SIGINT");
  await ended;
});

/** Waits, with a bound that only a hang reaches. */
async function until<T>(what: string, look: () => Promise<T | null | undefined> | T | null | undefined): Promise<T> {
  for (let n = 0; n < 6_000; n++) {
    const found = await look();
    if (found) return found;
    if (child.exitCode !== null) break;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`never: ${what}\n${said}`);
}

const shown = (name: string): string | undefined => new RegExp(`^${name}: +(\\S+)`, "m").exec(said)?.[1];

/** Command lines of all processes that name this text. */
const processesOf = (text: string): string[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return [readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")];
      } catch {
        return [];
      }
    })
    .filter((line) => line.includes(text));

test("a seller is observed, graded and answered for, and Ctrl-C leaves nothing", async () => {
  const logs = await until("its addresses", () => shown("Logs"));
  const dir = dirname(logs);
  expect(shown("Service")).toBe(`http://localhost:${port}`);
  const listed = (await (await fetch(shown("Catalogue")!)).json()) as { items: { resource: string }[] };
  // Broker, store, market with its chain, and the four roles.
  expect(processesOf(dir).length).toBeGreaterThanOrEqual(7);
  const health = [...said.matchAll(/(http:\S+\/health)/g)].map(([, url]) => url!);
  expect(health).toHaveLength(4);

  // Nothing is on record of it: the replica puts it in line, and an observer, the owner and the publisher do their part.
  const check = `http://localhost:${port}/v1/check?url=${encodeURIComponent(listed.items[0]!.resource)}`;
  const answer = await until("an answer from the record", async () => {
    const response = await fetch(check).catch(() => null);
    const body = (response?.ok ? await response.json() : null) as { matched: string } | null;
    return body && body.matched !== "none" ? body : null;
  });
  process.stdout.write(`${JSON.stringify(answer).slice(0, 500)}\n`);

  process.kill(-child.pid!, "SIGINT");
  const [code] = (await once(child, "exit")) as [number | null];
  expect(code, said).toBe(0);
  expect(existsSync(dir)).toBe(false);
  expect(processesOf(dir)).toEqual([]);
});

test("what is missing on the machine is named, with how to get it", async () => {
  const main = join(ROOT, "fixtures/cluster/main.ts");
  const run = spawn(process.execPath, ["--import", "tsx", main], { cwd: ROOT, env: { PATH: "/nowhere" } });
  let words = "";
  run.stderr.on("data", (bytes: Buffer) => {
    words += bytes.toString();
  });
  const [code] = (await once(run, "close")) as [number | null];
  expect(code).toBe(2);
  for (const line of ["missing: go (Go 1.26", "missing: java (Java 17", "missing: maven (apt-get install maven)"])
    expect(words).toContain(line);
});
