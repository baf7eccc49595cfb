import { execFile } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { EXIT } from "../../commands/exit.ts";
import { type ActionRun, commandsIn, runAction } from "../helpers/composite-action.ts";
import { type RealSeller, realSeller } from "../pipelines/1-observe/real-seller.ts";
import { answer, entry, type Handler, terms402 } from "../pipelines/1-observe/world.ts";

/**
 * The steps of infra/action/action.yml, run by bash with the files and variables of GitHub's runner: with the command that
 * `npm pack` packs, installed by npm, and with the action's own revision.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const ACTION = join(ROOT, "infra/action/action.yml");
const run = promisify(execFile);
let dir: string;
let tarball: string;

/** The command as npm installed it once: the first run of the action does that, and keeps its folder for the others. */
let installed: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "action-"));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", dir], { cwd: ROOT });
  tarball = join(dir, stdout.trim().split("\n").at(-1)!);
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const sellers: RealSeller[] = [];
afterEach(async () => {
  for (const seller of sellers.splice(0)) await seller.close();
});
async function selling(...entries: Record<string, unknown>[]): Promise<string> {
  const handler: Handler = (asked) =>
    /\.json$|x402$/.test(asked.url) ? answer(404, {}) : terms402(entries, { resource: { url: asked.url } });
  const seller = await realSeller(handler);
  sellers.push(seller);
  return `http://127.0.0.1:${seller.port}/sum`;
}

