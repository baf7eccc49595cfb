import { systemClock } from "../clock.ts";
import type { AsOf, Block } from "./rails.ts";
import { ChainDown, Cooldowns } from "./rpc.ts";
import { type BlockTransfer, blockAt, finalAt, type TokenAtNode, type TokenOnChain } from "./settlement.ts";

type Ask<T> = (node: TokenAtNode) => Promise<T>;

const resting = new Cooldowns<TokenAtNode>();

/** Is it the trouble of one node, so that another one may know better? */
const isDown = (error: unknown): error is ChainDown => error instanceof ChainDown;

/**
 * What nodes say, each of a whole question: half an answer of one and half of another, which lags behind, would be an
 * answer that no node gave. One that does not answer is passed over.
 * @param wanted stop when so many have answered, and ask no more at once than that needs; null asks all
 * @throws ChainDown when fewer than `least` answered
 */
async function answersOf<T>(
  nodes: readonly TokenAtNode[],
  least: number,
  wanted: number | null,
  ask: Ask<T>,
): Promise<T[]> {
  const answers: T[] = [];
  const failed: ChainDown[] = [];
  const one = async (node: TokenAtNode) => {
    try {
      answers.push(await ask(node));
    } catch (error) {
      if (!isDown(error)) throw error;
      resting.failed(node);
      failed.push(error);
    }
  };
  if (wanted === null) await Promise.all(nodes.map(one));
  else for (const node of resting.ordered(nodes)) if (answers.length < wanted) await one(node);
  if (answers.length >= least) return answers;
  const why = failed[0]?.message ?? "no node was asked";
  if (least === 1) throw failed[0] ?? new ChainDown(why);
  throw new ChainDown(`${answers.length} of ${nodes.length} nodes answered, and ${least} have to agree: ${why}`);
}

/** How answers of several nodes are held against each other. */
export interface AnswerEquality<T> {
  /** The same for answers that are the same. */
  textOf(value: T): string;
  /** Of answers that are the same: the one that all of them give. Default: the first. */
  merged?(alike: readonly T[]): T;
}

const movedText = ({ tx, from, to, amountAtomic, blockNumber }: BlockTransfer): string =>
  [tx, from, to, amountAtomic, blockNumber].join(" ");

/** Settlements that are the same; who sent it is said where all who say it agree. */
export const TRANSFER_EQUALITY: AnswerEquality<BlockTransfer> = {
  textOf: movedText,
  merged(alike) {
    const { sender, ...first } = alike[0]!;
    const isSame = sender !== undefined && alike.every((one) => one.sender === sender);
    return isSame ? { ...first, sender } : first;
  },
};

export const TRANSFER_LIST_EQUALITY: AnswerEquality<BlockTransfer[]> = {
  textOf: (list) => list.map(movedText).join("\n"),
};

/** The same of what may not be there. */
export const orNull = <T>({ textOf, merged = ([first]) => first! }: AnswerEquality<T>): AnswerEquality<T | null> => ({
  textOf: (value) => (value === null ? "none" : textOf(value)),
  merged: (alike) => (alike[0] === null ? null : merged(alike as readonly T[])),
});

/** The newest number that at least so many have reached. */
const reachedBy = (agree: number, numbers: readonly number[]): number => [...numbers].sort((a, b) => b - a)[agree - 1]!;

/** Number and time each as `agree` of them have it: one that lies makes neither of them later. */
const blockOf = (agree: number, blocks: readonly Block[]): Block => ({
  number: reachedBy(
    agree,
    blocks.map(({ number }) => number),
  ),
  time: reachedBy(
    agree,
    blocks.map(({ time }) => time),
  ),
});

/** What a node says as of a block that it has. The height of its final block is asked of the same node. */
async function readAt<T>(
  node: TokenAtNode,
  head: Block,
  ask: (node: TokenAtNode, head: Block) => Promise<T>,
): Promise<AsOf<T>> {
  const [value, final] = await Promise.all([ask(node, head), finalAt(node, head)]);
  return { value, head, final };
}

/** What `agree` of these answers say alike, and as of which blocks all of those do; null where no so many do. */
function inCommon<T>(said: readonly AsOf<T>[], agree: number, { textOf, merged }: AnswerEquality<T>): AsOf<T> | null {
  const groups = new Map<string, AsOf<T>[]>();
  for (const one of said) groups.set(textOf(one.value), [...(groups.get(textOf(one.value)) ?? []), one]);
  const found = [...groups.values()].filter((group) => group.length >= agree);
  // Two answers that so many give at one block contradict each other.
  if (found.length !== 1) return null;
  const [group] = found as [AsOf<T>[]];
  const values = group.map(({ value }) => value);
  return {
    value: merged ? merged(values) : values[0]!,
    head: blockOf(
      agree,
      group.map(({ head }) => head),
    ),
    final: blockOf(
      agree,
      group.map(({ final }) => final),
    ),
  };
}

