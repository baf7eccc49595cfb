import { randomBytes } from "node:crypto";
import { chmod, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { buyCommand } from "../../commands/buy.ts";
import { checkCommand } from "../../commands/check.ts";
import { exitNameOf } from "../../commands/exit.ts";
import { resumeCommand } from "../../commands/resume.ts";
import type { OptionsOf } from "../../commands/table.ts";
import { type LocalChain, startLocalChain } from "../../fixtures/chain/local-chain.ts";
import { loadConfig } from "../../infra/config.ts";
import { createFacilitator, type Facilitator } from "../../infra/rails/facilitator.ts";
import { verifyCheck } from "../../serving/client/index.ts";
import { fundedKey } from "../helpers/client.ts";
import { makeDemoFolder } from "../helpers/demo-folder.ts";
import { PublicRecord } from "../helpers/public-record.ts";
import { ORDER, SELLER, ViaServer } from "../helpers/via-server.ts";

/** The commands of a person who buys, with the official client and real settlement on a local chain. */
let chain: LocalChain;
let facilitator: Facilitator;
let record: PublicRecord;
let via: ViaServer;
let dir: string;
const said = { out: "", err: "" };

beforeAll(async () => {
  chain = await startLocalChain();
  facilitator = createFacilitator({ ...chain, sender: `0x${randomBytes(32).toString("hex")}` });
  await chain.giveGas(facilitator.address);
  record = await PublicRecord.open();
  for (const [stream, name] of [
    [process.stdout, "out"],
    [process.stderr, "err"],
  ] as const)
    vi.spyOn(stream, "write").mockImplementation((text) => {
      said[name] += String(text);
      return true;
    });
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
  Object.assign(said, { out: "", err: "" });
});
afterEach(async () => {
  await via.close();
  await rm(dir, { recursive: true });
});

const config = () => loadConfig(undefined, { TOUCHSTONE_DATA_DIR: dir });
const saved = () => join(dir, "answer");
const buy = (options: OptionsOf<"buy"> = {}, url = `${SELLER}?a=20`) =>
  buyCommand(config(), url, { service: via.url, yes: true, input: '{"b":22}', save: saved(), ...options });
const causeOf = async (work: Promise<void>): Promise<string> =>
  work.then(
    () => "ok",
    (error: unknown) => exitNameOf(error),
  );

describe("touchstone buy", () => {
  test("from the demo's purse: the check, the answer, and the signed order beside it", async () => {
    await buy();
    expect(await readFile(saved(), "utf8")).toBe('{"sum":42}');
    const order = JSON.parse(await readFile(`${saved()}.order.json`, "utf8"));
    expect(order).toMatchObject({ order_id: ORDER, state: "settled" });
    expect(await verifyCheck(record.jwks, order)).toEqual({ ok: true });
    expect(said.err).toMatch(/B {2}https:\/\/seller\.example\/sum.*0\.020000 \+ 0\.002000 fee = 0\.022000 USDC/s);
    expect(via.settlements).toHaveLength(1);
    expect(via.calls.map(({ url, body }) => [url.split("?")[1], body])).toEqual([
      ["a=20", '{"b":22}'],
      ["a=20", '{"b":22}'],
    ]);
  });

  test("with a key file of one's own, and JSON for scripts", async () => {
    const key = join(dir, "buyer.key");
    await writeFile(key, await fundedKey(chain), { mode: 0o600 });
    await rm(join(dir, "market"), { recursive: true });
    await buy({ key, json: true });
    const facts = JSON.parse(said.out);
    expect(facts).toMatchObject({ outcome: "delivered", order: ORDER, answer: { status: 200, text: '{"sum":42}' } });
    expect(facts.receipt.transaction).toBe(via.settlements[0]);
    await chmod(key, 0o644);
    expect(await causeOf(buy({ key, save: join(dir, "other") }))).toBe("keys");
    expect(via.settlements).toHaveLength(1);
  });

  test.each<[string, () => void, OptionsOf<"buy">, string]>([
    ["the answer does not pass", () => (via.passes = false), {}, "undelivered"],
    ["it costs more than the most", () => undefined, { maxPrice: "0.02" }, "dear"],
    ["it costs more at the moment of the call", () => (via.amount = "22001"), {}, "dear"],
    ["it is not sold", () => (via.isForSale = false), {}, "refused"],
    ["nobody can be asked", () => undefined, { yes: false }, "usage"],
    ["the most is no sum", () => undefined, { maxPrice: "1e3" }, "usage"],
    ["the input is no object", () => undefined, { input: "[1]" }, "usage"],
    ["another integer would be sent", () => undefined, { input: '{"b":9007199254740993}' }, "usage"],
    ["no number would be sent", () => undefined, { input: '{"b":[1e400]}' }, "usage"],
    ["the service is not there", () => undefined, { service: "http://127.0.0.1:1" }, "unreachable"],
    ["the service is named without TLS", () => undefined, { service: "http://seller.example" }, "usage"],
    ["the file is there already", () => undefined, { save: "package.json" }, "already"],
    ["the key file is missing", () => undefined, { key: "/nowhere/key" }, "keys"],
  ])("where %s, nothing is charged, and the exit code tells why", async (_, arrange, options, name) => {
    arrange();
    expect(await causeOf(buy(options))).toBe(name);
    expect(via.settlements).toEqual([]);
    expect(said.out).toBe("");
  });

  test("without a purse and without a key nothing is signed", async () => {
    await rm(join(dir, "market"), { recursive: true });
    expect(await causeOf(buy())).toBe("wallet");
    expect(via.calls).toEqual([]);
  });

  test("a file of an order that is there already is refused before anything is asked", async () => {
    await writeFile(`${saved()}.order.json`, "{}");
    expect(await causeOf(buy())).toBe("already");
    expect(via.calls).toEqual([]);
  });

  test("a price above the one that was checked is paid up to the most that was named", async () => {
    via.amount = "25000";
    expect(await causeOf(buy({ maxPrice: "0.025" }))).toBe("ok");
    expect(via.settlements).toHaveLength(1);
  });

  test("an order that was changed after it was signed is told apart, and kept for who looks", async () => {
    via.forged = { state: "released" };
    expect(await causeOf(buy())).toBe("tampered");
    expect(JSON.parse(await readFile(`${saved()}.order.json`, "utf8")).state).toBe("released");
    expect(await readFile(saved(), "utf8")).toBe('{"sum":42}');
  });
});

describe("touchstone resume", () => {
  const kept = () => `${saved()}.payment.json`;
  const resume = (options: OptionsOf<"resume"> = {}) => resumeCommand(config(), kept(), options);
  /** A purchase whose answer does not arrive, at the end of all patience: charged, and nobody was told. */
  async function open(fault: "lost" | "silent" = "lost"): Promise<void> {
    const now = performance.now.bind(performance);
    via.faults = [fault];
    via.at = (step) => {
      if (step === "settled") vi.spyOn(performance, "now").mockImplementation(() => now() + 600_000);
    };
    expect(await causeOf(buy())).toBe("open");
    vi.mocked(performance.now).mockRestore();
    via.at = () => {};
  }

  test.each(["lost", "silent"] as const)(
    "the same payment once more (%s): the same order and its answer, charged once, and nothing is left behind",
    async (fault) => {
      await open(fault);
      expect(via.settlements).toHaveLength(1);
      expect((await stat(kept())).mode & 0o777).toBe(0o600);
      // Another purchase beside it would be a second order.
      expect(await causeOf(buy())).toBe("already");
      await resume({ json: true });
      expect(JSON.parse(said.out)).toMatchObject({ outcome: "delivered", order: ORDER, check: null });
      expect(await readFile(saved(), "utf8")).toBe('{"sum":42}');
      expect(JSON.parse(await readFile(`${saved()}.order.json`, "utf8")).order_id).toBe(ORDER);
      expect(via.settlements).toHaveLength(1);
      expect((await readdir(dir)).sort()).toEqual(["answer", "answer.order.json", "market"]);
      expect(await causeOf(resume())).toBe("unreadable");
    },
  );

  test("a purchase that ends leaves no payment, however it ends", async () => {
    await buy();
    via.passes = false;
    expect(await causeOf(buy({ save: join(dir, "other") }))).toBe("undelivered");
    expect((await readdir(dir)).filter((name) => name.includes("payment"))).toEqual([]);
  });

  test("an order that cannot be read keeps the payment: the answer was given, and resume brings the order", async () => {
    via.at = (step) => {
      if (step === "order") throw new Error("away");
    };
    expect(await causeOf(buy())).toBe("unreachable");
    expect(await readFile(saved(), "utf8")).toBe('{"sum":42}');
    expect(said.err + String(await readFile(kept(), "utf8"))).toContain("touchstone.payment.v1");
    via.at = () => {};
    expect(await causeOf(resume())).toBe("ok");
    expect(JSON.parse(await readFile(`${saved()}.order.json`, "utf8")).order_id).toBe(ORDER);
    expect(via.settlements).toHaveLength(1);
  });

  test("an order that cannot be written keeps the payment, and resume brings the order once there is room", async () => {
    await open();
    const foreign = `${saved()}.order.json`;
    await writeFile(foreign, '{"order_id":"ord_of_somebody_else"}');
    expect(await causeOf(resume())).toBe("already");
    expect(await readFile(kept(), "utf8")).toContain("touchstone.payment.v1");
    await rm(foreign);
    expect(await causeOf(resume())).toBe("ok");
    expect(JSON.parse(await readFile(foreign, "utf8")).order_id).toBe(ORDER);
    expect((await readdir(dir)).filter((name) => name.includes("payment"))).toEqual([]);
    expect(via.settlements).toHaveLength(1);
  });

  test("an order whose answer is gone is told as charged, and its order is kept", async () => {
    await open();
    via.faults = ["lost", "expired"];
    expect(await causeOf(resume())).toBe("failed");
    expect(JSON.parse(await readFile(`${saved()}.order.json`, "utf8")).order_id).toBe(ORDER);
  });

  test("what is no payment that was kept is not sent", async () => {
    await writeFile(kept(), '{"schema":"touchstone.payment.v1"}');
    expect(await causeOf(resume())).toBe("unreadable");
    expect(via.calls).toEqual([]);
  });
});

describe("touchstone check", () => {
  test("the letter with its reason and what a call costs; the same as JSON", async () => {
    await checkCommand(config(), SELLER, { service: via.url });
    expect(said.out).toMatch(/^B {2}https:\/\/seller\.example\/sum {2}\(cap_.*B: it delivers\..*= 0\.022000 USDC/s);
    said.out = "";
    await checkCommand(config(), SELLER, { service: via.url, json: true });
    expect(JSON.parse(said.out)).toMatchObject({ band: "B", concerns: [] });
  });

  test("an answer that was signed long ago is not believed", async () => {
    via.answeredAt = () => "2026-11-21T12:00:00.000Z";
    expect(await causeOf(checkCommand(config(), SELLER, { service: via.url }))).toBe("stale");
    expect(said.out).toBe("");
  });
});
