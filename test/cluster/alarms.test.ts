import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { METRICS } from "../../infra/metrics.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../infra/tree/note.ts";
import { runs } from "../helpers/programs.ts";
import { promtool } from "./promtool.ts";

/**
 * The alarms and the board as an operator loads them, judged by Prometheus' own tool: the rules, and what each role of one
 * machine really serves at /metrics. The roles over a cluster's log are asked in roles.test.ts.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const deployed = (name: string): string => readFileSync(join(ROOT, "infra/deploy", name), "utf8");

test("the rules load, each alarm rings where it should and nowhere else", () => {
  expect(promtool(["check", "rules", "alerts.yaml"])).toMatch(/SUCCESS: \d+ rules found/);
  expect(promtool(["test", "rules", "alerts.test.yaml"])).toContain("SUCCESS");
});

interface Role {
  words: readonly string[];
  said: string;
  url: string;
  stop(): Promise<number | null>;
}

/** A disk of its own for the data folder, so that it can be full. */
const disk = mkdtempSync(join(tmpdir(), "alarms-"));
const size = (text: string, ...more: string[]): void => {
  const args = ["-t", "tmpfs", "-o", [...more, `size=${text}`].join(), "tmpfs", disk];
  const { status, stderr } = spawnSync("mount", args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`this test mounts a disk, which needs root: ${stderr}`);
};
beforeAll(() => size("4g"));
/** What a test that failed left running. */
const children: ChildProcess[] = [];
afterAll(() => {
  for (const child of children) child.kill("SIGKILL");
  spawnSync("umount", ["--lazy", disk]);
  rmSync(disk, { recursive: true, force: true });
});

const ENV = {
  ...process.env,
  TOUCHSTONE_DATA_DIR: join(disk, "data"),
  TOUCHSTONE_BASE_URL: "http://touchstone.test",
  TOUCHSTONE_PORT: "0",
  TOUCHSTONE_STATUS_PORT: "0",
  TOUCHSTONE_LOG_LEVEL: "info",
  TOUCHSTONE_REVISION: "0123abc",
  // A chain that nobody is at: nothing is paid here.
  TOUCHSTONE_CHAIN_RPC_URL: "http://127.0.0.1:1",
  TOUCHSTONE_CONTROL_URLS: '["https://control.example/"]',
  // A witness that nobody is at: it cosigns nothing, and its metrics are there.
  TOUCHSTONE_WITNESSES: JSON.stringify([
    {
      name: "down",
      key: formatVkey({ name: "witness.example/down", publicKey: Buffer.alloc(32, 7) }, COSIGNATURE),
      url: "http://127.0.0.1:1",
    },
  ]),
};

/** Key of a log that submits nothing to the witness. */
const LOG_KEY = formatVkey({ name: "log.example", publicKey: Buffer.alloc(32, 7) }, ED25519);

/** Starts a role; what it writes is kept, and its status listener is there when this resolves. */
async function begin(...words: string[]): Promise<Role> {
  const child = spawn(process.execPath, [...runs("touchstone.ts"), ...words], { cwd: ROOT, env: ENV });
  children.push(child);
  const role: Role = {
    ...{ words, said: "", url: "" },
    stop: () =>
      new Promise((done) => {
        if (child.exitCode !== null) return done(child.exitCode);
        child.once("exit", done);
        child.kill("SIGTERM");
      }),
  };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (role.said += bytes));
  for (let n = 0; n < 4_500 && role.url === ""; n++) {
    if (child.exitCode !== null) throw new Error(`${words.join(" ")} ended with ${child.exitCode}: ${role.said}`);
    role.url = /"status":"(http[^"]+)"/.exec(role.said)?.[1] ?? "";
    await new Promise((done) => setTimeout(done, 200));
  }
  if (role.url === "") throw new Error(`${words.join(" ")} never said where its status is: ${role.said}`);
  return role;
}

const textAt = async (role: Role, path: string): Promise<string> => (await fetch(role.url + path)).text();

interface Health {
  role: string;
  ok: boolean;
  problems: string[];
  works: Record<string, { last_done: string | null }>;
}
async function untilHealth(role: Role, holds: (health: Health) => boolean): Promise<Health> {
  let last = "";
  for (let n = 0; n < 4_500; n++) {
    last = await textAt(role, "/health");
    const health = JSON.parse(last) as Health;
    if (holds(health)) return health;
    await new Promise((done) => setTimeout(done, 200));
  }
  throw new Error(`${role.words.join(" ")}: ${last}\n${role.said}`);
}

