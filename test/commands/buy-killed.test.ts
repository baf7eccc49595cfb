import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { resumeCommand } from "../../commands/resume.ts";
import { type LocalChain, startLocalChain } from "../../fixtures/chain/local-chain.ts";
import { loadConfig } from "../../infra/config.ts";
import { createFacilitator, type Facilitator } from "../../infra/rails/facilitator.ts";
import { makeDemoFolder } from "../helpers/demo-folder.ts";
import { runs } from "../helpers/programs.ts";
import { PublicRecord } from "../helpers/public-record.ts";
import { ORDER, SELLER, ViaServer } from "../helpers/via-server.ts";

/** `touchstone buy` as a process that is killed at each step: what it left is enough to end the purchase, for one charge. */
let chain: LocalChain;
let facilitator: Facilitator;
let record: PublicRecord;
let via: ViaServer;
let dir: string;
const program = runs("touchstone.ts");

beforeAll(async () => {
  chain = await startLocalChain();
  facilitator = createFacilitator({ ...chain, sender: `0x${randomBytes(32).toString("hex")}` });
  await chain.giveGas(facilitator.address);
  record = await PublicRecord.open();
  vi.spyOn(process.stdout, "write").mockReturnValue(true);
  vi.spyOn(process.stderr, "write").mockReturnValue(true);
});
afterAll(async () => {
  vi.restoreAllMocks();
  await record?.close();
  await chain?.stop();
});
beforeEach(async () => {
  via = await ViaServer.open(record, facilitator);
  via.answeredAt = () => new Date().toISOString();
  dir = await makeDemoFolder(chain);
});
afterEach(async () => {
  await via.close();
  await rm(dir, { recursive: true, force: true });
});

const saved = () => join(dir, "answer");
const kept = () => `${saved()}.payment.json`;
const resume = () => resumeCommand(loadConfig(undefined, { TOUCHSTONE_DATA_DIR: dir }), kept(), {});

/** Runs the command until something is there, and kills it then. */
async function killedWhen(step: "price" | "paid" | "settled" | "order" | (() => boolean)): Promise<void> {
  const args = ["buy", `${SELLER}?a=20`, "--service", via.url, "--yes", "--input", '{"b":22}', "--save", saved()];
  const child: ChildProcess = spawn(process.execPath, [...program, ...args], {
    stdio: "ignore",
    env: { ...process.env, TOUCHSTONE_DATA_DIR: dir },
  });
  const ended = new Promise<void>((done) => child.once("exit", () => done()));
  via.at = async (at) => {
    if (at !== step) return;
    child.kill("SIGKILL");
    await ended;
  };
  while (typeof step === "function" && !step() && child.exitCode === null)
    await new Promise((turn) => setImmediate(turn));
  if (typeof step === "function") child.kill("SIGKILL");
  await ended;
  via.at = () => {};
}

test("before a payment was signed: nothing is kept, and nothing was sent", async () => {
  await killedWhen("price");
  expect([existsSync(kept()), via.settlements]).toEqual([false, []]);
});

test.each<[string, Parameters<typeof killedWhen>[0]]>([
  ["when the payment is kept, and maybe sent", () => existsSync(kept())],
  ["when the service has the payment", "paid"],
  ["when it is charged, and the answer is on its way", "settled"],
  ["when the answer is there, and its order is not", "order"],
])("%s: resume ends the purchase, charged once", async (_, step) => {
  await killedWhen(step);
  expect(existsSync(kept())).toBe(true);
  await resume();
  expect(await readFile(saved(), "utf8")).toBe('{"sum":42}');
  expect(JSON.parse(await readFile(`${saved()}.order.json`, "utf8"))).toMatchObject({ order_id: ORDER });
  expect([via.settlements.length, existsSync(kept())]).toEqual([1, false]);
});

test("when the order is kept, and the payment maybe still is", async () => {
  await killedWhen(() => existsSync(`${saved()}.order.json`));
  if (existsSync(kept())) await resume();
  expect(JSON.parse(await readFile(`${saved()}.order.json`, "utf8"))).toMatchObject({ order_id: ORDER });
  expect([via.settlements.length, existsSync(kept())]).toEqual([1, false]);
});
