import {
  type Address,
  BaseError,
  encodeFunctionData,
  formatGwei,
  formatTransactionReceipt,
  type Hex,
  keccak256,
} from "viem";
import { type LocalAccount, privateKeyToAccount } from "viem/accounts";
import { BoundedMap } from "../bounded-map.ts";
import { systemClock } from "../clock.ts";
import { Failure } from "../errors.ts";
import { redact } from "../secrets.ts";
import { ChainDown, isTransportError, type Reader, revertIn } from "./rpc.ts";

/** Default gas limit, ample for one EIP-3009 transfer. */
const DEFAULT_GAS = 250_000n;
/** Time for which fees from a node are used, real ms. */
const FEES_LIFETIME_MS = 10_000;
/** Factor by which the base fee may rise while fees from a node are used. */
const BASE_FEE_FACTOR = 2n;
const MAX_ATTEMPTS = 12;
const RECEIPT_TIMEOUT_MS = 15_000;
/**
 * Longest wait for the cost of a transaction, real ms. It is short, since the next step of an order (a bought call)
 * waits for it.
 */
const COST_TIMEOUT_MS = 3_000;
/** Number of transactions whose gas costs are remembered. */
const MAX_REMEMBERED_COSTS = 1_000;
/** Number of sent transactions whose calls are remembered, and of calls whose late transactions are remembered. */
const MAX_REMEMBERED_CALLS = 1_000;

export interface ContractCall {
  address: Address;
  abi: readonly unknown[];
  functionName: string;
  args?: readonly unknown[];
  /** Gas limit; 250,000 when absent. */
  gas?: bigint;
}

/**
 * The outcome of an attempt to move money. Only the chain decides whether money moved: a `sent` transaction is in a
 * block that may still be replaced, a `refused` one may be the second of two attempts of which the first settled, and
 * an `unknown` one may settle later.
 */
export type Outcome =
  | { outcome: "sent"; tx: string }
  | { outcome: "refused"; reason: string; tx?: string }
  | { outcome: "unknown"; says: string; tx?: string };

/** Thrown when the simulation of a call against the newest block reverts. Nothing was sent. */
export class WouldRevert extends Failure {
  /** @param reason the name of the contract's error, or its message */
  constructor(readonly reason: string) {
    super("failed", `the call would revert: ${reason}`);
  }
}

/** Sends transactions of one key. Each call is simulated first, so that nothing is sent that would revert now. */
export interface Sender {
  readonly address: Address;
  /**
   * Simulates a call against the newest block, signs it and sends it. Resolves with the hash when the node has
   * accepted the transaction. Callers may run in parallel. A call whose earlier transaction had no receipt in time is
   * not sent again while that transaction is in a block or can still enter one: its hash is returned instead, since
   * two transactions of one call pay gas twice.
   * @throws WouldRevert, ChainDown, and the error with which a node refuses it
   */
  write(call: ContractCall): Promise<Hex>;
  /** Waits for a receipt. @throws ChainDown after 15 s without one; the transaction may still be mined later */
  receipt(hash: Hex): Promise<Awaited<ReturnType<Reader["getTransactionReceipt"]>>>;
  /**
   * Returns what a transaction of this key cost in wei, from its receipt: `effectiveGasPrice` x `gasUsed`, plus
   * `l1Fee` of a rollup. Null when another key sent it, it is in no block, its receipt names no price, or no node
   * answers within 3 s. Never rejects: costs are bookkeeping, and a settlement is recorded without them.
   */
  spent(tx: string): Promise<bigint | null>;
}

/** Returns the smallest power of `base` that is at least `wei`. */
function roundUpToPower(base: bigint, wei: bigint): bigint {
  let power = 1n;
  while (power < wei) power *= base;
  return power;
}

/**
 * Estimates the fees to offer, rounded up to powers of 4 (fee) and 2 (tip). Rounding matters when a second process
 * with this key sends under the same nonce: a node replaces a transaction by one that offers more, so without
 * rounding the second process could replace our transaction instead of being refused and taking the next nonce. Only
 * the block's base fee and the tip are paid.
 *
 * A node could name any tip, and the tip is paid in full. So nothing is sent while the fee is above the ceiling, and
 * no offer exceeds the ceiling.
 */
