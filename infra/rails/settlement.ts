import {
  type Address,
  erc20Abi,
  type Hex,
  parseAbi,
  parseAbiItem,
  parseEventLogs,
  TransactionReceiptNotFoundError,
} from "viem";
import type { Block, Blocks, Settlement, SettlementQuery } from "./rails.ts";
import { ChainDown, chainRead, createReader, type Reader } from "./rpc.ts";

const NONCES = parseAbi(["function authorizationState(address authorizer, bytes32 nonce) view returns (bool)"]);
/** EIP-3009: emitted once per used authorization, and once per cancelled one. */
const USED = parseAbiItem("event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)");
const CANCELED = parseAbiItem("event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)");
export const TRANSFER_EVENT = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)");

/** Public nodes refuse log questions over more than 10,000 blocks. */
export const BLOCKS_PER_QUESTION = 9_000;

/**
 * When a block no longer vanishes: so many blocks deep (1 = it is in a block), or what the chain's own node calls so
 * (the block tags of the execution API: `safe`, `finalized`).
 */
export type Confirmations = number | "safe" | "finalized";

/** Which money on which chain, as one node tells of it, and when what moved is final. */
export interface TokenAtNode {
  reader: Reader;
  network: string;
  asset: Address;
  confirmations: Confirmations;
  /** EIP-712 name and version of a token that is not among those we know. */
  domain?: { name: string; version: string };
  /** Absent: 6. */
  decimals?: number;
}

/** The same of all nodes of its chain: `reader` takes the answer of any, and serves for what is no verdict. */
export interface TokenOnChain extends TokenAtNode {
  /** Each node by itself, in the order in which they are asked. */
  nodes: readonly TokenAtNode[];
  /** So many have to say the same. */
  agree: number;
}

/** @param options `agree` is 1 when absent; no address at all: every question is `ChainDown` */
export function tokenOnChain(
  options: Omit<TokenAtNode, "reader" | "asset"> & {
    asset: string;
    rpcUrl: string | readonly string[];
    agree?: number;
  },
): TokenOnChain {
  const { rpcUrl, agree = 1, asset, ...money } = options;
  const urls = [rpcUrl].flat();
  if (agree < 1 || (urls.length > 0 && agree > urls.length))
    throw new RangeError(`${agree} of ${urls.length} nodes cannot agree`);
  const readBy = (reader: Reader): TokenAtNode => ({ ...money, reader, asset: asset.toLowerCase() as Address });
  return { ...readBy(createReader(urls)), nodes: urls.map((url) => readBy(createReader(url))), agree };
}

/** A block as a node has it. @throws ChainDown */
export async function blockAt(
  { reader }: TokenAtNode,
  which: number | "latest" | "safe" | "finalized",
): Promise<Block> {
  const asked = typeof which === "number" ? { blockNumber: BigInt(which) } : { blockTag: which };
  const block = await chainRead(`block ${which}`, () => reader.getBlock(asked));
  return { number: Number(block.number), time: Number(block.timestamp) };
}

/** Newest block at or below `head` that no longer vanishes, as the node that has this head says. @throws ChainDown */
export async function finalAt(money: TokenAtNode, head: Block): Promise<Block> {
  const { confirmations } = money;
  if (confirmations === 1) return head;
  const deep = typeof confirmations === "number" ? Math.max(0, head.number - confirmations + 1) : confirmations;
  const final = await blockAt(money, deep);
  // Asked for by its tag, it may be one that the node took in since.
  if (final.number >= head.number) return head;
  if (final.time > head.time) throw new ChainDown(`block ${final.number} is said to be later than ${head.number}`);
  return final;
}

/** A Transfer in a block. Whether it is final, the blocks of the read say that found it. */
export type BlockTransfer = Omit<Settlement, "final">;

export const asSettlement = (moved: BlockTransfer, { final }: Blocks): Settlement => ({
  ...moved,
  final: moved.blockNumber <= final.number,
});

/** Was a nonce of a payer used, or cancelled, up to a block (the newest)? @throws ChainDown */
export const isUsed = (reader: Reader, asset: Address, from: Address, nonce: Hex, blockNumber?: bigint) =>
  chainRead("a nonce", () =>
    reader.readContract({
      ...{ address: asset, abi: NONCES, functionName: "authorizationState", args: [from, nonce] },
      ...(blockNumber === undefined ? {} : { blockNumber }),
    }),
  );

/** Units of the token that an address holds at a block (the newest). @throws ChainDown */
export const balanceOf = (
  { reader, asset }: Pick<TokenAtNode, "reader" | "asset">,
  address: string,
  at?: Block,
): Promise<bigint> =>
  chainRead("a balance", () =>
    reader.readContract({
      ...{ address: asset, abi: erc20Abi, functionName: "balanceOf", args: [address as Address] },
      ...(at ? { blockNumber: BigInt(at.number) } : {}),
    }),
  );

/** What became of one authorization (EIP-3009) up to a block. */
export type NonceFate =
  | { state: "unused" }
  | { state: "used"; moved: BlockTransfer }
  | { state: "cancelled"; tx: string; blockNumber: number };

/**
 * The token's own state at this very block says whether the nonce was used; its logs say how. A node whose logs lag
 * behind its state is not believed. @throws ChainDown also where no log since `sinceBlock` says how it was used
 */
