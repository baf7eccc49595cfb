import { describe, expect, test } from "vitest";
import { nullableEquality, quorum, TRANSFER_EQUALITY, TRANSFER_LIST_EQUALITY } from "../../../infra/rails/quorum.ts";
import { type Block, isFinallyExpired } from "../../../infra/rails/rails.ts";
import { ChainDown, RangeRefused } from "../../../infra/rails/rpc.ts";
import type { BlockTransfer, TokenAtNode } from "../../../infra/rails/settlement.ts";

/** Nodes that lag, lie and fail in the middle of a question: what is believed of them, and as of which block. */
interface Node extends TokenAtNode {
  /** Its newest block; others are ten seconds apart. */
  block: Block;
  /** The error of each question to it, or null. */
  fails: Error | null;
  /** Says of every block that there is nothing. */
  isBlind: boolean;
}

const DOWN = new ChainDown("it does not answer");
/** The error of a node that answers null where a list is due. */
const MALFORMED = new TypeError("Cannot read properties of null (reading 'map')");

const GENESIS = 1_000;
const timeOf = (number: number): number => GENESIS + number * 10;
const at = (number: number): Block => ({ number, time: timeOf(number) });

function nodeAt(number: number, changes: Partial<Node> = {}): Node {
  const node = { block: at(number), fails: null, isBlind: false, confirmations: 1, ...changes } as Node;
  const getBlock = async ({ blockNumber }: { blockNumber?: bigint }) => {
    if (node.fails) throw node.fails;
    const asked = blockNumber === undefined ? node.block : at(Number(blockNumber));
    if (asked.number > node.block.number) throw new ChainDown("header not found");
    return { number: BigInt(asked.number), timestamp: BigInt(asked.time) };
  };
  return Object.assign(node, { reader: { getBlock } as never });
}

const moved = (blockNumber: number, tx = `0x${blockNumber}`): BlockTransfer => ({
  ...{ tx, blockNumber, blockTime: timeOf(blockNumber), from: "0xpayer", to: "0xtill", amountAtomic: 1n },
  ...{ asset: "0xusdc", network: "eip155:1" },
});

/** A payment that was settled in block 95, as each of these nodes tells of it. */
const IN_BLOCK = 95;
const settlement = (nodes: Node[], agree: number) =>
  quorum.read(
    { nodes, agree },
    async (node, head) => {
      const { fails, isBlind } = node as Node;
      if (fails) throw fails;
      return isBlind || head.number < IN_BLOCK ? null : moved(IN_BLOCK);
    },
    nullableEquality(TRANSFER_EQUALITY),
  );

test("a head of one node and a missing settlement of the next, which lags, are no verdict", async () => {
  const validBefore = timeOf(96);
  const [first, lagging] = [nodeAt(100), nodeAt(80)];
  expect((await quorum.head({ nodes: [first, lagging], agree: 1 })).time).toBeGreaterThan(validBefore);
  first.fails = DOWN;
  const read = await settlement([first, lagging], 1);
  expect(read).toEqual({ value: null, head: at(80), final: at(80) });
  expect(isFinallyExpired(read, validBefore, 0)).toBe(false);
  lagging.block = at(97);
  expect((await settlement([first, lagging], 1)).value).toEqual(moved(IN_BLOCK));
});

test("a node that fails between its head and its answer gives none: the next one is asked everything", async () => {
  const first = nodeAt(100);
  const ask = async (node: TokenAtNode, head: Block) => {
    if (node === first) throw new ChainDown("it fell");
    return head.number;
  };
  const read = await quorum.read({ nodes: [first, nodeAt(70)], agree: 1 }, ask, { textOf: String });
  expect(read).toEqual({ value: 70, head: at(70), final: at(70) });
});

test("a node that answers with nothing is passed over for the next one", async () => {
  const read = await settlement([nodeAt(100, { fails: MALFORMED }), nodeAt(99)], 1);
  expect(read).toEqual({ value: moved(IN_BLOCK), head: at(99), final: at(99) });
  await expect(settlement([nodeAt(100, { fails: MALFORMED })], 1)).rejects.toMatchObject({
    ...{ name: "ChainDown", cause: MALFORMED },
  });
});

test("a node whose block has no time gives no block", async () => {
  const timeless = { number: 100, time: Number.NaN };
  const reader = { getBlock: async () => ({ number: 100n, timestamp: undefined }) } as never;
  const read = await settlement([Object.assign(nodeAt(100, { block: timeless }), { reader }), nodeAt(99)], 1);
  expect(read.head).toEqual(at(99));
});

test("a range that one node refuses is answered by enough others, and refused where they are too few", async () => {
  const [refusing, one, other] = [nodeAt(100), nodeAt(100), nodeAt(100)];
  const ask = async (node: TokenAtNode) => {
    if (node === refusing) throw new RangeRefused("query exceeds 10000 results", null);
    return "logs";
  };
  expect(await quorum.same([refusing, one, other], 2, ask, String)).toBe("logs");
  expect(await quorum.same([refusing, one], 1, ask, String)).toBe("logs");
  await expect(quorum.same([refusing, one], 2, ask, String)).rejects.toThrow(RangeRefused);
});

