import { execFile } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { readLedger } from "../../fixtures/market/ledger.ts";
import { createEvmRail } from "../../infra/rails/evm.ts";
import { createTempoRail } from "../../infra/rails/tempo.ts";
import { COSIGNATURE, formatVkey } from "../../infra/tree/note.ts";
import { ARCHIVE_SUBJECTS } from "../../pipelines/record/vocabulary.ts";
import { verifyCheck } from "../../serving/client/index.ts";
import type { CheckAnswer } from "../../serving/schemas/check.ts";
import type { ExposureFacts } from "../../serving/schemas/exposure.ts";
import { runs } from "../helpers/programs.ts";
import { unhurried } from "../helpers/unhurried.ts";
import type { Lived } from "./market-claims.ts";

const ROOT = resolve(import.meta.dirname, "../..");
/** What other people do with the service comes after the start. */
const SOON = { timeout: 500_000, interval: 1_000 };

/**
 * The demo as a visitor meets it: everything that docs/market.md sends them to is there, through the API alone, and the
 * commands of docs/buy.md buy from it, with what the chain settled.
 * @param lived the whole past, on whose folder the service runs at `lived.baseUrl` while these tests do
 * @param witnesses addresses of its two witnesses
 */
export function holdDemo(lived: Pick<Lived, "dir" | "baseUrl" | "record">, witnesses: readonly string[]): void {
  const base = lived.baseUrl;
  const at = (...names: string[]): string => join(lived.dir, ...names);
  const seller = (name: string) => lived.record.world.sellers.find((one) => one.name === name)!;
  const urlOf = (name: string): string => seller(name).urls[0]!;
  // biome-ignore lint/suspicious/noExplicitAny: answers of the API, each looked at by its test
  const get = async (path: string, headers: Record<string, string> = {}): Promise<any> =>
    (await unhurried(path.startsWith("http") ? path : base + path, { headers })).json();
  const check = (url: string): Promise<CheckAnswer> => get(`/v1/check?${new URLSearchParams({ url })}`);
  const people = () => get(lived.record.world.people!);

  /** `touchstone ARGS` beside the demo, as a person calls it. */
  async function touchstone(...args: string[]): Promise<{ code: number; out: string; err: string }> {
    const env = { PATH: process.env.PATH, TOUCHSTONE_DATA_DIR: lived.dir, TOUCHSTONE_BASE_URL: base };
    return promisify(execFile)(process.execPath, [...runs("touchstone.ts"), ...args], { cwd: ROOT, env }).then(
      ({ stdout, stderr }) => ({ code: 0, out: stdout, err: stderr }),
      ({ code, stdout, stderr }) => ({ code, out: stdout, err: stderr }),
    );
  }

  describe("where docs/market.md says", () => {
    test.each([
      ["dear", "A", 50_000],
      ["dearer", "B", 50_000],
    ] as const)("%s is dear enough for escrow, and has a letter", async (name, band, least) => {
      const answer = await check(urlOf(name));
      expect([name, answer.band]).toEqual([name, band]);
      expect(Number(answer.buy!.total) * 1e6).toBeGreaterThanOrEqual(least);
      const terms = await fetch(answer.buy!.url);
      const required = JSON.parse(Buffer.from(terms.headers.get("payment-required")!, "base64").toString("utf8"));
      expect(required.accepts.map(({ scheme }: { scheme: string }) => scheme)).toEqual(["exact", "auth-capture"]);
    });

    test("a thief that pays back, and one that does not", async () => {
      expect((await check(urlOf("refunder"))).flags).toContain("refunded");
      expect((await check(urlOf("thief"))).flags).toContain("took_the_money");
    });

    test("a template, and an address below it; a tool of an MCP server", async () => {
      const listed = await check(urlOf("capitals"));
      expect([listed.band, listed.tier, listed.matched]).toEqual(["B", "DELIVERY_VERIFIED", "exact"]);
      const below = await check(urlOf("capitals").replace(":country", "is"));
      expect([below.capabilityId, below.matched]).toEqual([listed.capabilityId, "path"]);
      const tool = await check(`${urlOf("mcp-paid")}#add`);
      expect([tool.band, tool.tier]).toEqual(["A", "OUTCOME_VERIFIED"]);
    });

    test("a seller on Tempo, whose money is on that chain alone, and why its calls are not sold", async () => {
      const { world } = lived.record;
      const { payTo, ledger } = seller("tempo");
      const [own, tempo] = [`eip155:${world.chainId}`, `eip155:${world.tempo!.chainId}`];
      const answer = await check(urlOf("tempo"));
      expect([answer.band, answer.tier]).toEqual(["B", "OUTCOME_VERIFIED"]);
      const { rpcUrl, asset } = world.tempo!;
      expect(answer.observed!.advertised).toEqual({ amount: "0.007000", asset, networks: [tempo] });
      expect([answer.buy, answer.not_bought]).toEqual([undefined, expect.stringContaining(`paid on ${own} here`)]);
      const via = await fetch(`${base}/v1/via/${answer.capabilityId}?a=103&b=9`);
      expect([via.status, ((await via.json()) as { detail: string }).detail]).toEqual([
        403,
        `${answer.not_bought} Nothing was bought.`,
      ]);
      const dependencies = ["tempo", "honest-v2"].map((name) => ({ url: urlOf(name), calls_per_month: 1_000 }));
      const asked = await unhurried(`${base}/v1/exposure`, { method: "POST", body: JSON.stringify({ dependencies }) });
      const { lines, totals } = (await asked.json()) as ExposureFacts;
      expect(lines.map(({ networks, monthly_spend }) => [networks, monthly_spend])).toEqual([
        [[tempo], "7.000000"],
        [[own], "10.000000"],
      ]);
      expect(totals.monthly_spend).toBe("17.000000");
      const onTempo = createTempoRail({ rpcUrl, asset, network: tempo, confirmations: 1 });
      const onOwn = createEvmRail({ rpcUrl: world.rpcUrl, asset: world.asset, network: own, confirmations: 1 });
      const paid = () => readLedger(ledger).filter(({ tx }) => tx !== undefined).length;
      expect(paid()).toBeGreaterThan(25);
      await expect.poll(async () => (await onTempo.balance(payTo)).value - 7_000n * BigInt(paid()), SOON).toBe(0n);
      expect((await onOwn.balance(payTo)).value).toBe(0n);
    });

    test("a correction of ours, and its withdrawal", async () => {
      const { capabilityId } = await check(urlOf("encoder"));
      await expect
        .poll(async () => (await get(`/v1/trust/${capabilityId}`)).corrections, SOON)
        .toMatchObject([{ fault: "misread_terms", says: expect.stringMatching(/taken back/) }]);
    });

    test("a signed dispute, its flag, and the re-test that its seller asked for", async () => {
      const { capabilityId } = await check(urlOf("honest-v1"));
      const { payTo } = seller("honest-v1");
      await expect
        .poll(async () => (await get(`/v1/trust/${capabilityId}`)).disputes, SOON)
        .toMatchObject([{ record_id: null, signature: expect.stringMatching(/^0x[0-9a-f]{130}$/) }]);
      const [dispute] = (await get(`/v1/trust/${capabilityId}`)).disputes;
      expect(dispute.pay_to.toLowerCase()).toBe(payTo);
      await expect.poll(async () => (await check(urlOf("honest-v1"))).flags, SOON).toContain("disputed");
      await expect.poll(async () => (await people()).retest, SOON).toMatchObject({ queued: true });
      const asked = Date.parse(dispute.at);
      const lastSeen = async () => Date.parse((await check(urlOf("honest-v1"))).observed!.lastSeen!);
      await expect.poll(lastSeen, SOON).toBeGreaterThan(asked);
    });

    test("a published call, whose bytes everybody can read", async () => {
      await expect.poll(async () => (await people()).order, SOON).toMatchObject({ order_id: expect.any(String) });
      const order = await get(`/v1/orders/${(await people()).order.order_id}`);
      expect(order).toMatchObject({ state: "settled", published: true });
      const kept = async () => (await fetch(`${base}/call/${order.legs[0].sha256}.zst`)).status;
      await expect.poll(kept, SOON).toBe(200);
    });

    test("a watcher, and a notice that its receiver took", async () => {
      await expect.poll(async () => (await people()).notices.length, SOON).toBeGreaterThan(0);
      const { watcher, notices } = await people();
      expect(notices[0]).toMatchObject({ asked: urlOf("honest-v1"), card: { signature: expect.any(String) } });
      const read = () => get(`/v1/watchers/${watcher.watcher_id}`, { authorization: `Bearer ${watcher.token}` });
      await expect.poll(async () => (await read()).deliveries.length, SOON).toBeGreaterThan(0);
    });

    test("archived rows in every subject, of two days", async () => {
      const { manifests } = await get("/v1/archive?limit=100");
      for (const subject of ARCHIVE_SUBJECTS) {
        // biome-ignore lint/suspicious/noExplicitAny: answers of the API
        const filled = manifests.filter((file: any) => file.subject === subject && file.rows > 0);
        expect([subject, filled.length]).toEqual([subject, 2]);
      }
    });
  });

  describe("witnesses that are not the log's", () => {
    const policyFile = () => at("witnesses", "policy");
    const audit = (policy: string) =>
      touchstone("audit", base, "--witness-policy", policy, "--endpoint", urlOf("honest-v2"));

    test("each answers its key, has cosigned the newest checkpoint, and the policy names both", async () => {
      const keys = await Promise.all(witnesses.map(async (url) => (await (await fetch(url)).text()).trim()));
      const policy = await readFile(policyFile(), "utf8");
      const checkpoint = await (await unhurried(`${base}/checkpoint`)).text();
      for (const [i, name] of ["north", "south"].entries()) {
        expect(policy).toContain(`witness demo-${name} ${keys[i]}\n`);
        expect(checkpoint).toContain(`\n\u2014 demo.example/${name} `);
      }
      expect(await (await unhurried(`${base}/status`)).text()).toContain("2 witnesses, all in time");
    });

    test("audit believes what both cosigned, and nothing below a policy that asks for a third", async () => {
      const ended = await audit(policyFile());
      expect(ended, ended.err).toMatchObject({ code: 0 });
      const policy = await readFile(policyFile(), "utf8");
      const { publicKey } = generateKeyPairSync("ed25519");
      const x = Buffer.from(publicKey.export({ format: "jwk" }).x!, "base64url");
      const third = formatVkey({ name: "third.example", publicKey: x }, COSIGNATURE);
      const more = policy.replace("group both all", `witness third ${third}\ngroup both all third`);
      await writeFile(at("three"), more);
      const refused = await audit(at("three"));
      expect([refused.code, refused.out]).toEqual([24, ""]);
      expect(refused.err).toMatch(/below the quorum both: no cosignature of third/);
    });
  });

  describe("the commands of docs/buy.md", () => {
    test("buy after delivery: the answer on stdout, and the signed order in a file", async () => {
      const file = at("answer.json");
      const args = ["buy", urlOf("honest-v2"), "--input", '{"a":20,"b":22}', "--yes", "--max-price", "0.05"];
      const shown = await touchstone(...args, "--save", file);
      expect([shown.code, shown.out], shown.err).toEqual([0, ""]);
      expect(await readFile(file, "utf8")).toBe('{"sum":42}');
      const order = JSON.parse(await readFile(`${file}.order.json`, "utf8"));
      expect(order).toMatchObject({ state: "settled", scheme: "exact", charged: { amount: "0.012000" } });
      expect(await verifyCheck(await get("/.well-known/svc-keys.json"), order)).toEqual({ ok: true });
    });

    test("buy with the money in escrow", async () => {
      const file = at("escrow.json");
      const args = ["buy", urlOf("dear"), "--input", '{"a":1,"b":2}', "--yes", "--escrow", "--save", file];
      expect(await touchstone(...args)).toMatchObject({ code: 0 });
      const order = JSON.parse(await readFile(`${file}.order.json`, "utf8"));
      expect(order).toMatchObject({ state: "settled", scheme: "auth-capture", hold: { tx: expect.any(String) } });
    });

    test("each cause has its exit code", async () => {
      const codes: [string[], number][] = [
        [["check", urlOf("honest-v2")], 0],
        [["check", urlOf("thief")], 34],
        [["check", "http://127.0.0.1:1/nobody"], 32],
        [["buy", urlOf("thief"), "--yes"], 34],
        [["buy", urlOf("dead"), "--yes"], 32],
        [["buy", urlOf("honest-v2"), "--yes", "--max-price", "0.001"], 33],
        // A seller of sums refuses a call without numbers: nothing passed.
        [["buy", urlOf("honest-v2"), "--yes", "--save", at("none")], 35],
        [["buy", urlOf("honest-v2")], 2],
        [["check", urlOf("honest-v2"), "--service", "http://127.0.0.1:1"], 17],
      ];
      for (const [args, code] of codes) {
        const { code: ended, err } = await touchstone(...args);
        expect([args, ended], err).toEqual([args, code]);
      }
    });
  });
}
