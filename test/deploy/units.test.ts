import { execFile, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, expect, test } from "vitest";
import { exitsOf, ROWS } from "../../commands/program.ts";
import { loadConfig } from "../../infra/config.ts";
import { EXIT } from "../../infra/errors.ts";
import { runs } from "../helpers/programs.ts";

/**
 * The service units of infra/deploy/systemd (touchstone.service, touchstone-observe@.service, touchstone-own@.service,
 * touchstone-publish@.service, touchstone-serve.service, touchstone-witness.service, touchstone-monitor.service) with their env files (common.env,
 * pipeline.env, observe.env, own.env, publish.env, serve.env, witness.env, monitor.env): systemd takes them, and the commands that they start, with the environment that they
 * give, say what an operator has left to do. `touchstone start` with settings that
 * hold is run by test/flow/operate-page.test.ts, as a process and not under systemd.
 */
const FOLDER = resolve(import.meta.dirname, "../../infra/deploy/systemd");
const UNITS = readdirSync(FOLDER).filter((name) => name.endsWith(".service"));
const dir = mkdtempSync(join(tmpdir(), "units-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const envOf = (file: string): Record<string, string> =>
  Object.fromEntries(
    readFileSync(join(FOLDER, file), "utf8")
      .split("\n")
      .filter((line) => line && !line.startsWith("#"))
      .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]),
  );
const linesOf = (unit: string, name: string): string[] =>
  readFileSync(join(FOLDER, unit), "utf8")
    .split("\n")
    .flatMap((line) => (line.startsWith(`${name}=`) ? [line.slice(name.length + 1)] : []));

/** The environment of a unit's first instance: its env files, then its own lines. */
function environmentOf(unit: string): Record<string, string> {
  const files = linesOf(unit, "EnvironmentFile").map((path) => path.replace("/etc/touchstone/", ""));
  const own = linesOf(unit, "Environment").map((line) => [
    line.slice(0, line.indexOf("=")),
    line.slice(line.indexOf("=") + 1).replaceAll("%i", "1"),
  ]);
  return { ...Object.assign({}, ...files.map(envOf)), ...Object.fromEntries(own) };
}

/** Words after the installed command, with the variables of the unit put in as systemd does. */
function wordsOf(unit: string): string[] {
  const [exec] = linesOf(unit, "ExecStart") as [string];
  const [command, ...words] = exec.split(" ");
  expect(command).toBe("touchstone");
  const env = environmentOf(unit);
  return words.map((word) => word.replace(/^\$\{(\w+)\}$/, (_, name: string) => env[name]!));
}

test("there is one for a machine alone, one for each role of a cluster, one for a witness and one for a monitor", () => {
  const roles = UNITS.map((unit) => wordsOf(unit)[0]);
  expect(roles.sort()).toEqual(["monitor", "observe", "own", "publish", "serve", "start", "witness"]);
});

test.each(UNITS)("%s: settings that hold, and variables that are set", (unit) => {
  const env = environmentOf(unit);
  expect(() => loadConfig(undefined, env)).not.toThrow();
  const used = [...linesOf(unit, "ExecStart")[0]!.matchAll(/\$\{(\w+)\}/g)].map(([, name]) => name!);
  for (const name of used) expect(env[name], name).toBeDefined();
  const others = Object.keys(env).filter((name) => !name.startsWith("TOUCHSTONE_") && !used.includes(name));
  expect(others).toEqual(["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_"]);
  const hasPrivate = Object.keys(env).some((name) => name.startsWith("TOUCHSTONE_STORES_PRIVATE"));
  expect(hasPrivate).toBe(/-(?:observe|own|publish)@/.test(unit));
});

test("every env file is one that a unit reads", () => {
  const read = UNITS.flatMap((unit) => linesOf(unit, "EnvironmentFile")).map((path) => path.split("/").at(-1));
  expect([...new Set(read)].sort()).toEqual(readdirSync(FOLDER).filter((name) => name.endsWith(".env")));
});

