import { chmodSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseUnits } from "viem";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { exitCodeOf } from "../../commands/exit.ts";
import { withRoles } from "../../commands/roles.ts";
import { listWallets, newWallets, sweepWallets } from "../../commands/wallets.ts";
import { systemClock } from "../../infra/clock.ts";
import { type Config, loadConfig } from "../../infra/config.ts";
import { paidNetworks, railOn } from "../../infra/rails/networks.ts";
import { WalletFolder } from "../../infra/rails/wallet-folder.ts";
import { walletFindings, walletReport, watchWallets } from "../../infra/rails/wallet-report.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { dayOf } from "../../pipelines/record/time.ts";
import { walletsFolderOf } from "../../pipelines/roles/data-folder.ts";
import { type FundedChain, fundedChain } from "../helpers/funded-chain.ts";
import { type TempoNode, tempoNode } from "../helpers/tempo.ts";

const ASSET = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913";
const VAULT = "0x00000000000000000000000000000000000000aa";
/** Waits end by what they wait for; this ends what hangs. */
const PATIENCE = { timeout: 150_000 };
const [PAST, TODAY] = ["2026-10-01", dayOf(systemClock.now())];

let dir: string;
let chain: FundedChain;
let config: Config;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "wallets-command-"));
  chain = await fundedChain(8453);
  config = configOf();
});
afterAll(async () => {
  await chain?.stop();
  await rm(dir, { recursive: true, force: true });
});

const configOf = (changes: Record<string, string> = {}): Config =>
  loadConfig(undefined, {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_LOG_LEVEL: "silent",
    TOUCHSTONE_NETWORKS: JSON.stringify([{ id: "eip155:8453", rpc_urls: [chain.rpcUrl], confirmations: 1 }]),
    ...changes,
  });

/** What a command printed. */
async function printed(work: () => void | Promise<void>): Promise<string> {
  const written: string[] = [];
  const spy = vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    written.push(String(text));
    return true;
  });
  try {
    await work();
  } finally {
    spy.mockRestore();
  }
  return written.join("");
}

/** The same, as a machine reads it. */
const told = async <T>(work: () => void | Promise<void>): Promise<T> => JSON.parse(await printed(work)) as T;

interface SweptRow {
  network: string;
  from: string;
  amount: string | null;
  tx: string | null;
  says: string;
  error: string | null;
}

/** What a sweep wrote, a text for each write, and the code that it ended with. */
async function swept(of: Config, options: object = {}): Promise<{ written: string[]; code: number }> {
  const written: string[] = [];
  const spy = vi.spyOn(process.stdout, "write").mockImplementation((text) => written.push(String(text)) > 0);
  try {
    await sweepWallets(of, { to: VAULT, ...options });
    return { written, code: 0 };
  } catch (error) {
    return { written, code: exitCodeOf(error) };
  } finally {
    spy.mockRestore();
  }
}

/** The rows of a sweep as a machine reads them, and its code. */
async function sweptRows(of: Config, options: object = {}): Promise<{ rows: SweptRow[]; code: number }> {
  const { written, code } = await swept(of, { json: true, ...options });
  return { rows: (JSON.parse(written.join("")) as { swept: SweptRow[] }).swept, code };
}

interface Made {
  known: { address: string; made: boolean };
  gas: { address: string };
  blind: string[];
}
interface Listed {
  wallets: { role: string; address: string; day: string | null; balances: Record<string, string | null> }[];
  pools: { known: string; fresh: number; freshTotal: string }[];
  findings: { name: string; standing: string }[];
}
const HERE = "eip155:8453 USDC";
const list = () => told<Listed>(() => listWallets(config, { json: true }));

test("before there are any: list says what to do, with a code of its own", async () => {
  const refused = await listWallets(config, { json: true }).catch((error: Error) => error);
  expect(String(refused)).toContain("touchstone wallets new");
  expect(exitCodeOf(refused)).toBe(22);
});

test("a second run makes no other wallets and says so; what was used is made up for", async () => {
  const apart = configOf({ TOUCHSTONE_WALLETS_DIR: join(dir, "twice") });
  const first = await told<Made>(() => newWallets(apart, { blind: 3, json: true }));
  const again = await told<Made>(() => newWallets(apart, { blind: 3, json: true }));
  expect(again).toEqual({
    ...{ ...first, blind: [], unused: first.blind },
    ...{ known: { ...first.known, made: false }, gas: { ...first.gas, made: false } },
  });
  const folder = new WalletFolder(walletsFolderOf(apart));
  folder.use({ address: first.blind[0]!, day: TODAY, cap: "cap_a", network: "eip155:8453" });
  const third = await told<Made>(() => newWallets(apart, { blind: 3, json: true }));
  expect(third).toMatchObject({ blind: [expect.stringMatching(/^0x/)], unused: first.blind.slice(1) });
  expect(first.blind).not.toContain(third.blind[0]);
  expect(folder.read().blind).toHaveLength(4);
  const lines = await printed(() => newWallets(apart, { blind: 3 }));
  expect(lines).toContain("3 unused blind wallets existed, none made.");
});

