import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { decodePaymentSignatureHeader } from "@x402/core/http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sha256hex } from "../../infra/canonical.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { LogTail } from "../../infra/log/tail.ts";
import { ESCROW } from "../../infra/rails/escrow-terms.ts";
import { createEvmRail } from "../../infra/rails/evm.ts";
import type { Rail, Settlement } from "../../infra/rails/rails.ts";
import { createReader } from "../../infra/rails/rpc.ts";
import { isClosed, type Order } from "../../pipelines/orders/order.ts";
import { OrderTable } from "../../pipelines/orders/order-table.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { payBy } from "../../serving/client/index.ts";
import { marketBeside, type OfficialBuyer, officialBuyer, type SoldSpec } from "../helpers/buying.ts";
import { dearSeller } from "../helpers/dear-seller.ts";
import { drawn, SEED } from "../helpers/drawn.ts";
import { touchstone } from "../helpers/processes.ts";
import { runs } from "../helpers/programs.ts";
import { capOf } from "../helpers/public-record.ts";
import type { SellingProcess } from "../helpers/selling-process.ts";

/**
 * A selling service is killed from outside, with its whole process group, while buyers with the official client buy of
 * honest sellers and of thieves, into escrow and without, and send a payment whose answer was lost again. The chain
 * and the sellers live on. What the buyers were told, and the chain, say in the end what is right.
 */
const KILLS = Number(process.env.KILLS ?? 50);
const ROOT = resolve(import.meta.dirname, "../..");
const PARTITIONS = 2;
const random = drawn(SEED);
/**
 * When one is killed: some while they open the log and take over what the one before left, most of them among calls
 * under way, so many answers after their start however fast the machine is.
 */
const moment = () =>
  random() < 0.2 ? { ms: random() * 800 } : { answers: Math.floor(random() * 8), ms: random() ** 2 * 300 };
/** Answers of all services so far. */
let answered = 0;

type Official = OfficialBuyer & { had: bigint; scheme: "exact" | "auth-capture" };
/** Everything that a buyer was told of one payment. */
interface Told {
  buyer: Official;
  spec: SoldSpec;
  header: string;
  nonce: string;
  totalMicro: bigint;
  /** `order status sha256` of each answer that names an order, in their order. */
  answers: string[];
  status: number;
  body: string;
}

let dir: string;
let world: Awaited<ReturnType<typeof marketBeside>>;
let seller: Awaited<ReturnType<typeof dearSeller>>;
let rail: Rail;
let specs: SoldSpec[];
let orders: Order[];
const told = new Map<string, Told>();
let lostAnswers = 0;
const signals: (string | null)[] = [];

/** Where the service is now; null while there is none. */
let serving: string | null = null;

/** A service that waits for its turn, and its lines. */
function standby() {
  const child = spawn(process.execPath, [...runs("test/helpers/selling-process.ts")], {
    ...{ cwd: ROOT, detached: true, stdio: ["pipe", "pipe", "inherit"] },
    env: { ...process.env, TMPDIR: join(dir, "tmp") },
  });
  child.stdin!.on("error", () => {});
  const lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]();
  const ended = new Promise<string | null>((done) => child.once("exit", (_, signal) => done(signal)));
  return { child, ended, line: async () => (await lines.next()).value as string | undefined };
}
type Standby = ReturnType<typeof standby>;

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

/** The service's own answer to a request, however often the service dies over it. */
async function stubborn(request: Request): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  const { method, headers } = request;
  const body = method === "POST" ? await request.clone().arrayBuffer() : null;
  for (;;) {
    while (serving === null) await pause(10);
    const address = serving;
    try {
      const answer = await fetch(`${address}${pathname}${search}`, {
        ...{ method, headers, body, signal: AbortSignal.timeout(60_000) },
      });
      const bytes = await answer.arrayBuffer();
      answered++;
      if (![202, 429, 503].includes(answer.status)) return new Response(bytes, answer);
    } catch {
      if (request.headers.has("payment-signature")) lostAnswers++;
    }
    await pause(30);
  }
}

