import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type FundedChain, fundedChain, sellerOn } from "../helpers/funded-chain.ts";

/**
 * docs/operate.md as a user follows it: the shell blocks of its first sections, in their order, in a folder that was empty,
 * until a paid observation is on record. The first paid calls are of the next block of six hours: the clocks of user, control
 * addresses and chain are put to its beginning. Placeholders are filled from one table, and what was typed and said is printed.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const SECTIONS = ["Install", "First start"];
const PAYEE = "0x00000000000000000000000000000000000000a1";
/** Atomic: a thousand endpoints fit into a day's caps. */
const PRICE = "1000";
/** So many that one of them soon has its minute; a host is listed with 200 at most. */
const HOSTS = 4;
const ENDPOINTS = HOSTS * 200;

let dir: string;
let chain: FundedChain;
/** How far the clocks are ahead of this machine's. */
let aheadMs: number;
let sellers: Awaited<ReturnType<typeof sellerOn>>[];
let outside: Server;
let started: ChildProcess | undefined;
const transcript: string[] = [];

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "operate-page-"));
  chain = await fundedChain(8453);
  aheadMs = await chain.toNextBlock();
  const { network, asset } = chain;
  const offer = { network, asset, amount: PRICE, payTo: PAYEE };
  const hosts = Array.from({ length: HOSTS }, (_, n) => ({ host: `127.0.0.${n + 2}`, port: 0 }));
  sellers = await Promise.all(hosts.map((at) => sellerOn(offer, chain, at)));
  const items = Array.from({ length: ENDPOINTS }, (_, n) => {
    const { origin, terms } = sellers[n % HOSTS]!;
    const resource = `${origin}/sum/${n}`;
    return { ...{ resource, type: "http", x402Version: 2, accepts: [terms] }, lastUpdated: 1_790_000_000 };
  });
  outside = createServer((_, response) => {
    response.setHeader("date", new Date(Date.now() + aheadMs).toUTCString());
    const pagination = { limit: 1_000, offset: 0, total: items.length };
    response.setHeader("content-type", "application/json").end(JSON.stringify({ items, pagination }));
  });
  await new Promise<void>((done) => outside.listen(0, "127.0.0.1", done));
  // A busy machine's service answers with 503 and Retry-After; curl then asks again, as often as this.
  writeFileSync(join(dir, ".curlrc"), "retry = 8\n");
});

afterAll(async () => {
  started?.kill("SIGKILL");
  for (const seller of sellers ?? []) await seller.close();
  outside?.closeAllConnections();
  outside?.close();
  await chain?.stop();
  rmSync(dir, { recursive: true, force: true });
});

/** Lines of the page's shell blocks below these headings, a block an entry. */
function blocksOf(page: string): string[] {
  const parts = page.split(/^## /m).filter((part) => SECTIONS.includes(part.slice(0, part.indexOf("\n"))));
  expect(parts).toHaveLength(SECTIONS.length);
  return parts.flatMap((part) => [...part.matchAll(/^```sh\n(.*?)\n```$/gms)].map(([, block]) => block!));
}

/**
 * What stands in for what the page names: the one table. Packages are those that are installed here, so that no registry
 * is asked; the tarball that is unpacked is the one that `npm pack` made. `PAGE_INSTALLS=1` has npm do both.
 */
function standIns(): [string, string][] {
  const at = `http://127.0.0.1:${(outside.address() as AddressInfo).port}`;
  const lib = "$PREFIX/lib/node_modules/touchstone";
  const installs: [string, string][] = process.env.PAGE_INSTALLS
    ? []
    : [
        ["npm ci", `ln -s ${ROOT}/node_modules node_modules`],
        [
          "npm install --global ./touchstone-0.1.0.tgz",
          `mkdir -p ${lib} $PREFIX/bin && tar -xzf touchstone-0.1.0.tgz -C ${lib} --strip-components=1 && ` +
            `ln -s ${ROOT}/node_modules ${lib}/node_modules && ln -s ${lib}/dist/touchstone.mjs $PREFIX/bin/touchstone && chmod +x ${lib}/dist/touchstone.mjs`,
        ],
      ];
  return [
    ...installs,
    ["REPOSITORY", ROOT],
    ["https://node-a.example/KEY", chain.rpcUrl],
    ["https://node-b.example/KEY", chain.rpcUrl.replace("127.0.0.1", "localhost")],
    ["https://one.example/", `${at}/one`],
    ["https://two.example/", `${at}/two`],
    ["cdp-bazaar", `${at}/catalogue`],
    ["https://seller.example/sum", paidFor() ?? "nothing was paid yet"],
    ["127.0.0.1:8402", `127.0.0.1:${PORT}`],
  ];
}
/** Below those that the system gives to others (from 32,768 on). */
const PORT = 20_000 + (process.pid % 12_000);

function environment(): NodeJS.ProcessEnv {
  const { BUILT_PROGRAMS: _, ...env } = process.env;
  const prefix = join(dir, "prefix");
  return {
    ...env,
    ...{ NODE_OPTIONS: `--import=${ROOT}/test/helpers/shifted-date.mjs`, SHIFTED_DATE_MS: String(aheadMs) },
    // npm's list of a hundred files is left out.
    npm_config_loglevel: "warn",
    ...{ PREFIX: prefix, npm_config_prefix: prefix, PATH: `${join(prefix, "bin")}:${env.PATH}`, HOME: dir },
    // Sellers and control addresses are on this machine, and another test may have the port.
    ...{ TOUCHSTONE_ALLOW_LOOPBACK: "true", TOUCHSTONE_PORT: String(PORT) },
  };
}

let cwd: string;
/** Run words of a shell; this process answers meanwhile, as seller and control address. */
async function shell(script: string): Promise<{ code: number; out: string }> {
  const child = spawn("bash", ["-c", `exec 2>&1; ${script}`], { cwd, env: environment(), timeout: 1_200_000 });
  let out = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    out += text;
  });
  const code = await new Promise<number>((done) => child.once("close", (status) => done(status ?? -1)));
  return { code, out };
}