test("what is empty is told apart from what is there, and how much it needs", async () => {
  const empty = configOf({ TOUCHSTONE_WALLETS_DIR: join(dir, "empty") });
  const folder = new WalletFolder(walletsFolderOf(empty));
  folder.make(3);
  const networks = paidNetworks(empty);
  const found = async (low: { money: string; blind: number }) =>
    walletFindings(await walletReport(folder.read(), railOn(networks), networks), low);
  expect(await found({ money: "1.00", blind: 2 })).toMatchObject([
    { standing: "warn", says: "it holds 0", todo: expect.stringContaining("1.00 or more") },
    {
      ...{ standing: "warn", says: "3 were never used: 0 hold 0 in all, 3 hold nothing" },
      todo: expect.stringMatching(/^fund 2 or more, until all hold 1\.00 USDC or more together: each from outside/),
    },
  ]);
  // More are needed than there are.
  expect((await found({ money: "1.00", blind: 4 }))[1]!.todo).toMatch(
    /^touchstone wallets new --blind 20, then fund 4/,
  );
  for (const { address } of folder.read().blind.slice(0, 2)) await chain.fund(address, 400_000n);
  expect((await found({ money: "1.00", blind: 2 }))[1]).toMatchObject({
    ...{ says: "3 were never used: 2 hold 0.8 in all, 1 hold nothing", todo: expect.stringMatching(/^fund 1 or more/) },
  });
  expect((await found({ money: "0.80", blind: 2 }))[1]).toMatchObject({ standing: "ok" });
});

test("new, list, sweep: what is left of past days leaves by signed authorizations, and nothing else does", async () => {
  const made = await told<Made>(() => newWallets(config, { blind: 4, json: true }));
  expect(made).toMatchObject({ known: { made: true }, blind: expect.arrayContaining([expect.any(String)]) });
  const again = await told<Made>(() => newWallets(config, { blind: 0, json: true }));
  expect(again).toMatchObject({ known: { address: made.known.address, made: false }, blind: [] });
  const [old, poor, todays, fresh] = made.blind as [string, string, string, string];
  await chain.fund(made.known.address, 5_000_000n);
  for (const [address, atomic] of [
    [old, 750_000n],
    [todays, 400_000n],
    [fresh, 300_000n],
  ] as const)
    await chain.fund(address, atomic);
  const folder = new WalletFolder(walletsFolderOf(config));
  for (const address of [old, poor]) folder.use({ address, day: PAST, cap: "cap_a", network: "eip155:8453" });
  folder.use({ address: todays, day: TODAY, cap: "cap_b", network: "eip155:8453" });

  const listed = await list();
  const holds = (address: string) => listed.wallets.find((one) => one.address === address);
  expect(holds(made.known.address)).toMatchObject({ role: "known", balances: { [HERE]: "5" } });
  expect(holds(old)).toMatchObject({ role: "blind", day: PAST, balances: { [HERE]: "0.75" } });
  expect(holds(fresh)).toMatchObject({ day: null, balances: { [HERE]: "0.3" } });
  expect(listed.pools).toMatchObject([{ known: "5", fresh: 1, freshTotal: "0.3" }]);
  expect(listed.findings.map(({ standing }) => standing)).toEqual(["ok", "warn"]);

  const sweep = (options: object = {}) =>
    told<{ swept: object[] }>(() => sweepWallets(config, { to: VAULT, json: true, ...options }));
  const dry = await sweep({ dryRun: true });
  expect(dry.swept).toEqual([expect.objectContaining({ from: old, amount: "0.75", tx: null })]);
  await expect(sweep()).rejects.toThrow(`gas wallet ${made.gas.address} has nothing`);
  await chain.giveGas(made.gas.address);
  const done = await sweep();
  expect(done.swept).toEqual([expect.objectContaining({ from: old, says: "swept", tx: expect.stringMatching(/^0x/) })]);
  const rail = railOn(paidNetworks(config));
  const balances = await Promise.all([VAULT, old, todays, fresh].map(async (one) => (await rail.balance(one)).value));
  expect(balances).toEqual([750_000n, 0n, 400_000n, 300_000n]);
  expect((await sweep()).swept).toEqual([]);
  await expect(sweep({ to: "0x12" })).rejects.toThrow("--to");
});