function createFeeEstimator(reader: Reader, ceiling: bigint | null) {
  let fees: { maxFeePerGas: bigint; maxPriorityFeePerGas: bigint; at: number } | null = null;
  async function now() {
    if (fees && performance.now() - fees.at < FEES_LIFETIME_MS) return fees;
    const { maxFeePerGas, maxPriorityFeePerGas } = await reader.estimateFeesPerGas();
    if (ceiling !== null && maxFeePerGas > ceiling)
      throw new Error(`gas costs ${formatGwei(maxFeePerGas)} gwei, and gas_ceiling_gwei is ${formatGwei(ceiling)}`);
    const [maxFee, tip] = [
      roundUpToPower(4n, maxFeePerGas * BASE_FEE_FACTOR),
      roundUpToPower(2n, maxPriorityFeePerGas),
    ].map((wei) => (ceiling !== null && wei > ceiling ? ceiling : wei)) as [bigint, bigint];
    fees = { maxFeePerGas: maxFee, maxPriorityFeePerGas: tip, at: performance.now() };
    return fees;
  }
  const forget = () => {
    fees = null;
  };
  return { now, forget };
}

/** Reads and remembers the gas costs of the transactions that one address sent. */
function createCostReader(reader: Reader, address: Address) {
  const costs = new BoundedMap<string, bigint>(MAX_REMEMBERED_COSTS);
  /** Returns the cost in a receipt; null when another key sent the transaction or the node left a field out. */
  function costOf(receipt: Awaited<ReturnType<Sender["receipt"]>>): bigint | null {
    try {
      if (receipt.from.toLowerCase() !== address.toLowerCase()) return null;
      // Rollups name here what the chain below them (L1) charges for the transaction's bytes. viem passes this field
      // through unparsed.
      const { l1Fee = 0n } = receipt as { l1Fee?: Hex | bigint | null };
      // viem makes a missing field null, although its type does not say so; multiplying null throws.
      const cost = receipt.effectiveGasPrice * receipt.gasUsed + BigInt(l1Fee ?? 0n);
      costs.set(receipt.transactionHash.toLowerCase(), cost);
      return cost;
    } catch {
      return null;
    }
  }

  async function readCost(tx: string): Promise<bigint | null> {
    const timerController = new AbortController();
    const timeout = systemClock.sleep(COST_TIMEOUT_MS, timerController.signal).then(() => null);
    const costRequest = reader.getTransactionReceipt({ hash: tx as Hex }).then(costOf);
    const cost = await Promise.race([costRequest, timeout]).catch(() => null);
    timerController.abort();
    return cost;
  }
  const spent = async (tx: string) => costs.get(tx.toLowerCase()) ?? readCost(tx);
  return { costOf, spent };
}

/**
 * Creates the sender of one key. It sends one transaction at a time, so that nonces neither skip nor clash: a
 * transaction is signed when the node has accepted the one before. When another process with the same key takes a
 * nonce, the nonce is read again.
 * @param ceiling most wei that a unit of gas may cost, including the tip; null for no limit
 */