/** An `npm` that does what these lines say, before the true one on the path. */
async function shim(lines: string[]): Promise<NodeJS.ProcessEnv> {
  const bin = await mkdtemp(join(dir, "bin-"));
  await writeFile(join(bin, "npm"), ["#!/usr/bin/env bash", "set -e", ...lines].join("\n"));
  await chmod(join(bin, "npm"), 0o755);
  return { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` };
}

const titles = ({ commands }: ActionRun, level: string): (string | undefined)[] =>
  commands.filter(({ command }) => command === level).map(({ properties }) => properties.title?.split(" ")[0]);

test("npm installs what is packed, without a script of any package, and the command looks", async () => {
  installed = join(dir, "installed");
  const npm = (await run("bash", ["-c", "command -v npm"])).stdout.trim();
  const keeping = await shim([`"${npm}" "$@"`, `cp -r "$7" "${installed}"`]);
  const url = await selling(entry());
  const done = await runAction(ACTION, { url, package: tarball }, keeping);
  expect(done.log).toContain("nothing is wrong with it");
  expect(done).toMatchObject({ ok: true, outputs: { severity: "none", "exit-code": "0" }, commands: [] });
  expect(done.summary).toContain("Nothing is wrong with it.");
});

describe("by the severity of what is wrong", () => {
  /** The installed folder once more, in the time of a copy. */
  const again = () => shim([`mkdir -p "$7"`, `ln -s "${installed}/node_modules" "$7/node_modules"`]);
  const MILD = [entry({ amount: "900000000" })];
  const GRAVE = [entry({ amount: "0.01", maxTimeoutSeconds: 100_000 })];

  test.each<[string, Record<string, unknown>[], string, boolean, string, string]>([
    ["a right one", [entry()], "mild", true, "none", "0"],
    ["a mild one", MILD, "grave", true, "mild", String(EXIT.flawed)],
    ["a mild one, where that fails", MILD, "mild", false, "mild", String(EXIT.flawed)],
    ["a grave one", GRAVE, "grave", false, "grave", String(EXIT.unpayable)],
    ["a grave one, where nothing fails", GRAVE, "never", true, "grave", String(EXIT.unpayable)],
  ])("%s", async (_, entries, failOn, ok, severity, code) => {
    const inputs = { url: await selling(...entries), package: tarball, "fail-on": failOn, file: "public/x402" };
    const done = await runAction(ACTION, inputs, await again());
    expect([done.ok, done.outputs, done.log]).toEqual([ok, { severity, "exit-code": code }, expect.any(String)]);
    const [errors, warnings] = [titles(done, "error"), titles(done, "warning")];
    expect(errors.includes("bad_amount")).toBe(severity === "grave");
    expect(warnings.includes("stock_client")).toBe(severity === "mild");
    expect(done.commands.every(({ properties }) => properties.file === "public/x402")).toBe(true);
    expect(done.summary.includes("bad\\_timeout")).toBe(severity === "grave");
  });

  test("nobody there", async () => {
    const done = await runAction(ACTION, { url: "http://127.0.0.1:9/x", package: tarball }, await again());
    expect(done).toMatchObject({ ok: false, outputs: { severity: "unreachable", "exit-code": "17" } });
  });

  test.each([
    ["a word that is none for fail-on", { "fail-on": "always" }, "fail-on"],
    ["a method that is none", { method: "TRACE" }, "touchstone"],
    ["an option in the place of the url", { url: "--help" }, "touchstone"],
    ["a url that the shell would run", { url: "$(touch pwned); `touch pwned`" }, "touchstone"],
  ])("%s is an error of its own", async (_, inputs, title) => {
    const url = await selling(entry());
    const done = await runAction(ACTION, { url, package: tarball, ...inputs }, await again());
    expect([done.ok, titles(done, "error")]).toEqual([false, [title]]);
    expect(done.outputs.severity).toBe("");
    expect(sellers[0]!.legs).toEqual([]);
  });
});

test("without a package it is built from the action's own revision", async () => {
  // As the runner lays it down: the repository at that revision. Of npm's work only the folder is taken over.
  const revision = join(dir, "revision");
  await mkdir(revision);
  const { stdout } = await run("git", ["ls-files", "-z"], { cwd: ROOT, maxBuffer: 1 << 24 });
  const built = /^(?:touchstone\.ts|package\.json|commands|infra|pipelines|serving|sql|docs)(?:$|\/)/;
  for (const name of stdout.split("\0").filter((one) => built.test(one)))
    await cp(join(ROOT, name), join(revision, name), { recursive: true });
  const asked = join(dir, "asked");
  const linking = await shim([`echo "$@" > "${asked}"`, `ln -s "${ROOT}/node_modules" node_modules`]);
  const url = await selling(entry({ amount: "0.01" }));
  const done = await runAction(join(revision, "infra/action/action.yml"), { url }, linking);
  expect([await readFile(asked, "utf8"), done.outputs.severity]).toEqual([
    expect.stringMatching(/^ci --ignore-scripts /),
    "grave",
  ]);
});

test("no input is put into a script: each comes as a variable", async () => {
  const { runs } = parse(await readFile(ACTION, "utf8")) as { runs: { steps: { run: string }[] } };
  expect(runs.steps.map(({ run: script }) => script.includes("${{"))).toEqual(runs.steps.map(() => false));
});

test("the reader of commands finds them where the runner does", () => {
  const text =
    "::error file=a%2Cb,title=t::m%0An\n  ::warning::w\nx ::error::no\nx ##[error]old\n::stop-commands::t\n::error::z\n::t::";
  expect(commandsIn(text)).toEqual([
    { command: "error", properties: { file: "a,b", title: "t" }, message: "m\nn" },
    { command: "warning", properties: {}, message: "w" },
    { command: "error", properties: {}, message: "old" },
  ]);
});

test("the example of the page names inputs that there are", async () => {
  const page = await readFile(join(ROOT, "docs/listings.md"), "utf8");
  const [, workflow] = /```yaml\n(.*?)```/s.exec(page)!;
  const { jobs } = parse(workflow!) as { jobs: { listing: { steps: { uses: string; with?: object }[] } } };
  const step = jobs.listing.steps.find(({ uses }) => uses.includes("/infra/action@"))!;
  const { inputs } = parse(await readFile(ACTION, "utf8")) as { inputs: object };
  expect(Object.keys(inputs)).toEqual(expect.arrayContaining(Object.keys(step.with!)));
  for (const name of Object.keys(inputs)) expect(page).toContain(`| \`${name}\` |`);
});
