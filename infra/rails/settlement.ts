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

const NONCE_ABI = parseAbi(["function authorizationState(address authorizer, bytes32 nonce) view returns (bool)"]);
/** Events of EIP-3009, emitted once for each used and each cancelled authorization. */
const USED_EVENT = parseAbiItem("event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)");
const CANCELED_EVENT = parseAbiItem("event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)");
export const TRANSFER_EVENT = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)");

/** Largest number of blocks of one log request; public nodes refuse more than 10,000. */
export const MAX_BLOCKS_PER_REQUEST = 9_000;

/**
 * The search for the logs of one payment begins this many blocks (some minutes) before the block that was the newest
 * when the payment was signed or claimed. The payment may be in an earlier block than that one: the chain may have
 * replaced blocks by fewer ones, and the node that verified the payment may have been behind ours. Beginning too early
 * is harmless, since the search is by a nonce, memo or hash that moves money only once.
 */
export const SEARCH_MARGIN_BLOCKS = 300;

/**
 * When a block counts as final: at a number of confirmations (1 = the transaction is in a block), or by a block tag
 * of the execution API.
 */
export type Confirmations = number | "safe" | "finalized";

/** One token on one chain, read through one node. */
export interface TokenAtNode {
  reader: Reader;
  network: string;
  asset: Address;
  confirmations: Confirmations;
  /** EIP-712 name and version; only needed for a token that `signingDomain` does not know. */
  domain?: { name: string; version: string };
  /** Decimals of the token; 6 when absent. */
  decimals?: number;
}

/**
 * One token on one chain, read through all nodes of the chain. `reader` takes the answer of the first node that
 * responds; it is not used for reads that decide whether money moved.
 */
export interface TokenOnChain extends TokenAtNode {
  /** The nodes, in the order in which they are asked. */
  nodes: readonly TokenAtNode[];
  /** Number of nodes that have to give the same answer. */
  agree: number;
}

/**
 * Creates access to a token through the nodes of its chain. Without a node every read throws ChainDown.
 * @param options `agree` is 1 when absent
 * @throws RangeError when `agree` is below 1 or above the number of nodes
 */
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
  const throughReader = (reader: Reader): TokenAtNode => ({ ...money, reader, asset: asset.toLowerCase() as Address });
  return { ...throughReader(createReader(urls)), nodes: urls.map((url) => throughReader(createReader(url))), agree };
}

/** Reads a block of one node. @throws ChainDown */
export async function blockAt(
  { reader }: TokenAtNode,
  blockId: number | "latest" | "safe" | "finalized",
): Promise<Block> {
  const blockQuery = typeof blockId === "number" ? { blockNumber: BigInt(blockId) } : { blockTag: blockId };
  const block = await chainRead(`block ${blockId}`, () => reader.getBlock(blockQuery));
  const [number, time] = [Number(block.number), Number(block.timestamp)];
  if (!Number.isSafeInteger(number) || !Number.isSafeInteger(time))
    throw new ChainDown(`a node gives block ${blockId} without a number or a time`);
  return { number, time };
}

/** Reads the newest final block at or below `head`, from the node that gave this head. @throws ChainDown */
export async function finalAt(money: TokenAtNode, head: Block): Promise<Block> {
  const { confirmations } = money;
  if (confirmations === 1) return head;
  const finalBlockId = typeof confirmations === "number" ? Math.max(0, head.number - confirmations + 1) : confirmations;
  const final = await blockAt(money, finalBlockId);
  // The block of a tag may be newer than `head` when the node has advanced since.
  if (final.number >= head.number) return head;
  if (final.time > head.time) throw new ChainDown(`block ${final.number} is said to be later than ${head.number}`);
  return final;
}

/** A Transfer in a block. The blocks of the read that found it decide whether it is final. */
export type BlockTransfer = Omit<Settlement, "final">;

/** Adds to a transfer whether its block is final as of a read. */
export const asSettlement = (moved: BlockTransfer, { final }: Blocks): Settlement => ({
  ...moved,
  final: moved.blockNumber <= final.number,
});

/** Reports whether a payer's nonce is used or cancelled, at a block or at the newest one. @throws ChainDown */
export const isUsed = (reader: Reader, asset: Address, from: Address, nonce: Hex, blockNumber?: bigint) =>
  chainRead("a nonce", () =>
    reader.readContract({
      ...{ address: asset, abi: NONCE_ABI, functionName: "authorizationState", args: [from, nonce] },
      ...(blockNumber === undefined ? {} : { blockNumber }),
    }),
  );

/** Reads the atomic units of the token that an address holds, at a block or at the newest one. @throws ChainDown */
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

/** State of one EIP-3009 authorization as of a block. */
export type NonceState =
  | { state: "unused" }
  | { state: "used"; moved: BlockTransfer }
  /** The nonce was used or cancelled before the first block that is searched, so not by the payment in question. */
  | { state: "used_before" }
  | { state: "cancelled"; tx: string; blockNumber: number };

/**
 * Reads the state of an authorization from one node: the token's state at block `head` shows whether the nonce is
 * used, and the token's logs show by which event. Where they do not, the token's state at the first block that is
 * searched shows whether the nonce was used before that block.
 * @throws ChainDown also when it was not used before and the logs do not show how, since the node's logs then lag
 * behind its state; and when the node has no state of that block any more
 */
