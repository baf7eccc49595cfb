import { systemClock } from "../clock.ts";
import type { AsOf, Block } from "./rails.ts";
import { ChainDown, Cooldowns, RangeRefused } from "./rpc.ts";
import { type BlockTransfer, blockAt, finalAt, type TokenAtNode, type TokenOnChain } from "./settlement.ts";

type NodeRead<T> = (node: TokenAtNode) => Promise<T>;

const nodeCooldowns = new Cooldowns<TokenAtNode>();

/**
 * Returns ChainDown and RangeRefused unchanged, and any other error of asking one node as a ChainDown, since it comes
 * from an answer that could not be read.
 */
function failureOf(error: unknown): ChainDown | RangeRefused {
  if (error instanceof ChainDown || error instanceof RangeRefused) return error;
  const why = error instanceof Error ? error.message.split("\n", 1)[0] : String(error);
  return new ChainDown(`a node gives no usable answer: ${why}`, { cause: error });
}

/**
 * Asks nodes the same question and returns their answers. Each node answers the whole question, since parts from two
 * nodes may belong to different blocks. A node that fails, in whatever way, is skipped.
 * @param maxAnswers number of answers after which to stop, asking one node at a time; null asks all nodes at once
 * @throws ChainDown when fewer than `minAnswers` nodes answered; RangeRefused when one of the others refused the range
 */
async function askNodes<T>(
  nodes: readonly TokenAtNode[],
  minAnswers: number,
  maxAnswers: number | null,
  ask: NodeRead<T>,
): Promise<T[]> {
  const answers: T[] = [];
  const failed: (ChainDown | RangeRefused)[] = [];
  const askNode = async (node: TokenAtNode) => {
    try {
      answers.push(await ask(node));
    } catch (error) {
      const failure = failureOf(error);
      if (failure instanceof ChainDown) nodeCooldowns.markFailed(node);
      failed.push(failure);
    }
  };
  if (maxAnswers === null) await Promise.all(nodes.map(askNode));
  else for (const node of nodeCooldowns.inOrder(nodes)) if (answers.length < maxAnswers) await askNode(node);
  if (answers.length >= minAnswers) return answers;
  const refused = failed.find((one) => one instanceof RangeRefused);
  if (refused) throw refused;
  const why = failed[0]?.message ?? "no node was asked";
  if (minAnswers === 1) throw failed[0] ?? new ChainDown(why);
  throw new ChainDown(`${answers.length} of ${nodes.length} nodes answered, and ${minAnswers} have to agree: ${why}`);
}

/** How the answers of several nodes are compared. */
export interface AnswerEquality<T> {
  /** Returns a text that is equal for equal answers. */
  textOf(value: T): string;
  /** Combines several equal answers into one. Default: the first of them. */
  merged?(alike: readonly T[]): T;
}

const transferText = ({ tx, from, to, amountAtomic, blockNumber }: BlockTransfer): string =>
  [tx, from, to, amountAtomic, blockNumber].join(" ");

/** Compares transfers. The sender of the transaction is kept only where every node names the same one. */
export const TRANSFER_EQUALITY: AnswerEquality<BlockTransfer> = {
  textOf: transferText,
  merged(alike) {
    const { sender, ...first } = alike[0]!;
    const isSame = sender !== undefined && alike.every((one) => one.sender === sender);
    return isSame ? { ...first, sender } : first;
  },
};

export const TRANSFER_LIST_EQUALITY: AnswerEquality<BlockTransfer[]> = {
  textOf: (list) => list.map(transferText).join("\n"),
};

/** Extends a comparison to answers that may be null. */
export const nullableEquality = <T>({
  textOf,
  merged = ([first]) => first!,
}: AnswerEquality<T>): AnswerEquality<T | null> => ({
  textOf: (value) => (value === null ? "none" : textOf(value)),
  merged: (alike) => (alike[0] === null ? null : merged(alike as readonly T[])),
});

/** Returns the largest number that at least `agree` of these numbers are equal to or above. */
const valueReachedBy = (agree: number, numbers: readonly number[]): number =>
  [...numbers].sort((a, b) => b - a)[agree - 1]!;

/**
 * Returns the highest number and the latest time that at least `agree` of these blocks reach, each by itself, so that a
 * single lying node can raise neither.
 */
const blockReachedBy = (agree: number, blocks: readonly Block[]): Block => ({
  number: valueReachedBy(
    agree,
    blocks.map(({ number }) => number),
  ),
  time: valueReachedBy(
    agree,
    blocks.map(({ time }) => time),
  ),
});

/** Asks one node as of a block that it has, and asks the same node for its final block. */
async function readWithFinal<T>(
  node: TokenAtNode,
  head: Block,
  ask: (node: TokenAtNode, head: Block) => Promise<T>,
): Promise<AsOf<T>> {
  const [value, final] = await Promise.all([ask(node, head), finalAt(node, head)]);
  return { value, head, final };
}

/**
 * Returns the value that at least `agree` of these answers share, with the newest head and final block that `agree` of
 * the answers with this value reach. Returns null when no value, or more than one, is shared by that many.
 */