describe("where two have to agree", () => {
  test.each<[string, Node[], number | null]>([
    ["both are there", [nodeAt(100), nodeAt(100)], 100],
    ["one lags: as of what both have", [nodeAt(100), nodeAt(97)], 97],
    ["one lags, and two others do not", [nodeAt(80), nodeAt(100), nodeAt(99)], 99],
    ["one hides it, and two others do not", [nodeAt(100, { isBlind: true }), nodeAt(100), nodeAt(99)], 99],
    ["one is down", [nodeAt(100), nodeAt(98), nodeAt(100, { fails: DOWN })], 98],
    ["one answers with nothing", [nodeAt(100), nodeAt(98), nodeAt(100, { fails: MALFORMED })], 98],
    ["one answers with nothing, and one is left", [nodeAt(100), nodeAt(100, { fails: MALFORMED })], null],
    ["one claims a height that nobody has", [nodeAt(10_000), nodeAt(100), nodeAt(99)], 100],
    ["one hides it", [nodeAt(100, { isBlind: true }), nodeAt(100)], null],
    ["one is down, and one is left", [nodeAt(100), nodeAt(100, { fails: DOWN })], null],
    [
      "two say yes and two say no",
      [nodeAt(100), nodeAt(100), ...[1, 2].map(() => nodeAt(100, { isBlind: true }))],
      null,
    ],
  ])("%s", async (_, nodes, number) => {
    const asked = settlement(nodes, 2);
    if (number === null) await expect(asked).rejects.toThrow(ChainDown);
    else expect(await asked).toEqual({ value: moved(IN_BLOCK), head: at(number), final: at(number) });
  });

  test("one that lags behind the payment says no more than that it was not there then", async () => {
    const read = await settlement([nodeAt(100), nodeAt(80)], 2);
    expect(read).toEqual({ value: null, head: at(80), final: at(80) });
    expect(isFinallyExpired(read, timeOf(96), 0)).toBe(false);
  });

  test("one that lies of the time makes no verdict earlier", async () => {
    const early = { number: 90, time: timeOf(10_000) };
    for (const others of [[nodeAt(90)], [nodeAt(90), nodeAt(92)]]) {
      const read = await settlement([nodeAt(90, { block: early }), ...others], 2);
      expect(read.value).toBeNull();
      expect(read.final.time).toBeLessThanOrEqual(timeOf(92));
      expect((await quorum.head({ nodes: [nodeAt(90, { block: early }), ...others], agree: 2 })).time).toBeLessThan(
        timeOf(93),
      );
    }
  });

  test("a list is whole up to the block that it is as of, or there is none", async () => {
    const all = [moved(60), moved(95)];
    const list = (nodes: Node[]) =>
      quorum.read(
        { nodes, agree: 2 },
        async (node, head) => ((node as Node).isBlind ? [] : all.filter((one) => one.blockNumber <= head.number)),
        TRANSFER_LIST_EQUALITY,
      );
    expect(await list([nodeAt(100), nodeAt(80)])).toEqual({ value: [moved(60)], head: at(80), final: at(80) });
    // A refund that one of them hides must not be passed over once the others are further.
    expect((await list([nodeAt(100, { isBlind: true }), nodeAt(100), nodeAt(80)])).head).toEqual(at(80));
    await expect(list([nodeAt(100, { isBlind: true }), nodeAt(100)])).rejects.toThrow(ChainDown);
  });
});

test("a final block that is later than the head above it is no final block", async () => {
  const node = nodeAt(100, { confirmations: 3, block: { number: 100, time: timeOf(50) } });
  await expect(settlement([node], 1)).rejects.toThrow(ChainDown);
});

test("who sent it is told where all that say so agree", () => {
  const by = (...senders: (string | undefined)[]) =>
    TRANSFER_EQUALITY.merged!(senders.map((sender) => ({ ...moved(1), ...(sender === undefined ? {} : { sender }) })))
      .sender;
  expect([by("0xa", "0xa"), by("0xa", "0xb"), by("0xa", undefined), by(undefined)]).toEqual([
    ...["0xa", undefined, undefined, undefined],
  ]);
});

test("nodes that are at odds over their newest block are asked again, and believed once they agree", async () => {
  const nodes = [nodeAt(100), nodeAt(100)];
  let asked = 0;
  // The second one answers the first question out of a block that it has just made.
  const held = async (node: unknown): Promise<bigint> => (node === nodes[1] && asked++ === 0 ? 9n : 10n);
  const units = { textOf: String };
  expect((await quorum.read({ nodes, agree: 2 }, held, units)).value).toBe(10n);
  const always = async (node: unknown): Promise<bigint> => (node === nodes[1] ? 9n : 10n);
  await expect(quorum.read({ nodes, agree: 2 }, always, units)).rejects.toThrow(/no 2 of 2 nodes/);
});