/** The same, with what a paying buyer was told written down. */
const noting =
  (buyer: Official, spec: SoldSpec): typeof fetch =>
  async (input, init) => {
    const request = new Request(input, init);
    const answer = await stubborn(request);
    const header = request.headers.get("payment-signature");
    if (header === null) return answer;
    const body = await answer.clone().text();
    const { payload, accepted } = decodePaymentSignatureHeader(header);
    const { nonce } = payload.authorization as { nonce: string };
    const first = { buyer, spec, header, nonce, totalMicro: BigInt(accepted.amount), answers: [] };
    const one: Told = { ...(told.get(nonce) ?? first), status: answer.status, body };
    const order = answer.headers.get("touchstone-order");
    if (order) one.answers.push(`${order} ${answer.status} ${sha256hex(Buffer.from(body))}`);
    told.set(nonce, one);
    return answer;
  };

const viaOf = (spec: SoldSpec): string => `http://service/v1/via/${capOf(spec)}${spec.tool ? "" : "?a=20&b=22"}`;
const asked = (spec: SoldSpec, headers: Record<string, string>): RequestInit => ({
  headers,
  ...(spec.tool ? { method: "POST", body: '{"a":20,"b":22}' } : {}),
});
const again = (one: Told) =>
  noting(one.buyer, one.spec)(viaOf(one.spec), asked(one.spec, { "payment-signature": one.header }));

/** Buys until it is told to stop, and now and then asks once more for what it had. */
async function shops(buyer: Official, ofWhom: () => SoldSpec, stop: AbortSignal): Promise<void> {
  while (!stop.aborted) {
    const spec = ofWhom();
    const headers: Record<string, string> = random() < 0.3 ? { "touchstone-publish": "true" } : {};
    await buyer.over(noting(buyer, spec))(viaOf(spec), asked(spec, headers));
    const before = [...told.values()].filter((one) => one.buyer === buyer && one.answers.length > 0);
    if (before.length > 0 && random() < 0.5) await again(before[Math.floor(random() * before.length)]!);
  }
}

/** If what was bought and lost so far is worth a look at what the kills did to it. */
function isEnough(): boolean {
  const payments = [...told.values()];
  const delivered = payments.filter(({ status }) => status === 200);
  const inEscrow = payments.filter(({ buyer }) => buyer.scheme === "auth-capture");
  return [lostAnswers, delivered.length].every((many) => many > KILLS / 2) && inEscrow.length > KILLS / 12;
}

/** Kills one service after the other, until it is enough. @returns the one that lives on */
async function killing(): Promise<Standby> {
  const parts: SellingProcess = { dir, world, specs };
  let next = standby();
  for (let kill = 0; ; kill++) {
    const one = next;
    expect(await one.line()).toBe("ready");
    one.child.stdin!.write(`${JSON.stringify(parts)}\n`);
    const opened = one.line().then((address) => {
      serving = address ?? null;
    });
    if (kill === 3 * KILLS || (kill >= KILLS && isEnough())) {
      await opened;
      return one;
    }
    next = standby();
    const at = moment();
    if (at.answers !== undefined) {
      await opened;
      for (const from = answered; answered < from + at.answers; ) await pause(5);
    }
    await pause(at.ms);
    process.kill(-one.child.pid!, "SIGKILL");
    signals.push(await one.ended);
    await opened;
    serving = null;
  }
}

/** Whatever was signed so far can move no money any more. */
async function timePasses(): Promise<void> {
  const { request } = createReader(world.rpcUrl);
  await request({ method: "evm_increaseTime", params: [2_500] } as never);
  await request({ method: "evm_mine", params: [] } as never);
}

/** Until nothing of an order can move money any more, and none of it comes back. */
async function ending({ child, line }: Standby): Promise<void> {
  await timePasses();
  child.stdin!.write("close\n");
  expect(await line()).toBe("closed");
}

