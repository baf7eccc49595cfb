import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ledgerCommand, ledgerOf, linesOf } from "../../commands/ledger.ts";
import { loadConfig } from "../../infra/config.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { booksOf, findDifferences } from "../../pipelines/orders/ledger.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { OrderWorld } from "../helpers/order-world.ts";

const FLOAT = { cash: "float" as const, against: "losses" };
let dir: string;
const settings = () =>
  loadConfig(undefined, {
    ...{ TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_LOG_PARTITIONS: "2", TOUCHSTONE_LOG_LEVEL: "silent" },
  });
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "ledger-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** One buyer of an honest seller, of a thief, and of one that nobody could collect from. */
async function traded(): Promise<OrderWorld> {
  const world = new OrderWorld(1);
  const [replica] = world.replicas;
  for (const seller of ["honest", "thief"] as const) {
    world.chain.mint(`0x${seller}s`, 1_000_000n);
    await world.post(replica!, world.pay(`0x${seller}s`, seller));
  }
  world.chain.mint("0xpoor", 12_000n);
  world.tillFault = "says nothing";
  await world.post(replica!, world.pay("0xpoor", "honest"));
  world.chain.transfer("0xpoor", "0xelse", 12_000n);
  await world.end();
  return world;
}

test("a log that nobody has begun has no books, and is not begun by being asked", async () => {
  expect(await ledgerOf(settings(), null)).toEqual({ schema: "svc.ledger.v1", assets: [] });
  expect(existsSync(join(dir, "log"))).toBe(false);
});

test("the books name every account, wallet and loss, for machines and for people", async () => {
  const world = await traded();
  const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: 2 });
  await log.append(world.log.all());
  await log.close();
  const { assets } = await ledgerOf(settings(), null);
  expect(assets).toMatchObject([
    {
      ...{ network: "eip155:84532", orders: 3, sum: "0.000000", differences: null },
      accounts: {
        ...{ "calls bought": "0.010000", float: "-0.030000", "losses by buyer": "0.010000" },
        ...{ "losses by seller": "0.010000", sales: "-0.012000", till: "0.012000" },
      },
      wallets: { "0xfloat": { books: "-0.030000", holds: null }, "0xtill": { books: "0.012000", holds: null } },
    },
  ]);
  expect(assets[0]!.owed).toHaveLength(2);
  expect(assets[0]!.owed).toEqual(
    expect.arrayContaining([
      { what: "loss", who: "0xthief", fault: "seller", orders: 1, amount: "0.010000" },
      { what: "loss", who: "0xpoor", fault: "buyer", orders: 1, amount: "0.010000" },
    ]),
  );
  const printed = vi.spyOn(process.stdout, "write").mockReturnValue(true);
  await ledgerCommand(settings(), {});
  const text = String(printed.mock.calls[0]![0]);
  printed.mockRestore();
  expect(text).toContain("0.010000 not paid back by 0xthief, 1 orders (fault: seller)");
  expect(text).toContain("the chain was not asked");
});

test("one transfer back that stands for two losses is named", async () => {
  const world = await traded();
  world.chain.transfer("0xthief", "0xfloat", 10_000n);
  const { tx } = world.chain.moved.at(-1)!;
  const way = { from: "0xthief", to: "0xfloat", nonce: null, sinceBlock: 0, recordedAt: 0, ...FLOAT };
  const back = { what: "call sent back" as const, tx, micro: 10_000n, ...way };
  const found = await findDifferences(
    ["ord_a", "ord_b"].map((order) => ({ ...back, order })),
    world.chain.rail(),
  );
  expect(found).toEqual([{ order: "ord_b", what: "call sent back", tx, says: "it stands in the books twice" }]);
});