/** Type one line; where it leads to is where the next one is typed. */
async function typed(line: string): Promise<void> {
  const { code, out } = await shell(`set -e; ${line}\npwd > "${dir}/cwd"`);
  transcript.push(`$ ${line}`, ...(out === "" ? [] : [out.trimEnd()]));
  expect(code, out).toBe(0);
  cwd = readFileSync(join(dir, "cwd"), "utf8").trim();
}

/** USDC from outside, as the page asks for it. */
async function fundAll(): Promise<void> {
  const listed = await shell("touchstone wallets list --json");
  const { wallets } = JSON.parse(listed.out) as { wallets: { role: string; address: string }[] };
  for (const { role, address } of wallets) {
    if (role === "known") await chain.fund(address, 5_000_000n);
    if (role === "blind") await chain.fund(address, 250_000n);
  }
  transcript.push(`(5 USDC arrive at the known wallet, 0.25 at each of ${wallets.length - 2} blind ones)`);
}

async function start(block: string): Promise<void> {
  const said: string[] = [];
  transcript.push(`$ ${block}`);
  started = spawn("bash", ["-c", `exec ${block}`], { cwd, env: environment(), stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [started.stdout!, started.stderr!])
    stream.on("data", (text: Buffer) => {
      said.push(String(text));
      transcript.push(String(text).trimEnd());
    });
  const ended = new Promise<void>((_, fail) => started!.once("exit", () => fail(new Error(said.join("")))));
  ended.catch(() => {});
  const serves = () => expect(said.join("")).toContain(`Serving at http://127.0.0.1:${PORT}`);
  await Promise.race([ended, vi.waitFor(serves, { timeout: 600_000 })]);
}

/** Url of the first call that a seller was paid for. */
const paidFor = (): string | undefined => sellers.flatMap(({ seen }) => seen.urls)[0];

/** Settlements that were not final yet are looked for once a minute. */
const FINAL_AFTER_MS = 100_000;

/** A call of the plan is paid for when its minute has come; its card stands on it, and its settlement is final soon. */
async function untilPaid(): Promise<void> {
  await vi.waitFor(() => expect(paidFor()).toBeDefined(), { timeout: 1_200_000, interval: 500 });
  const paidAt = performance.now();
  const card = async () => {
    const url = encodeURIComponent(paidFor()!);
    const answer = await fetch(`http://127.0.0.1:${PORT}/v1/check?url=${url}`);
    const { sampleCount = 0, tier } = (await answer.json()) as { sampleCount?: number; tier?: string };
    return { isSampled: sampleCount >= 2, tier };
  };
  // A settlement that was not seen at once is looked for once a minute, on a busy machine more than once.
  await vi.waitFor(async () => expect(await card()).toEqual({ isSampled: true, tier: "DELIVERY_VERIFIED" }), {
    timeout: 1_200_000,
    interval: 1_000,
  });
  transcript.push(`(a card counts the paid call after ${Math.round((performance.now() - paidAt) / 1000)} s)`);
  await new Promise((resolve) => setTimeout(resolve, FINAL_AFTER_MS));
}

test("from an empty folder to a paid observation, word by word", { timeout: 3_600_000 }, async () => {
  const blocks = blocksOf(readFileSync(join(ROOT, "docs/operate.md"), "utf8"));
  const fill = (block: string): string =>
    standIns().reduce((text, [name, value]) => text.replaceAll(name, value), block);
  // Every placeholder of the table stands on the page, so none is filled in beside it.
  for (const [name] of standIns()) expect([name, blocks.join("\n").includes(name)]).toEqual([name, true]);
  cwd = dir;
  try {
    for (const written of blocks) {
      if (written.startsWith("curl ")) await untilPaid();
      const block = fill(written);
      if (block === "touchstone start") await start(block);
      else {
        if (block.startsWith("touchstone budget")) await stop();
        for (const line of block.split("\n")) await typed(line);
        if (block.includes("wallets new")) await fundAll();
      }
    }
  } finally {
    process.stdout.write(`${transcript.join("\n")}\n`);
  }
  const text = transcript.join("\n");
  expect(text).toMatch(/^ok +network eip155:8453 node 2 +it is a node of eip155:8453$/m);
  expect(text).not.toMatch(/^broken /m);
  const answer = JSON.parse(text.split("\n").find((line) => line.startsWith('{"asked"') || line.includes('"asked":'))!);
  expect(answer).toMatchObject({ band: "UNRATED", matched: "exact", tier: "DELIVERY_VERIFIED" });
  expect(statSync(join(cwd, "touchstone.json")).mode & 0o777).toBe(0o600);
  const spent = await shell("touchstone budget --json");
  const { coverage, spent: paid } = JSON.parse(spent.out) as {
    coverage: { covered: number };
    spent: { day: { calls: number; settled: string } };
  };
  expect(coverage.covered).toBe(ENDPOINTS);
  // Believed from the chain alone: what sellers say of it is not asked.
  expect(paid.day.calls).toBeGreaterThan(0);
  expect(Number(paid.day.settled)).toBeGreaterThan(0);
});

/** Ctrl-C: a call under way is watched to its end. */
async function stop(): Promise<void> {
  const ended = new Promise<number | null>((done) => started!.once("exit", done));
  started!.kill("SIGINT");
  transcript.push("^C");
  expect(await ended).toBe(0);
}
