import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { examine } from "../../commands/doctor.ts";
import { EXIT } from "../../commands/exit.ts";
import { type Answers, problemsOf, settingsOf } from "../../commands/init.ts";
import { loadConfig } from "../../infra/config.ts";
import { WalletFolder } from "../../infra/rails/wallet-folder.ts";
import { type FundedChain, fundedChain } from "../helpers/funded-chain.ts";
import { runs } from "../helpers/programs.ts";

let chain: FundedChain;
let server: Server;
let at: string;
let dir: string;
beforeAll(async () => {
  chain = await fundedChain(8453);
  server = createServer((_, response) => response.end('{"items":[]}'));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  await chain?.stop();
  server?.close();
});
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "init-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const RIGHT: Answers = {
  ...{ name: "record.example", network: "eip155:8453", rpc: ["https://a.example/KEY", "https://b.example"] },
  ...{ control: ["https://one.example/", "https://two.example/"], catalogue: ["cdp-bazaar"], sell: false },
};

/** Words of the command line for the five answers. */
const asOptions = ({ name, network, rpc, control, catalogue, sell }: Answers): string[] => [
  ...(name ? ["--name", name] : []),
  ...(network ? ["--network", network] : []),
  ...(rpc ?? []).flatMap((one) => ["--rpc", one]),
  ...(control ?? []).flatMap((one) => ["--control", one]),
  ...(catalogue ?? []).flatMap((one) => ["--catalogue", one]),
  ...(sell === undefined ? [] : [sell ? "--sell" : "--no-sell"]),
];

interface Ended {
  code: number;
  out: string;
  err: string;
}
/** In the folder of the test, as a script runs it: nobody sits at a terminal. */
const run = (...given: string[]): Promise<Ended> => ended(process.execPath, [...runs("touchstone.ts"), ...given]);
const ended = (file: string, words: string[], input = ""): Promise<Ended> =>
  new Promise((done) => {
    const child = execFile(file, words, { cwd: dir }, (error, out, err) =>
      done({ code: typeof error?.code === "number" ? error.code : 0, out, err }),
    );
    child.stdin?.end(input);
  });

const file = () => join(dir, "touchstone.json");

