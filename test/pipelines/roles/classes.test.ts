import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type LocalChain, startLocalChain } from "../../../fixtures/chain/local-chain.ts";
import { FixedClock, systemClock } from "../../../infra/clock.ts";
import { loadConfig } from "../../../infra/config.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { configuredNetworks } from "../../../infra/rails/networks.ts";
import { createReader } from "../../../infra/rails/rpc.ts";
import { importRegister, registerPath } from "../../../pipelines/register/import.ts";
import { faultOfLei } from "../../../pipelines/register/score.ts";
import { openClasses, openTruths } from "../../../pipelines/roles/classes.ts";
import { answer } from "../1-observe/world.ts";

const seed = (n: number) => Buffer.alloc(32, n);
const pages = Buffer.alloc(32, 9);
const clock = new FixedClock("2026-11-02T12:00:00.000Z");
const dir = mkdtempSync(join(tmpdir(), "classes-of-"));
let chain: LocalChain;
beforeAll(async () => {
  chain = await startLocalChain({});
});
afterAll(async () => {
  await chain.stop();
  rmSync(dir, { recursive: true, force: true });
});

/** The sources of a machine with these settings, whose way out answers as said. */
function sourcesOf(settings: Record<string, string>, egress: Partial<Egress> = {}) {
  const config = loadConfig(undefined, {}, { TOUCHSTONE_DATA_DIR: dir, ...settings });
  const out = { validate: () => ({ ok: true }), fetch: async () => answer(500, {}), ...egress } as unknown as Egress;
  const [network] = configuredNetworks({ networks: [], chain: { ...config.chain, rpc_url: chain.rpcUrl } });
  return openClasses({ config, egress: out, pages }, clock, { network: network! });
}
const closed = (text: string) => ({ ok: false as const, reason: "host" as const, says: text });