describe("a sweep of which a part fails", () => {
  /** A folder with two blind wallets that paid on a past day, and one whose outside signer does not answer. */
  async function folderOf(name: string): Promise<{ of: Config; away: string; blind: string[] }> {
    const of = configOf({ TOUCHSTONE_WALLETS_DIR: join(dir, name) });
    const folder = new WalletFolder(walletsFolderOf(of));
    folder.make(2);
    const away = `0x${"d1".repeat(20)}`;
    writeFileSync(join(folder.dir, "away.key"), `http://127.0.0.1:9 ${away}\n`, { mode: 0o600 });
    const { blind, gas } = folder.read();
    await chain.giveGas(gas!.address);
    for (const { address } of blind) {
      await chain.fund(address, 250_000n);
      folder.use({ address, day: PAST, cap: "cap_a", network: "eip155:8453" });
    }
    return { of, away, blind: blind.map(({ address }) => address).filter((address) => address !== away) };
  }

  test("a network that is down and a signer that is away are rows, the others are swept, and the code says so", async () => {
    const { of, away, blind } = await folderOf("apart");
    const down = { id: "eip155:137", rpc_urls: ["http://127.0.0.1:9"] };
    const both = { ...of, networks: loadConfig(undefined, { TOUCHSTONE_NETWORKS: JSON.stringify([down]) }).networks };
    both.networks = [...both.networks, ...of.networks];
    const { rows, code } = await sweptRows(both);
    expect(rows.filter(({ network }) => network === "eip155:137")).toEqual(
      [away, ...blind].map((from) => expect.objectContaining({ from, amount: null, tx: null, error: "chain" })),
    );
    expect(rows.filter(({ network }) => network === "eip155:8453")).toEqual([
      expect.objectContaining({ from: away, amount: "0.25", tx: null, error: "wallet" }),
      ...blind.map((from) => expect.objectContaining({ from, tx: expect.stringMatching(/^0x/), says: "swept" })),
    ]);
    expect(code).toBe(5);
    const again = await sweptRows(of);
    expect(again.rows).toEqual([expect.objectContaining({ from: away, error: "wallet" })]);
    expect(again.code).toBe(22);
  });

  test("lines are printed as they come, and a transfer that the token refuses is a failure", async () => {
    const { of, away, blind } = await folderOf("refused");
    const { written, code } = await swept(of, { to: `0x${"0".repeat(40)}` });
    expect(written.map((line) => /0x[0-9a-f]{40}/.exec(line)![0])).toEqual([away, ...blind]);
    expect(written.slice(1)).toEqual(blind.map(() => expect.stringMatching(/^0\.25 USDC .* refused: /)));
    expect(code).toBe(22);
    const rail = railOn(paidNetworks(of));
    expect(await Promise.all(blind.map(async (one) => (await rail.balance(one)).value))).toEqual([250_000n, 250_000n]);
    writeFileSync(join(walletsFolderOf(of), "away.key"), `${"7".repeat(64)}\n`);
    expect((await swept(of, { to: `0x${"0".repeat(40)}` })).code).toBe(1);
  });
});

