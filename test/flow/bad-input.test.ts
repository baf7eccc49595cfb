import { spawn } from "node:child_process";
import { chmodSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import Database from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { EXIT } from "../../commands/exit.ts";
import type { MarketLetters } from "../../commands/letters.ts";
import { isAlive } from "../../commands/world.ts";
import { readDemo } from "../helpers/demo-record.ts";
import { refuseUnnamedExit } from "../helpers/exit-codes.ts";
import { runs } from "../helpers/programs.ts";
import { runStart } from "../helpers/run-start.ts";

/** The command's answers to what people and machines get wrong: a message that names it, an exit code of its own. */
const ROOT = resolve(import.meta.dirname, "../..");
let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "bad-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

async function touchstone(args: string[], env: Record<string, string> = {}): Promise<Ended> {
  const ended = await new Promise<Ended>((done) => {
    const child = spawn(process.execPath, [...runs("touchstone.ts"), ...args], {
      cwd: ROOT,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_PORT: "0", ...env },
    });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (chunk: Buffer) => {
      stdout += chunk.toString();
    });
    child.stderr.on("data", (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    child.once("close", (code) => done({ code, stdout, stderr }));
  });
  refuseUnnamedExit(args, ended.code);
  return ended;
}

/** No process of the world that this folder began may be left. */
function worldOf(): number | null {
  try {
    return (JSON.parse(readFileSync(join(dir, "market", "world.json"), "utf8")) as { pid: number }).pid;
  } catch {
    return null;
  }
}

describe("settings and words", () => {
  test("a wrong value is named, with where it came from", async () => {
    const ended = await touchstone(["keygen"], { TOUCHSTONE_LOG_PARTITIONS: "3" });
    expect(ended.code).toBe(EXIT.usage);
    expect(ended.stderr).toContain("TOUCHSTONE_LOG_PARTITIONS (environment): expected 1, 2, 4, 8, 16, 32 or 64");
  });

  test("an unknown command and a wrong number are refused", async () => {
    expect((await touchstone(["fly"])).code).toBe(EXIT.usage);
    const ended = await touchstone(["start", "--days", "soon"]);
    expect(ended.code).toBe(EXIT.usage);
    expect(ended.stderr).toContain("expected a whole number");
  });

  test.each(["start", "keygen", "observe", "ingest", "grade", "own", "publish", "serve", "redrive", "rebuild", "gap"])(
    "%s has its help",
    async (role) => {
      const ended = await touchstone([role, "--help"]);
      expect(ended.code).toBe(EXIT.ok);
      expect(ended.stdout).toContain(`touchstone ${role}`);
    },
  );

  test.each(["grade", "start"])("%s pays, so it needs a chain, and says which setting names it", async (role) => {
    const ended = await touchstone([role, "--once"]);
    expect(ended.code).toBe(EXIT.usage);
    expect(ended.stderr).toContain("TOUCHSTONE_CHAIN_RPC_URL");
  });

  test("grade is not for a cluster's log, and says what is", async () => {
    const ended = await touchstone(["grade", "--once"], { TOUCHSTONE_LOG: "kafka://127.0.0.1:9/touchstone" });
    expect(ended.code).toBe(EXIT.usage);
    expect(ended.stderr).toContain("touchstone own");
  });
});

describe("keys", () => {
  test("are made once, readable by us alone, and never made over", async () => {
    const first = JSON.parse((await touchstone(["keygen", "--json"])).stdout) as { made: boolean; kids: object };
    const again = JSON.parse((await touchstone(["keygen", "--json"])).stdout) as { made: boolean; kids: object };
    expect([first.made, again.made]).toEqual([true, false]);
    expect(again.kids).toEqual(first.kids);
  });

  test("a key that others can read is refused, with the command that mends it", async () => {
    await touchstone(["keygen"]);
    const file = join(dir, "keys", readdirSync(join(dir, "keys")).find((name) => name.startsWith("cards-"))!);
    chmodSync(file, 0o644);
    const ended = await touchstone(["ingest", "--once"]);
    expect(ended.code).toBe(EXIT.keys);
    expect(ended.stderr).toContain(file);
    expect(ended.stderr).toMatch(/chmod/);
  });
});

describe("the record", () => {
  test("an empty log is no error, and the pass says so", async () => {
    const ended = await touchstone(["ingest", "--once", "--json"]);
    expect(ended).toMatchObject({ code: EXIT.ok });
    expect(JSON.parse(ended.stdout)).toMatchObject({ rows: 0 });
  });

  test("a log keeps its number of partitions when the setting names another one", async () => {
    await touchstone(["ingest", "--once"]);
    const ended = await touchstone(["ingest", "--once"], { TOUCHSTONE_LOG_PARTITIONS: "8" });
    expect(ended).toMatchObject({ code: EXIT.ok });
    const file = new Database(join(dir, "log", "log.sqlite"), { readonly: true });
    try {
      expect(file.prepare("SELECT value FROM meta WHERE name = 'partitions'").pluck().get()).toBe("2");
      expect(file.prepare("SELECT max(partition) FROM topic_partition").pluck().get()).toBe(1);
    } finally {
      file.close();
    }
  });

  test("a lake that is no database is set aside and made again", async () => {
    await touchstone(["ingest", "--once"]);
    writeFileSync(join(dir, "lake", "lake.duckdb"), "this is no database");
    const ended = await touchstone(["ingest", "--once", "--json"]);
    expect(ended).toMatchObject({ code: EXIT.ok });
    expect(readdirSync(join(dir, "lake")).length).toBeGreaterThan(1);
  });
});

describe("start", () => {
  test("a port in use ends it with a message that names the port, and leaves no process behind", async () => {
    const server = createServer();
    await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
    const { port } = server.address() as { port: number };
    try {
      for (const env of [
        { TOUCHSTONE_PORT: String(port), TOUCHSTONE_MARKET_WITNESS_PORTS: "[0,0]" },
        { TOUCHSTONE_PORT: "0", TOUCHSTONE_MARKET_WITNESS_PORTS: `[0,${port}]` },
      ]) {
        const ended = await touchstone(["start", "--market", "--once"], env);
        expect(ended.code).toBe(EXIT.port);
        expect(ended.stderr).toContain(`port ${port}`);
        expect(ended.stderr.includes("TOUCHSTONE_MARKET_WITNESS_PORTS")).toBe(env.TOUCHSTONE_PORT === "0");
        const pid = worldOf();
        expect(pid !== null && isAlive(pid)).toBe(false);
      }
    } finally {
      server.close();
    }
  });

  test("a market that dies ends it with a message; the next start goes on, and no honest seller is accused", async () => {
    const args = ["--market", "--once", "--json", "--days", "5"];
    const env = { TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_PORT: "0", TOUCHSTONE_BASE_URL: "http://dies.test" };
    const first = runStart(args, env);
    while (first.acked.length < 40 && first.child.exitCode === null) await new Promise((done) => setTimeout(done, 50));
    process.kill(worldOf()!, "SIGKILL");
    const ended = await first.ended;
    expect(ended.code, ended.stderr).toBe(EXIT.chain);
    expect(ended.stderr).toContain("the market died");
    const second = await runStart(args, env).ended;
    expect(second, second.stderr).toMatchObject({ code: EXIT.ok });
    const { market } = JSON.parse(second.stdout) as MarketLetters;
    expect(market.filter((one) => one.flags.includes("took_the_money")).map((one) => one.seller)).toEqual(["thief"]);
    const record = await readDemo(dir, "http://dies.test");
    const lost = first.acked.filter((id) => record.lakeEvents.get(id) !== 1);
    expect(lost).toEqual([]);
  });
});
