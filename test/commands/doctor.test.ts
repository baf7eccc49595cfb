import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { checkAtStart, examine } from "../../commands/doctor.ts";
import { EXIT } from "../../commands/exit.ts";
import { blindFindings } from "../../commands/findings/money.ts";
import { type LocalChain, startLocalChain } from "../../fixtures/chain/local-chain.ts";
import { loadConfig } from "../../infra/config.ts";
import type { Finding } from "../../infra/finding.ts";
import { ensureKeys } from "../../pipelines/roles/data-folder.ts";
import { runs } from "../helpers/programs.ts";

/** Seconds that the server's `Date` is off, by path. */
const OFF_S: Record<string, number> = { "/late": 60, "/later": 10 };
const answers: RequestListener = ({ url = "/" }, response) => {
  response.sendDate = false;
  response.setHeader("date", new Date(Date.now() - (OFF_S[url] ?? 0) * 1000).toUTCString());
  if (url === "/gone") response.statusCode = 404;
  if (url === "/down") response.statusCode = 503;
  response.end(url === "/catalogue" ? '{"items":[]}' : "hello");
};

let server: Server;
let at: string;
let dir: string;
let chain: LocalChain;
beforeAll(async () => {
  chain = await startLocalChain({});
  server = createServer(answers);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  await chain.stop();
  await new Promise((resolve) => server.close(resolve));
});
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "doctor-"));
});
afterEach(() => rmSync(dir, { recursive: true }));

/** Settings that are right, of a machine that was never started, with these instead. */
const settings = (changed: Record<string, string> = {}) => ({
  TOUCHSTONE_DATA_DIR: join(dir, "data"),
  TOUCHSTONE_BASE_URL: "http://localhost:8402",
  TOUCHSTONE_ALLOW_LOOPBACK: "true",
  TOUCHSTONE_CONTROL_URLS: JSON.stringify([`${at}/a`, `${at}/b`, `${at}/c`]),
  TOUCHSTONE_CATALOGUES: JSON.stringify([`${at}/catalogue`]),
  TOUCHSTONE_CHAIN_RPC_URL: chain.rpcUrl,
  TOUCHSTONE_WALLETS_MINT: "true",
  ...changed,
});
const configOf = (changed: Record<string, string> = {}) => loadConfig(undefined, settings(changed));
const standings = (found: readonly Finding[]) =>
  Object.fromEntries(found.map(({ name, standing }) => [name, standing]));
const controls = (...paths: string[]) => ({ TOUCHSTONE_CONTROL_URLS: JSON.stringify(paths.map((path) => at + path)) });

/** What this setting or state changes in the report: name and standing of every finding that is not as it was. */
async function changedBy(changed: Record<string, string>, state: () => void): Promise<Record<string, string>> {
  const config = configOf(changed);
  state();
  const [before, after] = [await examine(configOf(), "start"), await examine(config, "start")];
  const was = standings(before);
  return Object.fromEntries(Object.entries(standings(after)).filter(([name, now]) => was[name] !== now));
}