describe("a sweep on Tempo", () => {
  let node: TempoNode;
  beforeAll(async () => {
    node = await tempoNode();
  });
  afterAll(async () => node?.stop());

  /** Sets the price of gas. The local chain lowers it with each empty block, by an eighth; the real one keeps it. */
  async function setGasPrice(gwei: number): Promise<void> {
    const params = [`0x${(gwei * 1e9).toString(16)}`];
    await node.client.request({ method: "anvil_setNextBlockBaseFeePerGas", params } as never);
    await node.client.request({ method: "evm_mine" } as never);
  }

  test("each wallet signs its own transfer and pays the fee of it; what is too little for the fee is told and left", async () => {
    const networks = JSON.stringify([{ id: node.network, rpc_urls: [node.rpcUrl] }]);
    const of = configOf({ TOUCHSTONE_WALLETS_DIR: join(dir, "tempo"), TOUCHSTONE_NETWORKS: networks });
    const folder = new WalletFolder(walletsFolderOf(of));
    folder.make(3);
    const [first, second, poor] = folder.read().blind.map(({ address }) => address) as [string, string, string];
    for (const [address, atomic] of [
      [first, 750_000n],
      [second, 400_000n],
      [poor, 100n],
    ] as const) {
      await node.fund(address, atomic);
      folder.use({ address, day: PAST, cap: "cap_a", network: node.network });
    }
    const away = `0x${"d2".repeat(20)}`;
    writeFileSync(join(folder.dir, "away.key"), `http://127.0.0.1:9 ${away}\n`, { mode: 0o600 });
    folder.use({ address: away, day: PAST, cap: "cap_a", network: node.network });
    await node.fund(away, 500_000n);
    const rail = railOn(paidNetworks(of));
    const holds = async (address: string) => (await rail.balance(address)).value;
    const micro = ({ amount }: SweptRow): bigint => parseUnits(amount!, 6);
    const unsigned = { from: away, tx: null, error: "wallet", says: expect.stringContaining("use a key file") };
    const left = { from: poor, amount: "0.0001", tx: null, error: null, says: expect.stringContaining("too little") };

    const refused = { tx: null, error: "failed", says: expect.stringContaining("would revert") };
    expect((await sweptRows(of, { to: node.asset })).rows).toMatchObject([unsigned, refused, refused, refused]);
    const dry = await sweptRows(of, { dryRun: true });
    expect(dry.rows).toMatchObject([unsigned, { says: "would be swept" }, { says: "would be swept" }, left]);
    expect(await holds(VAULT)).toBe(0n);

    await setGasPrice(1);
    const { rows, code } = await sweptRows(of);
    expect(rows).toMatchObject([unsigned, { from: first, says: "swept" }, { from: second, says: "swept" }, left]);
    expect(code).toBe(22);
    const moved = [micro(rows[1]!), micro(rows[2]!)] as const;
    // The highest fee is set aside when it is signed. Less than that is charged, and the difference stays.
    for (const [n, funds] of [750_000n, 400_000n].entries()) {
      expect(Number(funds - moved[n]!)).toBeGreaterThan(0);
      expect(Number(funds - moved[n]!)).toBeLessThan(3_000);
      expect(await holds(rows[n + 1]!.from)).toBeLessThan(funds - moved[n]!);
    }
    expect(await holds(VAULT)).toBe(moved[0] + moved[1]);
    for (const row of rows.slice(1, 3))
      expect((await rail.transfersIn(row.tx!)).value).toContainEqual(
        expect.objectContaining({ from: row.from, to: VAULT, amountAtomic: micro(row) }),
      );

    await setGasPrice(90);
    const again = await sweptRows(of);
    expect(again.rows).toMatchObject([
      unsigned,
      ...[first, second].map((from) => ({ ...left, from, amount: expect.any(String) })),
      left,
    ]);
    // A node names the price; it does not get more than ten cents.
    await setGasPrice(4_000);
    const dear = { tx: null, error: "chain", says: expect.stringContaining("more than 100000") };
    expect((await sweptRows(of)).rows).toMatchObject([unsigned, dear, dear, dear]);
    expect(await holds(VAULT)).toBe(moved[0] + moved[1]);
    expect(await holds(poor)).toBe(100n);
  });
});

test("low water: gauges, a count of alarms, and money that arrives", async () => {
  const folder = new WalletFolder(walletsFolderOf(config));
  const networks = paidNetworks(config);
  const rail = railOn(networks);
  const low = { money: "10.00", blind: 4 };
  const report = await walletReport(folder.read(), rail, networks);
  expect(walletFindings(report, low).filter(({ standing }) => standing !== "ok")).toHaveLength(2);
  expect(walletFindings(report, { money: "0.10", blind: 1 }).filter(({ standing }) => standing !== "ok")).toEqual([]);
  const metrics = createMetrics();
  const said: string[] = [];
  const logger = { ...createLogger("silent"), warn: () => {}, info: (_: unknown, text: string) => said.push(text) };
  const watch = watchWallets({
    ...{ folder, rail, networks, low, metrics, clock: systemClock, every_ms: 50 },
    logger: logger as unknown as ReturnType<typeof createLogger>,
  });
  await vi.waitFor(async () => expect(await metrics.text()).toContain("touchstone_wallets_low 2"), PATIENCE);
  await chain.fund(folder.read().known!.address, 20_000_000n);
  await vi.waitFor(() => expect(said).toContain("money arrived at a wallet"), PATIENCE);
  await watch.stop();
  const text = await metrics.text();
  expect(text).toContain('touchstone_wallet_known_units{network="eip155:8453",asset="USDC"} 20');
  expect(text).toContain('touchstone_wallets_blind_fresh{network="eip155:8453",asset="USDC"} 1');
});