/** Names that a text in Prometheus' form has values of: those of a histogram without its endings. */
const namesIn = (text: string): Set<string> => new Set([...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name!));

describe("one machine", () => {
  const served = new Map<string, string>();

  test("start tells what it does, is not ok while its disk is full, and ok after", async () => {
    const role = await begin("start", "--json");
    const well = await untilHealth(role, ({ ok, works }) => ok && works.publish?.last_done !== null);
    expect(well.role).toBe("start");
    expect(Object.keys(well.works).sort()).toEqual(["follow", "grade", "ingest", "notify", "observe", "publish"]);
    const text = await textAt(role, "/metrics");
    served.set("start", text);
    expect(text).toContain('touchstone_role_ok{role="start"} 1');
    for (const work of Object.keys(well.works))
      expect(text).toContain(`touchstone_role_ok{role="start",work="${work}"} 1`);
    expect(text).toMatch(/touchstone_build_info\{version="[^"]+",revision="0123abc",node="v\d+\.[^"]+"\} 1/);
    expect(text).toContain('touchstone_observe_paid_total{fault="ours"} 0');
    expect(text).toContain("touchstone_publisher_active 1");
    expect(text).toMatch(/touchstone_ingest_lag_records\{topic="asks",partition="1"\} 0/);
    size("48m", "remount");
    const full = await untilHealth(role, ({ ok }) => !ok);
    expect(full.problems.join()).toMatch(/disk of the data folder is full/);
    expect(await textAt(role, "/metrics")).toContain('touchstone_role_ok{role="start"} 0');
    size("4g", "remount");
    await untilHealth(role, ({ ok }) => ok);
    expect(await role.stop(), role.said).toBe(0);
    const lines = role.said
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { msg?: string; version?: string });
    expect(lines.filter(({ msg }) => msg === "the role starts")).toHaveLength(1);
  });

  test.each([
    ["own", ["own", "--json"], "own"],
    ["publish", ["publish", "--json"], "publish"],
    ["serve", ["serve", "--json"], "follow"],
    ["observe", ["observe", "--json"], "grade"],
    ["replica", ["serve", "--json", "--from", join(disk, "data/public")], "follow"],
    ["monitor", ["monitor", join(disk, "monitor"), join(disk, "data/public"), "--json", "--max-age", "0"], "round"],
    [
      "witness",
      ["witness", join(disk, "witness"), "--json", "--port", "0", "--name", "witness.example/w1", "--log", LOG_KEY],
      "state",
    ],
  ] as const)("%s over the same data folder", async (name, words, first) => {
    const role = await begin(...words);
    await untilHealth(role, ({ works }) => works[first]?.last_done !== null);
    served.set(name, await textAt(role, "/metrics"));
    expect(await role.stop(), role.said).toBe(0);
    // A monitor tells people on stderr which key it trusts from now on.
    const lines = role.said.split("\n").filter((line) => line && !line.startsWith("trust on first use"));
    for (const line of lines) expect(() => JSON.parse(line), line).not.toThrow();
  });

  test("what each of them serves is what Prometheus asks of metrics, with a help that says something", () => {
    expect(served.size).toBe(8);
    for (const [name, text] of served) {
      expect(promtool(["check", "metrics"], text), name).toBe("");
      for (const [, metric, help] of text.matchAll(/^# HELP (\S+) (.*)$/gm)) expect(help, metric).not.toBe(metric);
    }
  });

  test("each of them serves process, loop, garbage collection, build and disk", () => {
    const common = ["process_cpu_seconds_total", "process_resident_memory_bytes", "nodejs_eventloop_lag_seconds"];
    common.push(
      "nodejs_gc_duration_seconds",
      "touchstone_build_info",
      "touchstone_data_free_bytes",
      "touchstone_role_ok",
    );
    for (const [name, text] of served) for (const metric of common) expect(namesIn(text), name).toContain(metric);
  });

  test("whatever alarms and board ask for is served by one of them", () => {
    const all = new Set([...served.values()].flatMap((text) => [...namesIn(text)]));
    const asked = `${deployed("alerts.yaml")}${deployed("dashboard.json")}`
      .match(/\b(?:touchstone|process|nodejs)_[a-z0-9_]+/g)!
      .map((name) => name.replace(/_bucket$/, ""));
    const missing = new Set(asked.filter((name) => !all.has(name)));
    // What is there once money is: where something is sold, and where an operator's wallets are watched.
    const withMoney = [...missing].filter((name) => METRICS[name]?.of === "sell" || name === "touchstone_wallets_low");
    expect([...missing]).toEqual(withMoney);
    expect(missing.size).toBeLessThanOrEqual(3);
  });
});