describe("touchstone doctor", () => {
  test("blind calls that leave from where known ones do: what that costs, and no role is kept from its work by it", () => {
    const observing = (known_addresses: string[], blind_addresses: string[]) => {
      const { observe } = configOf();
      return blindFindings({ observe: { ...observe, known_addresses, blind_addresses } });
    };
    expect(observing([], [])).toEqual([
      {
        ...{ name: "observe.blind_addresses", standing: "warn" },
        says: expect.stringMatching(
          /^empty: known and blind calls leave from one address; a seller that stores the address .* prove no more than known ones$/,
        ),
        todo: expect.stringMatching(/^name addresses of this machine for both/),
      },
    ]);
    expect(observing(["192.0.2.1", "2001:db8::1"], ["192.0.2.2"])).toMatchObject([
      { standing: "warn", says: expect.stringMatching(/^none of IPv6: there the system chooses the address/) },
    ]);
    expect(observing(["192.0.2.1"], ["192.0.2.2", "192.0.2.3"])).toMatchObject([{ standing: "ok" }]);
  });

  test.each([
    ["start", true],
    ["observe", true],
    ["own", false],
    ["publish", false],
    ["serve", false],
  ] as const)("%s is told of it: %s", async (role, told) => {
    const found = await examine(configOf(), role);
    expect(found.some(({ name }) => name === "observe.blind_addresses")).toBe(told);
  });

  test("a machine that was never started: nothing is broken, and looking made nothing", async () => {
    const found = await examine(configOf(), "start");
    expect(found.filter(({ standing }) => standing === "broken")).toEqual([]);
    expect(standings(found)).toMatchObject({
      ...{ settings: "ok", keys: "off", log: "off", "store.private": "off", "store.public": "off", clock: "ok" },
      ...{ "control 1": "ok", "control 3": "ok", "catalogue 1": "ok", base_url: "warn", allow_loopback: "warn" },
      "observe.blind_addresses": "warn",
      ...{ "network eip155:84532 node 1": "ok", wallets: "warn" },
    });
    expect(existsSync(join(dir, "data"))).toBe(false);
  });

  test("a machine that has keys", async () => {
    ensureKeys(join(dir, "data"), new Date("2026-01-01T00:00:00Z"));
    for (const role of ["start", "observe", "own", "publish", "serve"] as const)
      expect(standings(await examine(configOf(), role))).toMatchObject({ keys: "ok" });
  });

  const kafka = { TOUCHSTONE_LOG: "kafka://127.0.0.1:1/x" };
  test.each<[string, Record<string, string>, Record<string, string>]>([
    [
      "an address for others, and nobody in front of it named",
      { TOUCHSTONE_BASE_URL: "https://record.example" },
      {
        "limits.trusted_proxies": "warn",
      },
    ],
    ["a cap above the next larger one", { TOUCHSTONE_SPEND_PER_CALL: "9.00" }, { "spend.per_call": "warn" }],
    [
      "an address that is another machine's",
      { TOUCHSTONE_OBSERVE_KNOWN_ADDRESSES: '["192.0.2.7"]' },
      {
        "observe.known_addresses": "broken",
      },
    ],
    [
      "one store in a bucket, nobody there",
      { TOUCHSTONE_STORES_PUBLIC: "s3://b-b" },
      {
        stores: "warn",
        "store.public": "broken",
      },
    ],
    ["a catalogue that moved", { TOUCHSTONE_CATALOGUES: "[]" }, { catalogues: "warn" }],
  ])("%s", async (_, changed, want) => {
    expect(await changedBy(changed, () => undefined)).toMatchObject(want);
  });

  test.each<[string, Record<string, string>, Record<string, string>]>([
    [
      "a chain that is another one",
      { TOUCHSTONE_CHAIN_NETWORK: "eip155:8453" },
      { "network eip155:8453 node 1": "broken", "network eip155:8453": "broken" },
    ],
    [
      "a node that is down",
      { TOUCHSTONE_CHAIN_RPC_URL: "http://127.0.0.1:1" },
      { "network eip155:84532 node 1": "warn", "network eip155:84532": "broken" },
    ],
    ["no node at all", { TOUCHSTONE_CHAIN_RPC_URL: "null" }, { "network eip155:84532": "broken" }],
    ["no wallets", { TOUCHSTONE_WALLETS_MINT: "false" }, { wallets: "broken" }],
  ])("money: %s", async (_, changed, want) => {
    expect(await changedBy(changed, () => undefined)).toMatchObject(want);
  });

  test("a wallet whose key an outside signer has: it is asked for a signature", async () => {
    const wallets = join(dir, "data", "wallets");
    const standing = async (signer: string) => {
      mkdirSync(wallets, { recursive: true, mode: 0o700 });
      // The local chain's own node has the keys of some accounts, and signs for them.
      const line = `${signer} 0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266`;
      writeFileSync(join(wallets, "known.key"), line, { mode: 0o600 });
      const found = await examine(configOf({ TOUCHSTONE_WALLETS_MINT: "false" }), "observe");
      return found.find(({ name }) => name === "signer");
    };
    expect(await standing(chain.rpcUrl)).toMatchObject({ standing: "ok", says: "signs for 1 wallet" });
    const down = await standing("http://127.0.0.1:1/key-of-the-operator");
    expect(down).toMatchObject({ standing: "broken", says: expect.stringMatching(/gave no signature/) });
    expect(JSON.stringify(down)).not.toMatch(/key-of-the-operator/);
  });

  test("stores that are one, with one key; a shared log beside a folder", async () => {
    const found = await examine(
      configOf({
        TOUCHSTONE_STORES_PUBLIC: "s3://one-bucket",
        TOUCHSTONE_STORES_PRIVATE: "s3://one-bucket",
        TOUCHSTONE_STORES_ENDPOINT: "http://127.0.0.1:1",
        ...{ TOUCHSTONE_STORES_PUBLIC_KEY_ID: "k", TOUCHSTONE_STORES_PRIVATE_KEY_ID: "k" },
        ...{ TOUCHSTONE_STORES_PUBLIC_KEY: "secret-a", TOUCHSTONE_STORES_PRIVATE_KEY: "secret-a" },
      }),
      "serve",
    );
    expect(found.filter(({ name }) => name === "stores").map(({ says }) => says.slice(0, 30))).toHaveLength(2);
    const sold = { TOUCHSTONE_SELL_NETWORK: "eip155:84532" };
    const bought = {
      ...sold,
      TOUCHSTONE_STORES_ORDERS: "s3://one-bucket",
      TOUCHSTONE_STORES_PUBLIC: "s3://one-bucket",
    };
    expect(standings(await examine(configOf(bought), "serve"))).toMatchObject({
      ...{ "stores.orders": "broken", "store.orders": "broken" },
    });
    expect(standings(await examine(configOf({ ...kafka, ...sold }), "serve"))).toMatchObject({
      "stores.orders": "warn",
    });
    const unsold = await examine(configOf(), "serve");
    expect(unsold.find(({ name }) => name === "store.orders")).toMatchObject({ standing: "off" });
    const shared = standings(await examine(configOf(kafka), "own"));
    expect(shared).toMatchObject({ stores: "warn", keys: "broken", log: "broken" });
  });

  test.each<[string, string[], Record<string, string>]>([
    ["one of three is down", ["/a", "/down", "/c"], { "control 2": "warn", clock: "ok" }],
    [
      "two of three are down",
      ["/down", "/b", "/down"],
      { "control 1": "broken", "control 2": "ok", "control 3": "broken" },
    ],
    ["there is one", ["/a"], { "control 1": "ok", control: "warn" }],
    ["our clock is a minute off", ["/late"], { clock: "broken" }],
    ["our clock is ten seconds off", ["/later"], { clock: "warn" }],
    ["most say the right time", ["/a", "/late", "/c"], { clock: "ok" }],
  ])("control addresses: %s", async (_, paths, want) => {
    expect(standings(await examine(configOf(controls(...paths)), "observe"))).toMatchObject(want);
  });

  test("no control address, and no switch of the demo: nothing is paid, and observers do not start", async () => {
    const config = configOf({ ...controls(), TOUCHSTONE_ALLOW_LOOPBACK: "false" });
    expect(standings(await examine(config, "observe"))).toMatchObject({ control: "broken" });
    await expect(checkAtStart(config, "observe")).rejects.toThrow(/control_urls: name addresses/);
    await expect(checkAtStart(config, "publish")).resolves.toBeUndefined();
    const here = configOf({ ...controls("/a"), TOUCHSTONE_ALLOW_LOOPBACK: "false" });
    expect(standings(await examine(here, "observe"))).toMatchObject({ "control 1": "broken" });
  });

  test.each<[string, (data: string) => void, string]>([
    ["a key that others can read", (data) => chmodSync(keyFile(data), 0o644), "keys"],
    ["a key that is gone", (data) => unlinkSync(keyFile(data)), "keys"],
    ["a secret that is gone", (data) => unlinkSync(join(data, "keys/observer.secret")), "keys"],
    [
      "a log that is none",
      (data) => {
        mkdirSync(join(data, "log"), { recursive: true });
        writeFileSync(join(data, "log/log.sqlite"), "this is no database, and never was one");
      },
      "log",
    ],
  ])("%s", async (_, harm, name) => {
    const data = join(dir, "data");
    ensureKeys(data, new Date("2026-01-01T00:00:00Z"));
    harm(data);
    const found = await examine(configOf(), "start");
    expect(found.find((one) => one.name === name)).toMatchObject({ standing: "broken", todo: expect.any(String) });
  });

  test("as a command: a table with the worst first, JSON for a machine, and a code of its own", async () => {
    const run = (...words: string[]) =>
      new Promise<{ code: number; out: string; err: string }>((resolve) => {
        const env = { ...process.env, ...settings(controls("/down")) };
        execFile(process.execPath, [...runs("touchstone.ts"), "doctor", ...words], { env }, (error, out, err) =>
          resolve({ code: (error as { code?: number } | null)?.code ?? 0, out, err }),
        );
      });
    const [people, machine, serve] = await Promise.all([run(), run("--json"), run("--role", "serve", "--json")]);
    expect(people.code).toBe(EXIT.unfit);
    expect(people.out).toMatch(/^broken {2}control 1 +http:.* answered 503\n +-> replace it/);
    expect(machine.code).toBe(EXIT.unfit);
    expect(JSON.parse(machine.out)).toMatchObject({ role: "start", broken: 1, findings: expect.any(Array) });
    expect(serve.code).toBe(0);
  });
});

const keyFile = (data: string): string => {
  const name = readdirSync(join(data, "keys")).find((file) => file.startsWith("cards-"));
  return join(data, "keys", name!);
};