export async function fateOf(money: TokenAtNode, query: SettlementQuery, head: Block): Promise<NonceFate> {
  const { reader, asset } = money;
  const args = { authorizer: query.from as Address, nonce: query.nonce as Hex };
  if (!(await isUsed(reader, asset, args.authorizer, args.nonce, BigInt(head.number)))) return { state: "unused" };
  const [used] = await logsSince(query.sinceBlock, head, (range) =>
    reader.getLogs({ address: asset, event: USED, args, ...range }),
  );
  if (used) {
    const moved = await transferAfter(money, query.from as Address, used);
    if (moved) return { state: "used", moved };
  } else {
    const [canceled] = await logsSince(query.sinceBlock, head, (range) =>
      reader.getLogs({ address: asset, event: CANCELED, args, ...range }),
    );
    if (canceled)
      return { state: "cancelled", tx: canceled.transactionHash, blockNumber: Number(canceled.blockNumber) };
  }
  throw new ChainDown(`nonce ${query.nonce} was used, and no log since block ${query.sinceBlock} says how`);
}

/** The Transfer that a used nonce's own event tells of. */
async function transferAfter(
  money: TokenAtNode,
  from: Address,
  event: { blockNumber: bigint; transactionHash: Hex; logIndex: number },
): Promise<BlockTransfer | null> {
  const { reader, asset } = money;
  const { blockNumber: fromBlock, transactionHash, logIndex } = event;
  const moved = await chainRead("logs", () =>
    reader.getLogs({
      address: asset,
      event: TRANSFER_EVENT,
      args: { from },
      strict: true,
      fromBlock,
      toBlock: fromBlock,
    }),
  );
  // A transaction may settle many authorizations: ours is the payer's first transfer after our nonce's own event.
  const ours = (log: (typeof moved)[number]) => log.transactionHash === transactionHash && log.logIndex > logIndex;
  const transfer = moved.find((log) => ours(log) && !log.removed);
  if (!transfer) return null;
  return { ...(await blockTransferOf(money, transfer)), ...(await senderOf(money, transactionHash)) };
}

/** See `Rail.settlementOf`: the Transfer of a nonce, null where it was not used, or cancelled. @throws ChainDown */
export async function findSettlement(
  money: TokenAtNode,
  query: SettlementQuery,
  head: Block,
): Promise<BlockTransfer | null> {
  const fate = await fateOf(money, query, head);
  return fate.state === "used" ? fate.moved : null;
}

/** Who sent a transaction. A fact beside the settlement: a node that does not tell casts no doubt on the logs. */
async function senderOf({ reader }: TokenAtNode, hash: Hex): Promise<{ sender?: string }> {
  try {
    const { from } = await chainRead("a transaction", () => reader.getTransaction({ hash }));
    return { sender: from.toLowerCase() };
  } catch {
    return {};
  }
}

/** See `Rail.transfers`: oldest first. */
export async function findTransfers(
  money: TokenAtNode,
  query: { from: string; to: string; sinceBlock: number },
  head: Block,
): Promise<BlockTransfer[]> {
  const { reader, asset } = money;
  const args = { from: query.from as Address, to: query.to as Address };
  const logs = await logsSince(query.sinceBlock, head, (range) =>
    reader.getLogs({ address: asset, event: TRANSFER_EVENT, args, strict: true, ...range }),
  );
  return Promise.all(logs.map((log) => blockTransferOf(money, log)));
}

/** See `Rail.transfersIn`. */
export async function findTransfersIn(money: TokenAtNode, tx: string, head: Block): Promise<BlockTransfer[]> {
  const { reader, asset } = money;
  const receipt = await chainRead("a receipt", () => reader.getTransactionReceipt({ hash: tx as Hex })).catch(
    (error: unknown) => {
      if (error instanceof TransactionReceiptNotFoundError) return null;
      throw error;
    },
  );
  if (!receipt || receipt.blockNumber > BigInt(head.number)) return [];
  const logs = parseEventLogs({ abi: [TRANSFER_EVENT], logs: receipt.logs, strict: true });
  const ours = logs.filter(({ address }) => address.toLowerCase() === asset.toLowerCase());
  return Promise.all(ours.map((log) => blockTransferOf(money, log)));
}

/** Logs from a block up to a head, in steps a public node accepts. Those of blocks that vanished are left out. */
export async function logsSince<L extends { removed: boolean }>(
  sinceBlock: number,
  head: Block,
  ask: (range: { fromBlock: bigint; toBlock: bigint }) => Promise<L[]>,
): Promise<L[]> {
  const logs: L[] = [];
  for (let from = sinceBlock; from <= head.number; from += BLOCKS_PER_QUESTION) {
    const to = Math.min(from + BLOCKS_PER_QUESTION - 1, head.number);
    const found = await chainRead("logs", () => ask({ fromBlock: BigInt(from), toBlock: BigInt(to) }));
    logs.push(...found.filter((log) => !log.removed));
  }
  return logs;
}

/**
 * A node without a block refuses its logs by its hash (EIP-234), where a range past its end may come back empty.
 * @throws ChainDown
 */
export async function requireLogsOf({ reader, asset }: TokenAtNode, { number }: Block): Promise<void> {
  const { hash } = await chainRead("a block", () => reader.getBlock({ blockNumber: BigInt(number) }));
  await chainRead("logs of a block", () => reader.getLogs({ address: asset, blockHash: hash }));
}

export interface TransferLog {
  transactionHash: string;
  blockNumber: bigint;
  args: { from: Address; to: Address; value: bigint };
}

/** A Transfer with the time of its block. @throws ChainDown */
export async function blockTransferOf(money: TokenAtNode, log: TransferLog): Promise<BlockTransfer> {
  const { number, time } = await blockAt(money, Number(log.blockNumber));
  return {
    tx: log.transactionHash,
    blockNumber: number,
    blockTime: time,
    from: log.args.from.toLowerCase(),
    to: log.args.to.toLowerCase(),
    amountAtomic: log.args.value,
    asset: money.asset,
    network: money.network,
    ...(money.decimals === undefined || money.decimals === 6 ? {} : { decimals: money.decimals }),
  };
}