async function tableOf(): Promise<OrderTable> {
  const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS });
  const table = new OrderTable(Number.POSITIVE_INFINITY);
  const tail = new LogTail(log, "orders", (record) => table.apply(record));
  await tail.catchUp();
  tail.close();
  await log.close();
  return table;
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "buying-killed-"));
  await mkdir(join(dir, "tmp"));
  world = await marketBeside();
  seller = await dearSeller(world);
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
  const ofMarket = ["honest-v2", "thief"].map((name): SoldSpec => {
    const { urls, payTo } = world.sellers.find((one) => one.name === name)!;
    return { url: urls[0]!, payTo, price: "0.010000" };
  });
  const server = world.sellers.find(({ name }) => name === "mcp-paid")!;
  const mcp: SoldSpec = {
    ...{ url: server.urls[0]!, method: "POST", tool: "add", payTo: server.payTo, price: "0.007000" },
  };
  const honest = [
    ofMarket[0]!,
    mcp,
    ...[10_000, 46_000, 50_000].map((amount) => seller.spec(amount, "honest", `h${amount}`)),
  ];
  // Nobody is bought from again after a theft: each of them is a thief once.
  const thieves = Array.from({ length: 40 }, (_, n) => seller.spec(n % 2 ? 46_000 : 10_000, "thief", `t${n}`));
  specs = [...honest, ...thieves, ofMarket[1]!];
  const left = [ofMarket[1]!, ...thieves];
  // Each sixth purchase is of the tool: by luck alone a short draw bought it once.
  let purchases = 0;
  const ofWhom = () =>
    purchases++ % 6 === 5 ? mcp : (random() < 0.3 && left.shift()) || honest[Math.floor(random() * honest.length)]!;
  const schemes = ["exact", "auth-capture", "exact", "auth-capture"] as const;
  const buyers = await Promise.all(
    schemes.map(async (scheme) => {
      const buyer = await officialBuyer(world, payBy(scheme === "exact" ? "delivery" : "escrow"));
      return { ...buyer, scheme, had: (await rail.balance(buyer.address)).value };
    }),
  );
  const stop = new AbortController();
  const living = killing();
  const shopping = Promise.all(buyers.map((buyer) => shops(buyer, ofWhom, stop.signal)));
  const last = await Promise.race([living, shopping.then(() => Promise.reject(new Error("the buyers went home")))]);
  stop.abort();
  // Whose hold a kill cut off is told how it ended once his signature has: five minutes that nobody has to wait here.
  const waited = setTimeout(() => void timePasses(), 10_000);
  await shopping;
  clearTimeout(waited);
  for (const one of told.values()) if (one.answers.length > 0) await again(one);
  await ending(last);
  orders = [...(await tableOf()).all()];
  process.stdout.write(`${signals.length} kills of seed ${SEED}: ${figures()}\n`);
});

afterAll(async () => {
  await seller?.close();
  await world?.close();
  await rm(dir, { recursive: true, force: true });
});

function figures(): string {
  const states = new Map<string, number>();
  for (const { state } of orders) states.set(state, (states.get(state) ?? 0) + 1);
  const adopted = orders.filter(({ epoch }) => epoch > 0).length;
  const escrow = orders.filter(({ scheme }) => scheme === "auth-capture").length;
  const ours = orders.filter(({ legs }) => legs[0]?.checked?.fault === "ours" && legs[0].fate === "paid").length;
  const ended = [...states].map(([state, n]) => `${n} ${state}`).join(", ");
  return (
    `${told.size} payments, ${orders.length} orders (${escrow} in escrow, ${adopted} adopted: ${ended}), ` +
    `${lostAnswers} lost answers, ${ours} sellers paid for an answer that died with us`
  );
}

const orderOf = ({ nonce }: Told): Order | undefined => orders.find((one) => one.nonce === nonce.toLowerCase());
const sum = (all: readonly bigint[]): bigint => all.reduce((one, other) => one + other, 0n);

