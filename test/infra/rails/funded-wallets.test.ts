import { appendFileSync, chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createFundedWallets } from "../../../infra/rails/funded-wallets.ts";
import { type AssetRef, NoWallet, type PaymentNeed, type Wallets } from "../../../infra/rails/rails.ts";
import { WalletFolder } from "../../../infra/rails/wallet-folder.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";

const NETWORK = "eip155:8453";
const ASSET = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913";
const need = (amountAtomic: bigint, network = NETWORK): PaymentNeed => ({ network, asset: ASSET, amountAtomic });
const [MONDAY, TUESDAY] = ["2026-11-02", "2026-11-03"];

let dir: string;
let folder: WalletFolder;
let balances: Map<string, bigint>;
let metrics: ReturnType<typeof createMetrics>;
let now: number;
beforeEach(() => {
  dir = join(mkdtempSync(join(tmpdir(), "wallets-")), "wallets");
  folder = new WalletFolder(dir);
  balances = new Map();
  metrics = createMetrics();
  now = Date.parse("2026-11-02T10:00:00Z");
});
afterEach(() => rmSync(join(dir, ".."), { recursive: true, force: true }));

const block = { number: 1, time: 0 };
const balance = async (address: string, place?: AssetRef) => ({
  ...{ value: balances.get(`${address} ${place?.network}`) ?? 0n, head: block, final: block },
});
const give = (address: string, atomic: bigint, network = NETWORK) => balances.set(`${address} ${network}`, atomic);
const opened = (changes: { secret?: Uint8Array; folder?: WalletFolder } = {}): Wallets =>
  createFundedWallets({
    ...{ folder, rail: { balance }, secret: Buffer.alloc(32, 3), logger: createLogger("silent"), metrics },
    clock: { now: () => new Date(now) },
    ...changes,
  });
const blind = (wallets: Wallets, cap: string, day: string, amount = 10n, network = NETWORK) =>
  wallets.blind(cap, day, amount, need(amount, network));

describe("the folder", () => {
  test("files of mode 0600 in a folder of mode 0700; another process reads the same wallets", () => {
    const made = folder.make(3);
    const held = new WalletFolder(dir).read();
    expect(held.blind).toEqual(made);
    expect(new Set([held.known, held.gas, ...held.blind].map((one) => one!.address)).size).toBe(5);
    expect(statSync(dir).mode & 0o777).toBe(0o700);
    for (const file of ["seed.key", "journal.ndjson"]) expect(statSync(join(dir, file)).mode & 0o777).toBe(0o600);
  });

  test("more of them later: none is replaced, and known and gas stay", () => {
    folder.make(2);
    const before = folder.read();
    const more = folder.make(3);
    const after = folder.read();
    expect(after.blind).toEqual([...before.blind, ...more]);
    expect([after.known, after.gas]).toEqual([before.known, before.gas]);
  });

  test.each(["seed.key", "journal.ndjson"])("%s that others can read is refused, by its name and mode", (file) => {
    folder.make(1);
    chmodSync(join(dir, file), 0o640);
    expect(() => new WalletFolder(dir).read()).toThrow(/0640.*chmod 600/);
  });

  test("a folder that others can write in is refused", () => {
    folder.make(1);
    chmodSync(dir, 0o770);
    expect(() => new WalletFolder(dir)).toThrow("0770");
  });

  test("key files of an operator's own are wallets: known.key is the known one, any other a blind one", () => {
    folder.make(1);
    const [known, mine] = ["1", "2"].map((digit) => digit.repeat(64));
    writeFileSync(join(dir, "known.key"), `0x${known}\n`, { mode: 0o600 });
    writeFileSync(join(dir, "mine.key"), mine!, { mode: 0o600 });
    const held = folder.read();
    expect(held.known!.privateKey).toBe(`0x${known}`);
    expect(held.blind.map(({ privateKey }) => privateKey)).toContain(`0x${mine}`);
    chmodSync(join(dir, "mine.key"), 0o644);
    expect(() => folder.read()).toThrow("0644");
  });

  test.each(["", "zz".repeat(32), "0".repeat(64), "1".repeat(63)])("a key file with %j is refused", (text) => {
    folder.make(1);
    writeFileSync(join(dir, "mine.key"), text, { mode: 0o600 });
    expect(() => folder.read()).toThrow("mine.key");
  });

  test("without its seed the wallets are not others: it says what is missing", () => {
    folder.make(1);
    rmSync(join(dir, "seed.key"));
    expect(() => new WalletFolder(dir).read()).toThrow("seed.key");
  });

  test("without its seed no other till, float, known and gas wallet is made in their place", () => {
    folder.make(0, true);
    const before = folder.read();
    const seed = readFileSync(join(dir, "seed.key"));
    rmSync(join(dir, "seed.key"));
    expect(() => new WalletFolder(dir).read()).toThrow("seed.key");
    expect(() => new WalletFolder(dir).make(0, true)).toThrow("seed.key");
    expect(() => new WalletFolder(dir).make(1)).toThrow("seed.key");
    writeFileSync(join(dir, "seed.key"), seed, { mode: 0o600 });
    expect(new WalletFolder(dir).read()).toEqual(before);
  });

  test("a seed is not missed where each derived wallet has a key file by now; another one is not made", () => {
    folder.make(0);
    rmSync(join(dir, "seed.key"));
    for (const role of ["known", "gas"])
      writeFileSync(join(dir, `${role}.key`), (role === "known" ? "1" : "2").repeat(64), { mode: 0o600 });
    expect(folder.read()).toMatchObject({ till: null, blind: [] });
    expect(() => folder.make(1)).toThrow("seed.key");
    expect(folder.read().blind).toEqual([]);
  });

  test("a line that a crash cut off was never acted on, and spoils no line after it", () => {
    const [one, two] = folder.make(2);
    const use = { day: MONDAY, cap: "cap_a", network: NETWORK };
    folder.use({ address: one!.address, ...use });
    appendFileSync(join(dir, "journal.ndjson"), '{"used":true,"address":"0xcut');
    expect(folder.read().uses).toHaveLength(1);
    folder.use({ address: two!.address, ...use });
    expect(folder.read().uses.map(({ address }) => address)).toEqual([one!.address, two!.address]);
  });
});