test("two transfers back in one transaction may stand for two losses, and not for three", async () => {
  const world = await traded();
  world.chain.mint("0xthief", 20_000n);
  for (let n = 0; n < 2; n++) world.chain.transfer("0xthief", "0xfloat", 10_000n);
  const [first, second] = world.chain.moved.slice(-2) as unknown as [{ tx: string }, { tx: string }];
  second.tx = first.tx;
  const way = { from: "0xthief", to: "0xfloat", nonce: null, sinceBlock: 0, recordedAt: 0, ...FLOAT };
  const back = { what: "call sent back" as const, tx: first.tx, micro: 10_000n, ...way };
  const booked = (...orders: string[]) => orders.map((order) => ({ ...back, order }));
  const rail = world.chain.rail();
  expect(await findDifferences(booked("ord_a", "ord_b"), rail)).toEqual([]);
  expect((await findDifferences(booked("ord_a", "ord_b", "ord_c"), rail)).map(({ order }) => order)).toEqual(["ord_c"]);
  // One capture that stands for the charges of two buyers: the escrow sends it, so no payer is its sender.
  world.chain.transfer("0xfloat", "0xtill", 12_000n);
  const { tx } = world.chain.moved.at(-1)!;
  const charge = { ...back, what: "charge" as const, tx, micro: 12_000n, to: "0xtill", cash: "till" as const };
  const charges = ["0xa", "0xb"].map((from) => ({ ...charge, from, order: `ord_of_${from}` }));
  expect((await findDifferences(charges, rail)).map(({ order }) => order)).toEqual(["ord_of_0xb"]);
});

test("a movement that the chain has not, or not so, is named", async () => {
  const world = await traded();
  const [{ movements }] = booksOf(world.table().all()) as [ReturnType<typeof booksOf>[0]];
  const rail = world.chain.rail();
  expect(movements).toHaveLength(4);
  expect(await findDifferences(movements, rail)).toEqual([]);
  const one = { ...movements[0]!, recordedAt: 0 };
  const wrong = [
    { ...one, micro: one.micro + 1n },
    { ...one, tx: "0xother" },
    { ...one, to: "0xother" },
    { ...one, nonce: "0xnever" },
    { ...one, nonce: null, tx: "0xother" },
  ];
  expect((await findDifferences(wrong, rail)).map(({ says }) => says.replace(/0x\w+/, "<it>"))).toEqual([
    "on the chain it is of 10000 micro-units",
    "the chain has it in <it>",
    "on the chain it went to <it>",
    `the chain has no such transfer up to block ${world.chain.block}`,
    `the chain has no such transfer up to block ${world.chain.block}`,
  ]);
});

test("a movement that is newer than the final block of the read is not seen yet, and no difference", async () => {
  const world = await traded();
  const { chain } = world;
  const [{ movements }] = booksOf(world.table().all()) as [ReturnType<typeof booksOf>[0]];
  const [charge] = movements as [(typeof movements)[0]];
  const lost = { ...charge, nonce: "0xnever" };
  const back = { ...charge, nonce: null, tx: "0xother" };
  const says = `the chain has no such transfer up to block ${chain.block}`;
  const recordedAt = chain.time;
  for (const one of [lost, back])
    expect(await findDifferences([{ ...one, recordedAt }], chain.rail())).toMatchObject([{ says, unseen: true }]);
  chain.pass(61);
  for (const one of [lost, back]) {
    const [found] = await findDifferences([{ ...one, recordedAt }], chain.rail());
    expect(found).toBeDefined();
    expect(found).not.toHaveProperty("unseen");
  }
});

test("a node that is named on the command line is asked about the books of its chain alone", async () => {
  const world = await traded();
  const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: 2 });
  await log.append(world.log.all());
  await log.close();
  const asked: string[] = [];
  const node = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      const { id, method } = JSON.parse(body) as { id: number; method: string };
      asked.push(method);
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ jsonrpc: "2.0", id, result: "0x2105" }));
    });
  });
  await new Promise<void>((done) => node.listen(0, "127.0.0.1", done));
  try {
    const ledger = await ledgerOf(settings(), `http://127.0.0.1:${(node.address() as AddressInfo).port}`);
    expect(ledger.assets).toMatchObject([{ network: "eip155:84532", differences: null, unseen: null }]);
    expect(asked).toEqual(["eth_chainId"]);
    expect(linesOf(ledger)).toContain("the chain was not asked: name a node of eip155:84532 with --rpc");
  } finally {
    node.closeAllConnections();
    await new Promise((done) => node.close(done));
  }
});