describe("touchstone init", () => {
  test("by options: a file for its owner alone that says the five answers, and what comes next", async () => {
    const { code, out } = await run("init", ...asOptions(RIGHT), "--json");
    expect([code, JSON.parse(out)]).toEqual([
      EXIT.ok,
      { file: file(), agree: 2, next: expect.arrayContaining(["touchstone keygen", "touchstone doctor"]) },
    ]);
    expect(statSync(file()).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(file(), "utf8"))).toEqual({
      base_url: "https://record.example",
      networks: [{ id: "eip155:8453", rpc_urls: RIGHT.rpc, agree: 2 }],
      control_urls: RIGHT.control,
      catalogues: ["cdp-bazaar"],
    });
    // What holds a key is not printed.
    expect(out).not.toContain("KEY");

    const before = readFileSync(file(), "utf8");
    const again = await run("init", ...asOptions({ ...RIGHT, name: "other.example" }), "--json");
    expect([again.code, JSON.parse(again.out).error]).toEqual([EXIT.already, "already"]);
    expect(readFileSync(file(), "utf8")).toBe(before);
    const forced = await run("init", ...asOptions({ ...RIGHT, name: "other.example", sell: true }), "--force");
    expect([forced.code, forced.out]).toEqual([EXIT.ok, expect.stringContaining("touchstone wallets new --blind 20")]);
    expect(loadConfig(file(), {})).toMatchObject({
      ...{ base_url: "https://other.example", sell: { network: "eip155:8453" } },
    });
    expect(statSync(file()).mode & 0o777).toBe(0o600);
  });

  test("the doctor accepts what it writes", async () => {
    const rpc = [chain.rpcUrl, chain.rpcUrl.replace("127.0.0.1", "localhost")];
    const answers = { ...RIGHT, rpc, control: [`${at}/a`, `${at}/b`], catalogue: [`${at}/c`] };
    expect(problemsOf(answers)).toEqual([]);
    writeFileSync(file(), JSON.stringify(settingsOf(answers)));
    // Control addresses and sellers of this test are on this machine.
    const here = { TOUCHSTONE_DATA_DIR: join(dir, "data"), TOUCHSTONE_ALLOW_LOOPBACK: "true" };
    const config = loadConfig(file(), here);
    new WalletFolder(join(dir, "data/wallets")).make(4);
    const found = await examine(config, "start");
    expect(found.filter(({ standing }) => standing === "broken")).toEqual([]);
    expect(found.filter(({ name }) => name.startsWith("network "))).not.toEqual([]);
  });

  test.each<[string, Answers, string, RegExp]>([
    ["a name with a blank", { name: "record example" }, "name", /such as https:/],
    ["another scheme", { name: "ftp://record.example" }, "name", /such as https:/],
    ["a chain that is no EVM chain", { network: "base" }, "network", /eip155:8453/],
    ["a chain whose USDC nobody knows", { network: "eip155:999999" }, "network", /USDC of eip155:999999/],
    ["a node that is no address", { rpc: ["node-a"] }, "rpc", /such as https:/],
    ["no node", { rpc: [] }, "rpc", /1 items|Too small/i],
    ["no control address", { control: [] }, "control", /nothing is paid/],
    ["a control address that is none", { control: ["one.example"] }, "control", /such as https:/],
    ["a catalogue that nobody knows", { catalogue: ["bazar"] }, "catalogue", /cdp-bazaar/],
  ])("%s: refused under the option's name, and nothing is written", async (_, wrong, option, says) => {
    const answers = { ...RIGHT, ...wrong };
    expect(problemsOf(answers)).toEqual([{ option, says: expect.stringMatching(says) }]);
  });

  test("nobody to ask: every option that is missing is named, and nothing is written", async () => {
    const { code, out, err } = await run("init", "--name", "record.example", "--json");
    expect([code, JSON.parse(out).error]).toEqual([EXIT.usage, "usage"]);
    for (const option of ["--network", "--rpc", "--control"]) expect(err).toContain(`${option}: is missing`);
    const wrong = await run("init", ...asOptions({ ...RIGHT, rpc: ["node-a"] }), "--json");
    expect([wrong.code, wrong.err]).toEqual([EXIT.usage, expect.stringContaining("--rpc: ")]);
    const nowhere = await run("--config", "no/such/folder/t.json", "init", ...asOptions(RIGHT));
    expect([nowhere.code, nowhere.err]).toEqual([EXIT.usage, expect.stringContaining("there is no folder")]);
    expect(existsSync(file())).toBe(false);
  });

  test.each(["https://a.example/k2", "https://a.example:8443/k2", "https://a.example./k2"])(
    "nodes of one host are no two voices: one is believed, and that is said (%s)",
    async (second) => {
      const rpc = ["https://a.example/k1", second];
      const { out } = await run("init", ...asOptions({ ...RIGHT, rpc }));
      expect(out).toContain("counts if one node reports it");
      expect(loadConfig(file(), {}).networks).toMatchObject([{ agree: 1 }]);
    },
  );

  test("on a terminal: what options leave unsaid is asked, and a wrong line is asked again", async () => {
    const command = [process.execPath, ...runs("touchstone.ts"), "init", "--name", "record.example"];
    const answers = [
      ...["base https://a.example", "eip155:8453 https://a.example https://b.example"],
      ...["https://one.example/ https://two.example/", "", "perhaps", "yes"],
    ];
    const typed = `${answers.join("\n")}\n`;
    const { out } = await ended("script", ["-qec", command.map((word) => `'${word}'`).join(" "), "/dev/null"], typed);
    expect(out).not.toContain("Host name or url at which others");
    expect(out).toContain("expected an EVM network such as eip155:8453");
    expect(out).toContain("  answer yes or no");
    expect(JSON.parse(readFileSync(file(), "utf8"))).toEqual({
      ...{ base_url: "https://record.example", catalogues: [], sell: { network: "eip155:8453" } },
      networks: [{ id: "eip155:8453", rpc_urls: ["https://a.example", "https://b.example"], agree: 2 }],
      control_urls: ["https://one.example/", "https://two.example/"],
    });
  });
});