/** Pauses (real ms) between reads of nodes that are at odds: the newest block may have changed while they were asked. */
const AGAIN_MS = [0, 50, 250] as const;

/** What `agree` nodes say as of one block, or why there is no such answer; `isAtOdds`: enough answered, and differently. */
async function readTogether<T>(
  nodes: readonly TokenAtNode[],
  agree: number,
  ask: (node: TokenAtNode, head: Block) => Promise<T>,
  alike: AnswerEquality<T>,
): Promise<AsOf<T> | { failed: unknown; isAtOdds: boolean }> {
  const heads = new Map<TokenAtNode, Block>();
  await answersOf(nodes, agree, null, async (node) => heads.set(node, await blockAt(node, "latest")));
  const heights = [...heads.values()].map(({ number }) => number).sort((a, b) => b - a);
  let failed: unknown = null;
  let isAtOdds = false;
  for (const height of new Set(heights.slice(agree - 1))) {
    const having = [...heads].flatMap(([node, { number }]) => (number >= height ? [node] : []));
    const at = async (node: TokenAtNode): Promise<AsOf<T>> => {
      const newest = heads.get(node)!;
      return readAt(node, newest.number === height ? newest : await blockAt(node, height), ask);
    };
    try {
      const said = await answersOf(having, agree, null, at);
      const found = inCommon(said, agree, alike);
      if (found) return found;
      isAtOdds = true;
      failed = new ChainDown(`no ${agree} of ${said.length} nodes that answered say the same of block ${height}`);
    } catch (error) {
      if (!isDown(error)) throw error;
      failed = error;
    }
  }
  return { failed, isAtOdds };
}

/**
 * One answer of several nodes of a chain. Where one node is enough, it is the first that answers; where `agree` have to
 * say the same, all are asked, and what fewer say is neither so nor otherwise: the chain is down, and whoever asked asks
 * again. A node that lies, or lags, accuses nobody and excuses nobody.
 */
export const quorum = {
  /**
   * A read with the blocks that it is as of. Nodes that have to agree are asked as of one block: the newest that so many
   * have, and older ones where one of them lies of its height or of what is there.
   * @param ask reads as of a block that the node has: state at that block, logs up to it
   * @throws ChainDown
   */
  async read<T>(
    { nodes, agree }: Pick<TokenOnChain, "nodes" | "agree">,
    ask: (node: TokenAtNode, head: Block) => Promise<T>,
    alike: AnswerEquality<T>,
  ): Promise<AsOf<T>> {
    if (agree === 1) {
      const first = async (node: TokenAtNode) => readAt(node, await blockAt(node, "latest"), ask);
      return (await answersOf(nodes, 1, 1, first))[0]!;
    }
    let failed: unknown = null;
    for (const pause of AGAIN_MS) {
      if (pause > 0) await systemClock.sleep(pause);
      const found = await readTogether(nodes, agree, ask, alike);
      if ("value" in found) return found;
      failed = found.failed;
      if (!found.isAtOdds) break;
    }
    throw failed;
  },
  /** What at least `agree` nodes say alike. @param textOf the same for answers that are the same */
  async same<T>(nodes: readonly TokenAtNode[], agree: number, ask: Ask<T>, textOf: (answer: T) => string): Promise<T> {
    if (agree === 1) return (await answersOf(nodes, 1, 1, ask))[0]!;
    const said = (await answersOf(nodes, agree, null, ask)).map((answer) => ({ answer, text: textOf(answer) }));
    const found = said.find(({ text }) => said.filter((one) => one.text === text).length >= agree);
    if (!found) throw new ChainDown(`no ${agree} of ${said.length} nodes that answered say the same`);
    return found.answer;
  },
  /** The newest block that `agree` nodes have: later than none of them has it, so nothing is called over too soon. */
  async head({ nodes, agree }: Pick<TokenOnChain, "nodes" | "agree">): Promise<Block> {
    const heads = await answersOf(nodes, agree, agree === 1 ? 1 : null, (node) => blockAt(node, "latest"));
    return blockOf(agree, heads);
  },
};