export async function nonceStateOf(money: TokenAtNode, query: SettlementQuery, head: Block): Promise<NonceState> {
  const { reader, asset } = money;
  const args = { authorizer: query.from as Address, nonce: query.nonce as Hex };
  if (!(await isUsed(reader, asset, args.authorizer, args.nonce, BigInt(head.number)))) return { state: "unused" };
  const [usedEvent] = await logsOfPayment(query.sinceBlock, head, (range) =>
    reader.getLogs({ address: asset, event: USED_EVENT, args, ...range }),
  );
  if (usedEvent) {
    const moved = await findTransferOfNonce(money, query.from as Address, usedEvent);
    if (moved) return { state: "used", moved };
  } else {
    const [canceledEvent] = await logsOfPayment(query.sinceBlock, head, (range) =>
      reader.getLogs({ address: asset, event: CANCELED_EVENT, args, ...range }),
    );
    if (canceledEvent)
      return { state: "cancelled", tx: canceledEvent.transactionHash, blockNumber: Number(canceledEvent.blockNumber) };
    const firstBlock = firstBlockOf(query.sinceBlock);
    const wasUsedBefore = () => isUsed(reader, asset, args.authorizer, args.nonce, BigInt(firstBlock));
    if (firstBlock <= head.number && (await wasUsedBefore())) return { state: "used_before" };
  }
  throw new ChainDown(`nonce ${query.nonce} was used, and no log since block ${query.sinceBlock} says how`);
}

/** Returns the Transfer that belongs to an AuthorizationUsed event, or null. @throws ChainDown */
async function findTransferOfNonce(
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
  const isOfNonce = (log: (typeof moved)[number]) => log.transactionHash === transactionHash && log.logIndex > logIndex;
  const transfer = moved.find((log) => isOfNonce(log) && !log.removed);
  if (!transfer) return null;
  return { ...(await blockTransferOf(money, transfer)), ...(await senderOf(money, transactionHash)) };
}

/**
 * Reads the Transfer that used a nonce from one node; null when the nonce is unused or cancelled, or was used before
 * the first block that is searched. See `Rail.settlementOf`.
 * @throws ChainDown
 */
export async function findSettlement(
  money: TokenAtNode,
  query: SettlementQuery,
  head: Block,
): Promise<BlockTransfer | null> {
  const nonceState = await nonceStateOf(money, query, head);
  return nonceState.state === "used" ? nonceState.moved : null;
}

/** Reads the sender of a transaction; empty when the node does not answer, since the settlement is valid without it. */
async function senderOf({ reader }: TokenAtNode, hash: Hex): Promise<{ sender?: string }> {
  try {
    const { from } = await chainRead("a transaction", () => reader.getTransaction({ hash }));
    return { sender: from.toLowerCase() };
  } catch {
    return {};
  }
}

/** Reads transfers between two addresses from one node, oldest first. See `Rail.transfers`. @throws ChainDown */
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

/** Reads the transfers of one transaction from one node. See `Rail.transfersIn`. @throws ChainDown */
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
  const tokenLogs = logs.filter(({ address }) => address.toLowerCase() === asset.toLowerCase());
  return Promise.all(tokenLogs.map((log) => blockTransferOf(money, log)));
}

/** Returns the first block in which a payment's logs are searched. */
const firstBlockOf = (sinceBlock: number): number => Math.max(0, sinceBlock - SEARCH_MARGIN_BLOCKS);

/**
 * Reads the logs of one payment, by its nonce, memo or hash, up to a head.
 * @param sinceBlock block that was the newest when the payment was signed or claimed
 * @throws ChainDown
 */
export const logsOfPayment: typeof logsSince = (sinceBlock, head, ask) =>
  logsSince(firstBlockOf(sinceBlock), head, ask);

/**
 * Reads logs from a block up to a head, in ranges that public nodes accept. Logs of replaced blocks are left out.
 * @throws ChainDown
 */
async function logsSince<L extends { removed: boolean }>(
  sinceBlock: number,
  head: Block,
  ask: (range: { fromBlock: bigint; toBlock: bigint }) => Promise<L[]>,
): Promise<L[]> {
  const logs: L[] = [];
  for (let from = sinceBlock; from <= head.number; from += MAX_BLOCKS_PER_REQUEST) {
    const to = Math.min(from + MAX_BLOCKS_PER_REQUEST - 1, head.number);
    const rangeLogs = await chainRead("logs", () => ask({ fromBlock: BigInt(from), toBlock: BigInt(to) }));
    logs.push(...rangeLogs.filter((log) => !log.removed));
  }
  return logs;
}

/**
 * Checks that a node has a block, by requesting the block's logs by hash. A node without the block refuses that
 * (EIP-234), whereas it may return an empty list for a range of block numbers past its newest block.
 * @throws ChainDown
 */
export async function requireLogsOf({ reader, asset }: TokenAtNode, { number }: Block): Promise<void> {
  const { hash } = await chainRead("a block", () => reader.getBlock({ blockNumber: BigInt(number) }));
  await chainRead("logs of a block", () => reader.getLogs({ address: asset, blockHash: hash }));
}

/** The fields of the log of a Transfer that are read here. */
export interface TransferLog {
  transactionHash: string;
  blockNumber: bigint;
  args: { from: Address; to: Address; value: bigint };
}

/** Converts the log of a Transfer, and reads the time of its block. @throws ChainDown */
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