test("a replica believes the proxy of its own machine and no network", () => {
  expect(JSON.parse(envOf("serve.env").TOUCHSTONE_LIMITS_TRUSTED_PROXIES!)).toEqual(["127.0.0.1"]);
});

/** Failures that a new start does not mend: systemd leaves a role that ends with one of them as it is. */
const FOR_AN_OPERATOR = ["usage", "keys", "record", "fork", "network"] as const;

test.each(UNITS.filter((unit) => !/monitor|witness/.test(unit)))(
  "%s: every failure that an operator has to mend ends it, and no other one",
  (unit) => {
    const row = ROWS.find(([words]) => words === wordsOf(unit)[0])![1];
    const listed = linesOf(unit, "RestartPreventExitStatus")[0]!.split(" ").map(Number);
    const needed = FOR_AN_OPERATOR.filter((name) => exitsOf(row).includes(name)).map((name) => EXIT[name]);
    expect(listed).toEqual(expect.arrayContaining(needed));
    expect(FOR_AN_OPERATOR.map((name) => EXIT[name])).toEqual(expect.arrayContaining(listed));
  },
);

test("systemd takes them", () => {
  // It finds the command where a package is installed for everybody, which a test leaves alone.
  const command = join(dir, "touchstone");
  writeFileSync(command, "#!/bin/sh\n");
  chmodSync(command, 0o755);
  const copies = UNITS.map((unit) => {
    const text = readFileSync(join(FOLDER, unit), "utf8").replace("ExecStart=touchstone ", `ExecStart=${command} `);
    writeFileSync(join(dir, unit), text);
    return join(dir, unit);
  });
  const verify = spawnSync("systemd-analyze", ["verify", "--man=no", ...copies], { encoding: "utf8" });
  expect(verify.error, "systemd-analyze is missing: apt-get install systemd").toBeUndefined();
  const said = `${verify.stdout}${verify.stderr}`
    .split("\n")
    .filter((line) => /touchstone[-.@\w]*\.service/.test(line));
  expect(said).toEqual([]);
});

test("and would not take a word that it does not know", () => {
  const path = join(dir, "touchstone-wrong.service");
  writeFileSync(path, "[Service]\nExecStart=/bin/true\nRestartSometimes=yes\n");
  const verify = spawnSync("systemd-analyze", ["verify", "--man=no", path], { encoding: "utf8" });
  expect(`${verify.stdout}${verify.stderr}`).toContain("RestartSometimes");
});

/** What each command says with the env files as they are, the secrets left out: it ends for good, and names what lacks. */
test.each([
  ["touchstone-observe@.service", /keys|TOUCHSTONE_KAFKA_PASSWORD|kafka\.password/i],
  ["touchstone-own@.service", /keys|TOUCHSTONE_KAFKA_PASSWORD|kafka\.password/i],
  ["touchstone-publish@.service", /keys|TOUCHSTONE_KAFKA_PASSWORD|kafka\.password/i],
  ["touchstone-serve.service", /keys/i],
  ["touchstone.service", /control_urls/],
  ["touchstone-monitor.service", /not a verifier key/],
  ["touchstone-witness.service", /no such file|ENOENT|there is no file/i],
] as const)("%s: its command without secrets ends with a code that systemd does not restart", async (unit, says) => {
  const state = join(dir, `state-of-${unit}`);
  mkdirSync(state, { mode: 0o700 });
  const { PATH } = process.env;
  const env = { PATH, ...environmentOf(unit), TOUCHSTONE_DATA_DIR: state, TOUCHSTONE_STATUS_PORT: "0" };
  const words = [...runs("touchstone.ts"), ...wordsOf(unit)];
  const { code, err } = await new Promise<{ code: number; err: string }>((done) =>
    execFile(process.execPath, words, { cwd: state, env, timeout: 500_000 }, (error, _, stderr) =>
      done({ code: typeof error?.code === "number" ? error.code : -1, err: stderr }),
    ),
  );
  expect(err).toMatch(says);
  expect(linesOf(unit, "RestartPreventExitStatus")[0]!.split(" ")).toContain(String(code));
});
