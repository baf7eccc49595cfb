import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openServing, type ServingTier } from "../../commands/serving-tier.ts";
import { systemClock } from "../../infra/clock.ts";
import { loadConfig } from "../../infra/config.ts";
import { knownUsdc } from "../../infra/rails/charge.ts";
import { createLocalWallets } from "../../infra/rails/wallets.ts";
import { assemble, type MachineRoles } from "../../pipelines/roles/assemble.ts";
import { ensureKeys } from "../../pipelines/roles/data-folder.ts";
import { openParts, type Parts } from "../../pipelines/roles/parts.ts";
import { MACHINE_JOBS } from "../../pipelines/roles/schedule.ts";
import type { CheckAnswer } from "../../serving/schemas/check.ts";

/** One ask from the question over HTTP to the handshake in the answer: every role as it runs, and a seller on a socket. */
let dir: string;
let seller: Server;
let parts: Parts;
let roles: MachineRoles;
let serving: ServingTier;
const probes: string[] = [];
const sellerUrl = (): string => `http://127.0.0.1:${(seller.address() as AddressInfo).port}`;

const offer = {
  ...{ scheme: "exact", network: "eip155:84532", amount: "10000", payTo: `0x${"11".repeat(20)}` },
  ...{
    asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
    maxTimeoutSeconds: 60,
    extra: { name: "USDC", version: "2" },
  },
};

const config = () =>
  loadConfig(undefined, {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_PORT: "0",
    TOUCHSTONE_ALLOW_LOOPBACK: "true",
    TOUCHSTONE_BASE_URL: "https://touchstone.test",
    // No payment is made here: nobody has to listen.
    TOUCHSTONE_CHAIN_RPC_URL: "http://127.0.0.1:9",
    TOUCHSTONE_LOG_LEVEL: "silent",
  });

async function up(): Promise<void> {
  parts = await openParts(config(), systemClock);
  const rpcUrl = parts.config.chain.rpc_url!;
  const wallets = createLocalWallets({ rpcUrl, seed: parts.secret, asset: knownUsdc("eip155:84532")!.address });
  roles = await assemble(parts, systemClock, { wallets, controlUrls: [] });
  serving = await openServing({ ...parts, answers: parts.keys.answers, ring: parts.keys.ring }, systemClock);
  // Until the first look every answer of the record is a 503.
  await serving.refresh();
}

async function down(): Promise<void> {
  await serving.close();
  await roles.close();
  await parts.close();
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "ask-"));
  seller = createServer((request, response) => {
    probes.push(`${request.method} ${request.url}`);
    if (request.url !== "/quote") return void response.writeHead(404).end();
    const terms = { x402Version: 2, resource: { url: `${sellerUrl()}/quote` }, accepts: [offer] };
    response.writeHead(402, { "payment-required": Buffer.from(JSON.stringify(terms)).toString("base64") }).end("{}");
  });
  await new Promise<void>((done) => seller.listen(0, "127.0.0.1", done));
  ensureKeys(dir, systemClock.now());
  await up();
});
afterAll(async () => {
  await down();
  seller.closeAllConnections();
  await new Promise((done) => seller.close(done));
  await rm(dir, { recursive: true, force: true });
});

const check = async (query: Record<string, string>): Promise<CheckAnswer> => {
  const response = await fetch(`${serving.url}/v1/check?${new URLSearchParams(query)}`);
  expect(response.status).toBe(200);
  return (await response.json()) as CheckAnswer;
};

/** The table's own jobs, in the order of their seconds. Each of them comes round every ten seconds. */
async function tenSeconds(): Promise<void> {
  const schedule = { ...parts, ...roles, clock: systemClock, catalogues: [] };
  for (const name of ["grade", "asks", "volatile"]) {
    const job = MACHINE_JOBS.find((one) => one.name === name)!;
    expect(job.cronTimes.split(" ")[0]).toMatch(/^(?:\*\/10|\d(?:,[1-5]\d){5})$/);
    await job.run(schedule);
  }
  await roles.pipeline.writeVolatile();
  await serving.refresh();
}

test("asked, probed within a minute, and the next check shows the handshake; a restart in between loses nothing", async () => {
  const url = `${sellerUrl()}/quote`;
  const first = await check({ url });
  expect(first).toMatchObject({ band: "UNRATED", matched: "none", queued: true });
  expect(first.next).toContain("Ask again in about an hour");
  // Killed before anybody looked: the ask is in the log.
  await down();
  await up();
  let answer = await check({ url, method: "GET" });
  for (let turn = 0; turn < 5 && answer.matched === "none"; turn++) {
    await tenSeconds();
    await roles.pipeline.waitUntilIdle();
    answer = await check({ url, pay_to: `0x${String(turn).repeat(40)}` });
  }
  expect(answer).toMatchObject({ matched: "exact", url, band: "UNRATED" });
  expect(answer).not.toHaveProperty("queued");
  expect(answer.observed).toMatchObject({ probes: 1 });
  expect(probes.filter((one) => one === "GET /quote")).toHaveLength(1);
  // Asked about again, and looked at by nobody: it is known.
  await check({ url: answer.capabilityId! });
  await tenSeconds();
  expect(probes.filter((one) => one === "GET /quote")).toHaveLength(1);
});

test("what is never fetched is not in line, and says why", async () => {
  const answer = await check({ url: "http://10.0.0.1/quote" });
  expect(answer).toMatchObject({ matched: "none", queued: false });
  expect(answer.next).toMatch(/^We never probe this address: /);
});
