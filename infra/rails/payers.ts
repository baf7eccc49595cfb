import { type Address, encodeEventTopics, numberToHex, zeroAddress } from "viem";
import { quorum } from "./quorum.ts";
import type { Payers, PayersQuery } from "./rails.ts";
import { ChainDown, chainRead, RangeRefused, readLogRange } from "./rpc.ts";
import { MAX_BLOCKS_PER_REQUEST, type TokenAtNode, TRANSFER_EVENT } from "./settlement.ts";

/**
 * Largest number of requests for one address. A week of a chain with a block every two seconds takes 34 when none is
 * refused.
 */
const MAX_REQUESTS = 200;
/** Largest number of payers of one payee; at this number the read ends early. */
const MAX_PAYERS = 50_000;
/** Number of points in time for which the block before them is remembered. All reads of one day use the same two. */
const MAX_CACHED_TIMES = 64;

/** Number of transfers and sum of their amounts for each payer, by the payer's lower-case address. */
type Tally = Map<string, { transfers: number; amountAtomic: bigint }>;

/**
 * Returns a reader of the payers of an address (see `Rail.payersOf`). The blocks are long final, so `agree` nodes
 * have to give identical logs of each range.
 *
 * Nodes limit the blocks or logs of one request, and each node has a different error for that. So a range that is
 * refused is halved, and later ranges keep the smaller size. Ranges are read from the newest to the oldest: when a
 * limit is reached, or a node has no older logs, the result is complete from its first block to its last.
 */
export function createPayersReader(nodes: readonly TokenAtNode[], agree: number) {
  const blockBeforeTime = new Map<number, number>();
  const newestBefore = async (time: number): Promise<number> => {
    const cachedBlock = blockBeforeTime.get(time);
    if (cachedBlock !== undefined) return cachedBlock;
    const number = await quorum.same(nodes, agree, (money) => blockBefore(money, time), String);
    if (blockBeforeTime.size >= MAX_CACHED_TIMES) blockBeforeTime.clear();
    blockBeforeTime.set(time, number);
    return number;
  };
  return async ({ to, since, until, signal }: PayersQuery): Promise<Payers | null> => {
    const [firstBlock, toBlock] = [(await newestBefore(since)) + 1, await newestBefore(until)];
    if (toBlock < firstBlock) return null;
    const payers: Tally = new Map();
    let oldestRead = toBlock + 1;
    let maxRangeBlocks = MAX_BLOCKS_PER_REQUEST;
    for (let requests = 0; oldestRead > firstBlock && requests < MAX_REQUESTS && payers.size < MAX_PAYERS; requests++) {
      signal?.throwIfAborted();
      const range = { from: Math.max(firstBlock, oldestRead - maxRangeBlocks), to: oldestRead - 1 };
      try {
        const rangeTally = await quorum.same(nodes, agree, (money) => sumTransfers(money, to, range), textOf);
        for (const [payer, { transfers, amountAtomic }] of rangeTally) add(payers, payer, transfers, amountAtomic);
        oldestRead = range.from;
      } catch (error) {
        if (!(error instanceof RangeRefused)) throw error;
        if (range.from === range.to) break;
        maxRangeBlocks = Math.ceil((range.to - range.from + 1) / 2);
      }
    }
    if (oldestRead > toBlock) throw new ChainDown("no node gives the logs of a single block");
    return { payers, fromBlock: oldestRead, toBlock, whole: oldestRead === firstBlock };
  };
}

/** Returns the number of the newest block before a time (unix seconds); -1 when there is none. @throws ChainDown */
async function blockBefore({ reader }: TokenAtNode, time: number): Promise<number> {
  const timeOf = async (number: number) =>
    (await chainRead("a block", () => reader.getBlock({ blockNumber: BigInt(number) }))).timestamp;
  let before = -1;
  let after = Number(await chainRead("its head", () => reader.getBlockNumber({ cacheTime: 0 }))) + 1;
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if ((await timeOf(middle)) < time) before = middle;
    else after = middle;
  }
  return before;
}

/**
 * Sums the transfers to an address in a range of blocks. Logs are parsed by hand: viem takes a second to decode ten
 * thousand, during which this process would not respond. @throws ChainDown, RangeRefused
 */
async function sumTransfers(
  { reader, asset }: TokenAtNode,
  to: string,
  range: { from: number; to: number },
): Promise<Tally> {
  const topics = encodeEventTopics({ abi: [TRANSFER_EVENT], args: { to: to as Address } });
  const [fromBlock, toBlock] = [numberToHex(range.from), numberToHex(range.to)];
  const params = [{ address: asset, topics, fromBlock, toBlock }] as const;
  const logs = await readLogRange(() => reader.request({ method: "eth_getLogs", params: [...params] }));
  const tally: Tally = new Map();
  for (const { removed, topics, data } of logs) {
    const payer = `0x${topics[1]!.slice(-40)}`.toLowerCase();
    const amountAtomic = BigInt(data);
    // Anybody can make ERC-20 transfers of zero from any address; mints come from the zero address.
    if (removed || amountAtomic === 0n || payer === zeroAddress || payer === to.toLowerCase()) continue;
    add(tally, payer, 1, amountAtomic);
  }
  return tally;
}

function add(tally: Tally, payer: string, transfers: number, amountAtomic: bigint): void {
  const earlier = tally.get(payer) ?? { transfers: 0, amountAtomic: 0n };
  tally.set(payer, { transfers: earlier.transfers + transfers, amountAtomic: earlier.amountAtomic + amountAtomic });
}

const textOf = (tally: Tally): string =>
  [...tally]
    .map(([from, { transfers, amountAtomic }]) => `${from} ${transfers} ${amountAtomic}`)
    .sort()
    .join("\n");
