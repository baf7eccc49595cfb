import { type Address, type Hex, parseAbiItem, parseEventLogs, TransactionReceiptNotFoundError } from "viem";
import type { Settlement, SettlementQuery } from "./rails.ts";
import { type Reader, reading } from "./rpc.ts";

/** EIP-3009: emitted once per used authorization. A cancelled one emits another event, so it never looks settled. */
const AUTHORIZATION_USED = parseAbiItem("event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)");
export const TRANSFER = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)");

/** Public nodes refuse log questions over more than 10,000 blocks. */
export const BLOCKS_PER_QUESTION = 9_000;

/**
 * When a block no longer vanishes: so many blocks deep (1 = it is in a block), or what the chain's own node calls so
 * (the block tags of the execution API: `safe`, `finalized`).
 */
export type Confirmations = number | "safe" | "finalized";

/** Which money on which chain, and when what moved is final. */
export interface Money {
  reader: Reader;
  network: string;
  asset: Address;
  confirmations: Confirmations;
  /** EIP-712 name and version of a token that is not among those we know. */
  domain?: { name: string; version: string };
  /** Absent: 6. */
  decimals?: number;
}

/** Newest block that is final, when the newest of all is `head`. @throws ChainDown */
export async function newestFinal({ reader, confirmations }: Money, head: bigint): Promise<bigint> {
  if (typeof confirmations === "number") return head - BigInt(confirmations) + 1n;
  return (await reading("its final block", () => reader.getBlock({ blockTag: confirmations }))).number;
}

/** See `Rail.settlementOf`. Believes only logs: first the nonce's own event, then the transfer that follows it. */
export async function findSettlement(money: Money, query: SettlementQuery): Promise<Settlement | null> {
  const { reader, asset } = money;
  const from = query.from as Address;
  const used = await logsSince(money, query.sinceBlock, (fromBlock, toBlock) =>
    reader.getLogs({
      address: asset,
      event: AUTHORIZATION_USED,
      args: { authorizer: from, nonce: query.nonce as Hex },
      fromBlock,
      toBlock,
    }),
  );
  const event = used.logs[0];
  if (!event) return null;
  const block = event.blockNumber;
  const moved = await reading("logs", () =>
    reader.getLogs({ address: asset, event: TRANSFER, args: { from }, strict: true, fromBlock: block, toBlock: block }),
  );
  // A transaction may settle many authorizations: ours is the payer's first transfer after our nonce's own event.
  const transfer = moved.find(
    (log) => log.transactionHash === event.transactionHash && log.logIndex > event.logIndex && !log.removed,
  );
  if (!transfer) return null;
  const settlement = await toSettlement(money, transfer, await newestFinal(money, used.head));
  return { ...settlement, ...(await senderOf(money, transfer.transactionHash)) };
}

/** Who sent a transaction. A fact beside the settlement: a node that does not tell casts no doubt on the logs. */
async function senderOf({ reader }: Money, hash: Hex): Promise<{ sender?: string }> {
  try {
    const { from } = await reading("a transaction", () => reader.getTransaction({ hash }));
    return { sender: from.toLowerCase() };
  } catch {
    return {};
  }
}

/** See `Rail.transfers`: oldest first. */
export async function findTransfers(
  money: Money,
  query: { from: string; to: string; sinceBlock: number },
): Promise<Settlement[]> {
  const { reader, asset } = money;
  const args = { from: query.from as Address, to: query.to as Address };
  const { logs, head } = await logsSince(money, query.sinceBlock, (fromBlock, toBlock) =>
    reader.getLogs({ address: asset, event: TRANSFER, args, strict: true, fromBlock, toBlock }),
  );
  if (logs.length === 0) return [];
  const final = await newestFinal(money, head);
  return Promise.all(logs.map((log) => toSettlement(money, log, final)));
}

/** See `Rail.transfersIn`. */
export async function findTransfersIn(money: Money, tx: string): Promise<Settlement[]> {
  const { reader, asset } = money;
  const found = await reading("a receipt", async () => {
    const head = await reader.getBlockNumber({ cacheTime: 0 });
    return { head, receipt: await reader.getTransactionReceipt({ hash: tx as Hex }) };
  }).catch((error: unknown) => {
    if (error instanceof TransactionReceiptNotFoundError) return null;
    throw error;
  });
  if (!found) return [];
  const logs = parseEventLogs({ abi: [TRANSFER], logs: found.receipt.logs, strict: true });
  const ours = logs.filter(({ address }) => address.toLowerCase() === asset.toLowerCase());
  return Promise.all(ours.map((log) => toSettlement(money, log, found.head)));
}

/** Ask for logs from a block to the head, in steps a public node accepts. Logs of blocks that vanished are left out. */
export async function logsSince<L extends { removed: boolean }>(
  money: Money,
  sinceBlock: number,
  ask: (fromBlock: bigint, toBlock: bigint) => Promise<L[]>,
): Promise<{ logs: L[]; head: bigint }> {
  const head = await reading("its head", () => money.reader.getBlockNumber({ cacheTime: 0 }));
  const logs: L[] = [];
  for (let from = BigInt(sinceBlock); from <= head; from += BigInt(BLOCKS_PER_QUESTION)) {
    const to = from + BigInt(BLOCKS_PER_QUESTION) - 1n;
    const found = await reading("logs", () => ask(from, to < head ? to : head));
    logs.push(...found.filter((log) => !log.removed));
  }
  return { logs, head };
}

export interface TransferLog {
  transactionHash: string;
  blockNumber: bigint;
  args: { from: Address; to: Address; value: bigint };
}

export async function toSettlement(money: Money, log: TransferLog, newest: bigint): Promise<Settlement> {
  const { blockNumber } = log;
  const block = await reading("a block", () => money.reader.getBlock({ blockNumber }));
  return {
    tx: log.transactionHash,
    blockNumber: Number(blockNumber),
    blockTime: Number(block.timestamp),
    from: log.args.from.toLowerCase(),
    to: log.args.to.toLowerCase(),
    amountAtomic: log.args.value,
    asset: money.asset,
    network: money.network,
    final: blockNumber <= newest,
    ...(money.decimals === undefined || money.decimals === 6 ? {} : { decimals: money.decimals }),
  };
}