describe("what questions are made of on this machine", () => {
  test("pages are planted at our own address, and nowhere when nobody else could fetch it", () => {
    const { classParts: of } = sourcesOf({ TOUCHSTONE_BASE_URL: "https://t.example/" });
    expect(of.sources!.page!(seed(1)).url).toMatch(/^https:\/\/t\.example\/p\/[0-9a-f]{40}$/);
    const inside = sourcesOf({}, { validate: (url) => closed(url) });
    expect(inside.classParts.sources!.page).toBeUndefined();
  });

  test("blocks are final ones of our own node, and there is none before the first final one", async () => {
    const ask = sourcesOf({}).classParts.sources!.block!;
    const rpc = async (method: string, params: unknown[] = []) => {
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
      const response = await fetch(chain.rpcUrl, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body,
      });
      return ((await response.json()) as { result: Record<string, string> }).result;
    };
    expect(await ask(seed(1))).toBeNull();
    await rpc("anvil_mine", ["0x96"]);
    const final = Number((await rpc("eth_getBlockByNumber", ["finalized", false])).number);
    const heights = new Set<number>();
    for (let n = 1; n <= 5; n++) {
      const block = (await ask(seed(n)))!;
      expect(block.number).toBeGreaterThan(0);
      expect(block.number).toBeLessThanOrEqual(final);
      const said = await rpc("eth_getBlockByNumber", [`0x${block.number.toString(16)}`, false]);
      expect(block).toEqual({
        ...{ network: "eip155:84532", number: block.number, hash: said.hash, time: Number(said.timestamp) },
      });
      heights.add(block.number);
    }
    expect(heights.size).toBeGreaterThan(1);
  });

  test("one node that lies of a block is outvoted, or no block is asked about: both for questions and for buyers' answers", async () => {
    const own = await startLocalChain({});
    const liar = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const headers = { "content-type": "application/json" };
      const body = Buffer.concat(chunks);
      const answered = await fetch(own.rpcUrl, { method: "POST", headers, body });
      const { result, ...rest } = (await answered.json()) as { result: Record<string, string> };
      // Another hash of each block, and a final block that is beyond the newest.
      const isTagged = body.includes('"finalized"');
      const lie = { ...result, hash: `0x${"ab".repeat(32)}`, ...(isTagged ? { number: "0xfffff" } : {}) };
      response.writeHead(200, headers).end(JSON.stringify({ ...rest, result: lie }));
    });
    await new Promise<void>((done) => liar.listen(0, "127.0.0.1", done));
    const lies = `http://127.0.0.1:${(liar.address() as AddressInfo).port}`;
    const reader = createReader(own.rpcUrl);
    await reader.request({ method: "anvil_mine", params: ["0x96"] } as never);
    const config = loadConfig(undefined, {}, { TOUCHSTONE_DATA_DIR: dir });
    const [one] = configuredNetworks({ networks: [], chain: { ...config.chain, rpc_url: own.rpcUrl } });
    const egress = { validate: () => closed("nobody") } as unknown as Egress;
    const sourcesOver = (rpcUrls: string[], agree: number) => {
      const network = { ...one!, rpcUrls, agree };
      const questions = openClasses({ config, egress, pages }, clock, { network });
      const truths = openTruths({ config, egress }, clock, { network, pages });
      for (const opened of [questions, truths]) opened.close();
      return { ask: questions.classParts.sources!.block!, read: truths.truthParts.sources.block! };
    };
    const outvoted = sourcesOver([lies, own.rpcUrl, own.rpcUrl], 2);
    const block = (await outvoted.ask(seed(1)))!;
    const { hash } = await reader.getBlock({ blockNumber: BigInt(block.number) });
    expect(block.hash).toBe(hash);
    expect(await outvoted.read(block.number)).toEqual(block);
    expect(await outvoted.read(0xffffe)).toBeNull();
    const atOdds = sourcesOver([lies, own.rpcUrl], 2);
    await expect(atOdds.ask(seed(1))).rejects.toMatchObject({ name: "ChainDown" });
    await expect(atOdds.read(block.number)).rejects.toMatchObject({ name: "ChainDown" });
    liar.close();
    await own.stop();
  });

  test("prices are asked of the reference that is named, and of nobody where there is none", async () => {
    const asked: string[] = [];
    const fetch = async ({ url }: { url: string }) => {
      asked.push(url);
      return answer(200, { data: { amount: "63000.5" } });
    };
    const reference = { url: "https://ref.example/{base}-{quote}/spot", answer: "/data/amount" };
    const named = sourcesOf({ TOUCHSTONE_PRICE_REFERENCE: JSON.stringify(reference) }, { fetch } as Partial<Egress>);
    expect(await named.classParts.sources!.price!("BTC", "USD")).toBe(63_000.5);
    expect(asked).toEqual(["https://ref.example/BTC-USD/spot"]);
    expect(sourcesOf({}).classParts.sources!.price).toBeUndefined();
    const down = sourcesOf({ TOUCHSTONE_PRICE_REFERENCE: JSON.stringify(reference) });
    expect(await down.classParts.sources!.price!("BTC", "USD")).toBeNull();
    const wrong = JSON.stringify({ ...reference, answer: "amount" });
    expect(() => sourcesOf({ TOUCHSTONE_PRICE_REFERENCE: wrong })).toThrow(/price_reference\.answer/);
  });

  test("companies are asked for where a register was imported, and nobody is where none was", async () => {
    const without = sourcesOf({});
    expect(await without.classParts.sources!.company!(seed(1))).toBeNull();
    without.close();
    const source = resolve("fixtures/register/golden-copy.csv");
    await importRegister({ source, to: registerPath(dir), clock: systemClock });
    const { classParts: of, close } = sourcesOf({});
    const drawn = await Promise.all([1, 60, 120, 200, 255].map((n) => of.sources!.company!(seed(n))));
    close();
    for (const row of drawn) {
      expect(faultOfLei(row!.lei)).toBeNull();
      expect(row!.name.length).toBeGreaterThan(1);
    }
    expect(new Set(drawn.map((row) => row!.lei)).size).toBeGreaterThan(1);
  });

  test("a file of classes that is wrong ends the start", () => {
    const path = join(dir, "classes.json");
    writeFileSync(path, JSON.stringify({ version: 1, mappings: [{ match: {}, class: "encodings", input: {} }] }));
    expect(() => sourcesOf({ TOUCHSTONE_CLASSES_FILE: path })).toThrow(/\/mappings\/0/);
  });
});