function findCommonValue<T>(
  answers: readonly AsOf<T>[],
  agree: number,
  { textOf, merged }: AnswerEquality<T>,
): AsOf<T> | null {
  const groups = new Map<string, AsOf<T>[]>();
  for (const one of answers) groups.set(textOf(one.value), [...(groups.get(textOf(one.value)) ?? []), one]);
  const groupsInQuorum = [...groups.values()].filter((group) => group.length >= agree);
  // Two different values that reach the quorum at one block contradict each other.
  if (groupsInQuorum.length !== 1) return null;
  const [group] = groupsInQuorum as [AsOf<T>[]];
  const values = group.map(({ value }) => value);
  return {
    value: merged ? merged(values) : values[0]!,
    head: blockReachedBy(
      agree,
      group.map(({ head }) => head),
    ),
    final: blockReachedBy(
      agree,
      group.map(({ final }) => final),
    ),
  };
}

/** Pauses in real ms before each try, for nodes that disagree: the newest block may have changed during the read. */
const RETRY_PAUSES_MS = [0, 50, 250] as const;

/**
 * Searches the newest block as of which `agree` nodes give the same value, and returns that value. Without such a block
 * it returns the last failure; `isAtOdds` is true when enough nodes answered but their values differ.
 */
async function readAtOneBlock<T>(
  nodes: readonly TokenAtNode[],
  agree: number,
  ask: (node: TokenAtNode, head: Block) => Promise<T>,
  equality: AnswerEquality<T>,
): Promise<AsOf<T> | { failed: unknown; isAtOdds: boolean }> {
  const heads = new Map<TokenAtNode, Block>();
  await askNodes(nodes, agree, null, async (node) => heads.set(node, await blockAt(node, "latest")));
  const heights = [...heads.values()].map(({ number }) => number).sort((a, b) => b - a);
  let failed: unknown = null;
  let isAtOdds = false;
  for (const height of new Set(heights.slice(agree - 1))) {
    const nodesWithBlock = [...heads].flatMap(([node, { number }]) => (number >= height ? [node] : []));
    const readAtHeight = async (node: TokenAtNode): Promise<AsOf<T>> => {
      const newest = heads.get(node)!;
      return readWithFinal(node, newest.number === height ? newest : await blockAt(node, height), ask);
    };
    try {
      const answers = await askNodes(nodesWithBlock, agree, null, readAtHeight);
      const agreed = findCommonValue(answers, agree, equality);
      if (agreed) return agreed;
      isAtOdds = true;
      failed = new ChainDown(`no ${agree} of ${answers.length} nodes that answered agree on block ${height}`);
    } catch (error) {
      if (!(error instanceof ChainDown)) throw error;
      failed = error;
    }
  }
  return { failed, isAtOdds };
}

/**
 * Reads from several nodes of a chain. With `agree` 1 the first node that answers is believed. With more, all nodes
 * are asked and at least `agree` have to give the same value; otherwise the read throws ChainDown and the caller
 * tries again later. A node that lies or lags can therefore neither create nor hide a settlement.
 */
export const quorum = {
  /**
   * Reads a value, and returns it with the blocks as of which it was read. Nodes that have to agree are asked as of
   * one block: first the newest that `agree` nodes have, then older ones, in case a node lies about its height or
   * about that block.
   * @param ask reads state at the block, and logs up to it, from one node
   * @throws ChainDown
   */
  async read<T>(
    { nodes, agree }: Pick<TokenOnChain, "nodes" | "agree">,
    ask: (node: TokenAtNode, head: Block) => Promise<T>,
    equality: AnswerEquality<T>,
  ): Promise<AsOf<T>> {
    if (agree === 1) {
      const first = async (node: TokenAtNode) => readWithFinal(node, await blockAt(node, "latest"), ask);
      return (await askNodes(nodes, 1, 1, first))[0]!;
    }
    let lastError: unknown = null;
    for (const pause of RETRY_PAUSES_MS) {
      if (pause > 0) await systemClock.sleep(pause);
      const result = await readAtOneBlock(nodes, agree, ask, equality);
      if ("value" in result) return result;
      lastError = result.failed;
      if (!result.isAtOdds) break;
    }
    throw lastError;
  },
  /** Returns the answer that at least `agree` nodes give. @param textOf equal for equal answers @throws ChainDown */
  async same<T>(
    nodes: readonly TokenAtNode[],
    agree: number,
    ask: NodeRead<T>,
    textOf: (answer: T) => string,
  ): Promise<T> {
    if (agree === 1) return (await askNodes(nodes, 1, 1, ask))[0]!;
    const answers = (await askNodes(nodes, agree, null, ask)).map((answer) => ({ answer, text: textOf(answer) }));
    const agreed = answers.find(({ text }) => answers.filter((one) => one.text === text).length >= agree);
    if (!agreed) throw new ChainDown(`no ${agree} of ${answers.length} nodes that answered agree`);
    return agreed.answer;
  },
  /** Returns the newest block that `agree` nodes reach; with a tag, by their blocks of that tag. @throws ChainDown */
  async head(
    { nodes, agree }: Pick<TokenOnChain, "nodes" | "agree">,
    tag: "latest" | "safe" | "finalized" = "latest",
  ): Promise<Block> {
    const heads = await askNodes(nodes, agree, agree === 1 ? 1 : null, (node) => blockAt(node, tag));
    return blockReachedBy(agree, heads);
  },
};