describe(`after ${KILLS} kills and more`, () => {
  test("they were kills, in the midst of orders of every kind", () => {
    expect(signals).toEqual(signals.map(() => "SIGKILL"));
    expect(signals.length).toBeGreaterThanOrEqual(KILLS);
    const many = (is: (order: Order) => boolean) => orders.filter(is).length;
    expect(lostAnswers).toBeGreaterThan(KILLS / 2);
    expect(many(({ epoch }) => epoch > 0)).toBeGreaterThan(KILLS / 5);
    expect(many(({ state }) => state === "settled")).toBeGreaterThan(KILLS / 2);
    expect(many(({ legs }) => legs[0]?.checked?.fault === "seller")).toBeGreaterThan(0);
    expect(many(({ scheme }) => scheme === "auth-capture")).toBeGreaterThan(KILLS / 12);
    expect(many(({ publish }) => publish)).toBeGreaterThan(KILLS / 16);
    const ofTool = [...told.values()].filter(({ spec }) => spec.tool !== undefined);
    expect(ofTool.filter(({ status }) => status === 200).length).toBeGreaterThan(KILLS / 16);
  });

  test("every order has ended for good, and nothing is held", async () => {
    const open = orders.filter((order) => !isClosed(order)).map(({ id, state, scheme }) => ({ id, state, scheme }));
    expect(open).toEqual([]);
    expect(orders.filter(({ state }) => state === "reclaimable")).toEqual([]);
    expect((await rail.balance(ESCROW)).value).toBe(0n);
  });

  test("a payment is one order, and one answer however often it is asked for", () => {
    for (const one of told.values()) {
      expect(new Set(one.answers.map((answer) => answer.split(" ")[0])).size).toBeLessThan(2);
      const good = one.answers.filter((answer) => answer.split(" ")[1] === "200");
      expect(good.length === 0 || new Set(one.answers).size === 1, one.answers.join("\n")).toBe(true);
    }
  });

  test("who was charged has an answer that passed; who has none was not", async () => {
    for (const buyer of new Set([...told.values()].map((one) => one.buyer))) {
      const theirs = [...told.values()].filter((one) => one.buyer === buyer);
      const delivered = theirs.filter(({ status }) => status === 200);
      for (const { body } of delivered) expect(JSON.parse(body)).toMatchObject({ sum: 42 });
      const spent = buyer.had - (await rail.balance(buyer.address)).value;
      expect(spent).toBe(sum(delivered.map(({ totalMicro }) => totalMicro)));
      for (const one of theirs)
        expect([one.status === 200, one.body]).toEqual([orderOf(one)?.state === "settled", one.body]);
    }
  });

  test("no seller was paid twice for an order, or without one", async () => {
    const float = orders.flatMap(({ legs }) => legs)[0]!.wallet;
    const seen: Settlement[] = [];
    for (const order of orders) {
      expect(order.legs.length).toBeLessThan(2);
      for (const { wallet, nonce, fate, sinceBlock, payTo, price } of order.legs) {
        expect(wallet).toBe(float);
        const settled = (await rail.settlementOf({ from: wallet, nonce, sinceBlock })).value;
        expect(fate).toBe(settled ? "paid" : "unpaid");
        if (!settled) continue;
        expect([settled.to, settled.amountAtomic]).toEqual([payTo, parseMoney(price)]);
        seen.push(settled);
      }
    }
    for (const payTo of new Set(specs.map((spec) => spec.payTo.toLowerCase()))) {
      const got = (await rail.transfers({ from: float, to: payTo, sinceBlock: 0 })).value;
      expect(got.map(({ tx }) => tx)).toEqual(
        seen
          .filter(({ to }) => to === payTo)
          .map(({ tx }) => tx)
          .sort(byBlock(got)),
      );
    }
  });

  test("the books sum to zero and are on the chain", async () => {
    const settings = { TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_LOG_PARTITIONS: String(PARTITIONS) };
    const run = touchstone(["ledger", "--json", "--rpc", world.rpcUrl], settings);
    const { code } = await run.ended;
    const { assets } = JSON.parse(run.said.out);
    expect(assets).toMatchObject([{ orders: orders.length, sum: "0.000000", differences: [] }]);
    expect(code, run.said.err).toBe(0);
    const [{ wallets, owed }] = assets;
    const [till] = Object.values<{ cash: string; books: string; holds: string }>(wallets).filter(isTill);
    expect(till!.holds).toBe(till!.books);
    expect(owed.filter(({ what }: { what: string }) => what !== "loss")).toEqual([]);
    const float = Object.keys(wallets).find((address) => !isTill(wallets[address]))!;
    const minted = (await rail.transfers({ from: `0x${"0".repeat(40)}`, to: float, sinceBlock: 0 })).value;
    const shown = (await rail.balance(float)).value - sum(minted.map(({ amountAtomic }) => amountAtomic));
    expect(shown).toBe(BigInt(wallets[float].books.replace(".", "")));
  });
});

const isTill = ({ cash }: { cash: string }): boolean => cash === "till";
const byBlock = (all: readonly Settlement[]) => (a: string, b: string) =>
  all.findIndex(({ tx }) => tx === a) - all.findIndex(({ tx }) => tx === b);