describe("blind wallets", () => {
  test("one endpoint and day: the same wallet, after a restart too; any other, another wallet", async () => {
    for (const { address } of folder.make(8)) give(address, 1_000n);
    const wallets = opened();
    const first = await blind(wallets, "cap_a", MONDAY);
    expect(await blind(wallets, "cap_a", MONDAY)).toEqual(first);
    expect(await blind(opened({ folder: new WalletFolder(dir) }), "cap_a", MONDAY)).toEqual(first);
    const others = [
      await blind(wallets, "cap_b", MONDAY),
      await blind(wallets, "cap_a", TUESDAY),
      await blind(wallets, "cap_c", TUESDAY),
    ];
    expect(new Set([first, ...others].map(({ address }) => address)).size).toBe(4);
    expect(first.address).not.toBe(folder.read().known!.address);
  });

  test("it is on the disk before it pays: the journal names wallet, endpoint and day", async () => {
    for (const { address } of folder.make(1)) give(address, 1_000n);
    const { address } = await blind(opened(), "cap_a", MONDAY);
    expect(readFileSync(join(dir, "journal.ndjson"), "utf8")).toContain(
      JSON.stringify({ used: true, address, day: MONDAY, cap: "cap_a", network: NETWORK }),
    );
  });

  test("many at once never meet in one wallet while there are others", async () => {
    for (const { address } of folder.make(30)) give(address, 1_000n);
    const wallets = opened();
    const caps = Array.from({ length: 30 }, (_, n) => `cap_${n}`);
    const drawn = await Promise.all(caps.map((cap) => blind(wallets, cap, MONDAY)));
    expect(new Set(drawn.map(({ address }) => address)).size).toBe(30);
  });

  test("which one is drawn follows from our secret, and from nothing that others know", async () => {
    for (const { address } of folder.make(30)) give(address, 1_000n);
    const drawn = new Set<string>();
    for (let n = 0; n < 6; n++) {
      const copy = join(dir, "..", `copy-${n}`);
      const other = new WalletFolder(copy);
      other.make(0);
      for (const file of ["seed.key", "journal.ndjson"])
        writeFileSync(join(copy, file), readFileSync(join(dir, file)), { mode: 0o600 });
      const wallets = opened({ folder: other, secret: Buffer.alloc(32, 40 + n) });
      drawn.add((await blind(wallets, "cap_a", MONDAY)).address);
    }
    expect(drawn.size).toBeGreaterThan(1);
  });

  test("used on one day, on whichever chain: never on another, and when none is left nothing is paid", async () => {
    const [only] = folder.make(1);
    give(only!.address, 1_000n);
    give(only!.address, 1_000n, "eip155:137");
    const wallets = opened();
    await blind(wallets, "cap_a", MONDAY);
    expect(await blind(wallets, "cap_a", MONDAY, 10n, "eip155:137")).toEqual(only);
    await expect(blind(wallets, "cap_a", TUESDAY)).rejects.toMatchObject({ name: "NoWallet" });
    await expect(blind(wallets, "cap_a", TUESDAY, 10n, "eip155:137")).rejects.toThrow("0 of 1 were never used");
    expect(await metrics.text()).toContain('touchstone_blind_wallets_missing_total{network="eip155:8453"} 1');
  });

  test("too few on one day: one is shared by two endpoints of that day, and counted", async () => {
    const [only] = folder.make(1);
    give(only!.address, 1_000n);
    const wallets = opened();
    await blind(wallets, "cap_a", MONDAY);
    expect(await blind(wallets, "cap_b", MONDAY)).toEqual(only);
    expect(await metrics.text()).toContain('touchstone_blind_wallets_shared_total{network="eip155:8453"} 1');
  });

  test("money that lies elsewhere, or is too little, does not count; what arrives later does", async () => {
    const [one, two] = folder.make(2);
    give(one!.address, 9n);
    give(two!.address, 1_000n, "eip155:137");
    const wallets = opened();
    await expect(blind(wallets, "cap_a", MONDAY)).rejects.toMatchObject({ name: "NoWallet" });
    give(one!.address, 10n);
    now += 61_000;
    expect(await blind(wallets, "cap_a", MONDAY)).toEqual(one);
  });

  test("when the day's wallet has too little left for its endpoint's next call, another is drawn", async () => {
    for (const { address } of folder.make(2)) give(address, 15n);
    const wallets = opened();
    const first = await blind(wallets, "cap_a", MONDAY);
    give(first.address, 5n);
    now += 3_600_000;
    const second = await blind(wallets, "cap_a", MONDAY);
    expect(second.address).not.toBe(first.address);
  });
});