export function createSender(
  reader: Reader,
  chainId: number,
  key: Hex | LocalAccount,
  ceiling: bigint | null = null,
): Sender {
  const account = typeof key === "string" ? privateKeyToAccount(key) : key;
  const fees = createFeeEstimator(reader, ceiling);
  const { costOf, spent } = createCostReader(reader, account.address);
  let nonce: number | null = null;
  let lastSend: Promise<unknown> = Promise.resolve();
  /** Text of the call (address and data) of each transaction that was sent, by the transaction's hash. */
  const callOf = new BoundedMap<Hex, string>(MAX_REMEMBERED_CALLS);
  /** Hash of the transaction of each call that had no receipt in time, by the text of the call. */
  const lateTransactionOf = new BoundedMap<string, Hex>(MAX_REMEMBERED_CALLS);

  /**
   * Returns the late transaction of a call while it may still take effect; null if there is none, the node no longer
   * knows it, or it waits behind an unused nonce.
   */
  async function findLate(callText: string): Promise<Hex | null> {
    const hash = lateTransactionOf.get(callText);
    if (hash === undefined) return null;
    const transaction = await reader.getTransaction({ hash }).catch(() => null);
    if (!transaction) return null;
    if (transaction.blockNumber !== null) return hash;
    const nextNonce = await reader.getTransactionCount({ address: account.address, blockTag: "pending" });
    return transaction.nonce < nextNonce ? hash : null;
  }

  async function sendNext(to: Address, data: Hex, gas = DEFAULT_GAS): Promise<Hex> {
    for (let attempt = 1; ; attempt++) {
      let hash: Hex | null = null;
      try {
        nonce ??= await reader.getTransactionCount({ address: account.address, blockTag: "pending" });
        const { maxFeePerGas, maxPriorityFeePerGas } = await fees.now();
        const feeFields = { maxFeePerGas, maxPriorityFeePerGas };
        const transaction = { type: "eip1559", chainId, nonce, to, data, gas, ...feeFields } as const;
        const signedTransaction = await account.signTransaction(transaction);
        hash = keccak256(signedTransaction);
        await reader.request({ method: "eth_sendRawTransaction", params: [signedTransaction] });
        nonce += 1;
        return hash;
      } catch (error) {
        // After any error the nonce is read again, and the fees too unless the error was about the nonce.
        nonce = null;
        if (!/nonce|already|replacement/i.test(String(error))) fees.forget();
        // The node accepted the transaction and its answer was lost: sending it again would make two transactions.
        if (hash && (await reader.getTransaction({ hash }).catch(() => null))) return hash;
        if (attempt === MAX_ATTEMPTS || !/nonce|underpriced|already/i.test(String(error))) throw error;
        // A random pause, since two processes that retry at the same pace would clash again.
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 4 * attempt));
      }
    }
  }

  return {
    address: account.address,
    spent,
    async write(call) {
      const data = encodeFunctionData({ abi: call.abi, functionName: call.functionName, args: call.args });
      const callText = `${call.address} ${data}`;
      const late = await findLate(callText);
      if (late !== null) return late;
      const revertReason = await whyItWouldRevert(reader, account.address, call);
      if (revertReason !== null) throw new WouldRevert(revertReason);
      const sending = lastSend.then(() => sendNext(call.address, data, call.gas));
      lastSend = sending.catch(() => {});
      const hash = await sending;
      callOf.set(hash, callText);
      return hash;
    },
    async receipt(hash) {
      try {
        const receipt = await waitForReceipt(reader, hash);
        costOf(receipt);
        lateTransactionOf.delete(callOf.get(hash) ?? "");
        return receipt;
      } catch (error) {
        // The node may have dropped the transaction. Unless the nonce is read again, the unused nonce would block all
        // later transactions.
        nonce = null;
        const callText = callOf.get(hash);
        if (callText !== undefined) lateTransactionOf.set(callText, hash);
        throw error;
      }
    },
  };
}

/**
 * Polls for a receipt with a raw request, which returns null until there is one; the client's own method would create
 * an error at each poll.
 * @throws ChainDown after 15 s
 */
async function waitForReceipt(reader: Reader, hash: Hex): ReturnType<Sender["receipt"]> {
  const deadline = performance.now() + RECEIPT_TIMEOUT_MS;
  for (let wait = 2; ; wait = Math.min(wait * 2, 250)) {
    const receipt = await reader.request({ method: "eth_getTransactionReceipt", params: [hash] });
    if (receipt) return formatTransactionReceipt(receipt);
    if (performance.now() > deadline) throw new ChainDown(`transaction ${hash} is not mined`);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

const MAX_ERROR_CHARS = 300;

/**
 * Returns an error's message in a form that may be recorded and published: at most 300 characters, without the secrets
 * of this process.
 */
export function errorText(error: unknown): string {
  const text = error instanceof BaseError ? error.shortMessage : error instanceof Error ? error.message : String(error);
  return redact(text).slice(0, MAX_ERROR_CHARS);
}

/** Simulates a call against the newest block. Returns the revert's name or message, or null. @throws ChainDown */
export async function whyItWouldRevert(reader: Reader, from: Address, call: ContractCall): Promise<string | null> {
  try {
    await reader.simulateContract({ ...call, account: from, gas: call.gas ?? DEFAULT_GAS });
    return null;
  } catch (error) {
    const revertError = revertIn(error);
    if (revertError)
      return errorText(revertError.data?.errorName ?? revertError.reason ?? revertError.signature ?? "reverted");
    if (isTransportError(error))
      throw new ChainDown(`the chain cannot be asked: ${error.shortMessage}`, { cause: error });
    throw error;
  }
}

/** Sends a call and waits for its receipt. Never throws for what the chain or the transport does. */
export async function transact(sender: Sender, call: ContractCall): Promise<Outcome> {
  let tx: Hex | undefined;
  try {
    tx = await sender.write(call);
    const { status } = await sender.receipt(tx);
    return status === "success" ? { outcome: "sent", tx } : { outcome: "refused", reason: "reverted", tx };
  } catch (error) {
    if (error instanceof WouldRevert) return { outcome: "refused", reason: error.reason };
    return { outcome: "unknown", says: errorText(error), ...(tx && { tx }) };
  }
}