test("a chain that cannot be asked is said so, and is no empty purse", async () => {
  const networks = [{ ...paidNetworks(config)[0]!, rpcUrls: ["http://127.0.0.1:9"] }];
  const report = await walletReport(new WalletFolder(walletsFolderOf(config)).read(), railOn(networks), networks);
  expect(report.pools).toMatchObject([{ known: null, fresh: null }]);
  expect(walletFindings(report, { money: "1.00", blind: 1 })).toMatchObject([{ standing: "warn" }]);
  const metrics = createMetrics();
  const said: string[] = [];
  const logger = { ...createLogger("silent"), warn: (_: unknown, text: string) => said.push(text) };
  const watch = watchWallets({
    ...{ folder: new WalletFolder(walletsFolderOf(config)), rail: railOn(networks), networks, metrics },
    ...{ low: { money: "1.00", blind: 1 }, clock: systemClock },
    logger: logger as unknown as ReturnType<typeof createLogger>,
  });
  await vi.waitFor(() => expect(said).toContain("the chain could not be asked"), PATIENCE);
  await watch.stop();
  expect(await metrics.text()).toContain("touchstone_wallets_low 0");
});

test("a node that fails at some reads does not make low wallets look full", async () => {
  const folder = new WalletFolder(join(dir, "flaky"));
  folder.make(1);
  const networks = paidNetworks(config);
  const chainRail = railOn(networks);
  let isDown = false;
  const balance: typeof chainRail.balance = (...asked) =>
    isDown ? Promise.reject(new Error("the node is down")) : chainRail.balance(...asked);
  const metrics = createMetrics();
  const said: string[] = [];
  const logger = { ...createLogger("silent"), warn: (_: unknown, text: string) => said.push(text), info: () => {} };
  const watch = watchWallets({
    ...{ folder, rail: { balance }, networks, metrics, low: { money: "1.00", blind: 1 }, clock: systemClock },
    ...{ logger: logger as unknown as ReturnType<typeof createLogger>, every_ms: 50 },
  });
  const gaugeIs = (n: number) =>
    vi.waitFor(async () => expect(await metrics.text()).toContain(`touchstone_wallets_low ${n}`), PATIENCE);
  await gaugeIs(2);
  isDown = true;
  await vi.waitFor(() => expect(said).toContain("the chain could not be asked"), PATIENCE);
  expect(await metrics.text()).toContain("touchstone_wallets_low 2");
  const { known, blind } = folder.read();
  for (const { address } of [known!, ...blind]) await chain.fund(address, 2_000_000n);
  isDown = false;
  await gaugeIs(0);
  await watch.stop();
});

test("wallets that others can read are refused by name, and having none is a finding", async () => {
  const folder = new WalletFolder(join(dir, "shared"));
  folder.make(0);
  chmodSync(join(folder.dir, "seed.key"), 0o644);
  expect(() => folder.read()).toThrow("0644");
  const networks = paidNetworks(config);
  const report = await walletReport(new WalletFolder(join(dir, "nowhere")).read(), railOn(networks), networks);
  expect(walletFindings(report, { money: "0.10", blind: 1 })).toMatchObject([
    { standing: "warn", todo: expect.stringContaining("wallets new") },
  ]);
});

test("a role does not start on a chain that is another than the settings say", async () => {
  const wrong = configOf({
    TOUCHSTONE_NETWORKS: JSON.stringify([{ id: "eip155:137", rpc_urls: [chain.rpcUrl] }]),
  });
  const refused = await withRoles(wrong, async () => {}).catch((error: Error) => error);
  expect(String(refused)).toContain("the settings say eip155:137, and the node says eip155:8453");
  expect(exitCodeOf(refused)).toBe(21);
});

test("wallets that mint refuse to start on several networks", async () => {
  const [base] = config.networks;
  const networks = JSON.stringify([base, { ...base, id: "eip155:137", rpc_urls: ["http://127.0.0.1:9"] }]);
  const several = configOf({ TOUCHSTONE_NETWORKS: networks, TOUCHSTONE_WALLETS_MINT: "true" });
  const refused = await withRoles(several, async () => {}).catch((error: Error) => error);
  expect(String(refused)).toContain("wallets.mint");
});

test("the asset that is swept and listed is the network's own", () => {
  expect(paidNetworks(config)[0]!.assets[0]!.address).toBe(ASSET);
});