describe("the known wallet", () => {
  test("what was signed and may still be taken is not signed away again", async () => {
    folder.make(0);
    const known = folder.read().known!;
    give(known.address, 25n);
    const wallets = opened();
    expect(await wallets.known(need(10n))).toEqual(known);
    expect(await wallets.known(need(10n))).toEqual(known);
    await expect(wallets.known(need(10n))).rejects.toMatchObject({ name: "NoWallet" });
    // Nobody took them, and nobody can any more.
    now += 361_000;
    expect(await wallets.known(need(10n))).toEqual(known);
  });

  test("what is valid for a known time is set aside for that and a minute, and what is only asked not at all", async () => {
    folder.make(0);
    give(folder.read().known!.address, 100n);
    const wallets = opened();
    const short = { ...need(100n), validForS: 90 };
    for (let n = 0; n < 3; n++) await wallets.known({ ...short, onlyAsked: true });
    await wallets.known(short);
    now += 149_000;
    for (const one of [short, { ...short, onlyAsked: true }])
      await expect(wallets.known(one)).rejects.toThrow(NoWallet);
    now += 1_000;
    await wallets.known(short);
  });

  test("a folder without wallets pays nothing, and says what to do", async () => {
    await expect(opened().known(need(1n))).rejects.toThrow("touchstone wallets new");
  });

  test("another chain's money is another purse", async () => {
    folder.make(0);
    const known = folder.read().known!;
    give(known.address, 10n);
    give(known.address, 10n, "eip155:137");
    const wallets = opened();
    await wallets.known(need(10n));
    expect(await wallets.known(need(10n, "eip155:137"))).toEqual(known);
    await expect(wallets.known(need(1n))).rejects.toMatchObject({ name: "NoWallet" });
  });
});
