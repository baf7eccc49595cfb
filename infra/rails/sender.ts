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

/** Ample for one EIP-3009 transfer. */
const GAS = 250_000n;
/** How long fees that a node named are offered, real ms; and how much the base fee may rise meanwhile. */
const FEES_MS = 10_000;
const RISE = 2n;
const ATTEMPTS = 12;
const RECEIPT_WITHIN_MS = 15_000;
/** How long a node may take to say what a transaction cost, real ms: the step that tells of it waits for that. */
const COST_WITHIN_MS = 3_000;
/** Costs of transactions that are remembered, the newest. */
const COSTS_KEPT = 1_000;

export interface ContractCall {
  address: Address;
  abi: readonly unknown[];
  functionName: string;
  args?: readonly unknown[];
  /** Most that it may use; 250,000 when absent. */
  gas?: bigint;
}

/**
 * What came of an attempt to move money. Only the chain says whether it moved: `sent` is in a block that may still
 * vanish, `refused` may be about a second attempt while the first one settled, and `unknown` is never a failure.
 */
export type Outcome =
  | { outcome: "sent"; tx: string }
  | { outcome: "refused"; reason: string; tx?: string }
  | { outcome: "unknown"; says: string; tx?: string };

/** Tried against the newest block, it would be undone: nothing was sent. */
export class WouldRevert extends Failure {
  /** @param reason the error's name, or its words */
  constructor(readonly reason: string) {
    super("failed", `it would revert: ${reason}`);
  }
}

/** The one way in which a key of ours sends: nothing leaves that would be undone as of the newest block. */
export interface Sender {
  readonly address: Address;
  /**
   * Try it against the newest block, sign and send; resolves with the hash once the node took it. Callers may run in
   * parallel. @throws WouldRevert, ChainDown, and what a node refuses it with
   */
  write(call: ContractCall): Promise<Hex>;
  /** The receipt, once mined. Throws `ChainDown` after 15 s without one: the transaction may still be mined later. */
  receipt(hash: Hex): Promise<Awaited<ReturnType<Reader["getTransactionReceipt"]>>>;
  /**
   * What a transaction of this key cost, wei, as its receipt has it (`effectiveGasPrice` x `gasUsed`, and `l1Fee` where the
   * chain adds one); null where another key sent it, it is in no block, its receipt names no price, or nobody says so within
   * 3 s. Never rejects: it is bookkeeping, and money that moved is told without it.
   */
  spent(tx: string): Promise<bigint | null>;
}

/** The least power of `base` that is no less than this. */
function upTo(base: bigint, wei: bigint): bigint {
  let power = 1n;
  while (power < wei) power *= base;
  return power;
}

/**
 * What this chain takes now: on one a thousandth of what another wants. Only the base fee of the block and the tip are
 * paid. In steps: of two transactions under one nonce a node keeps the one that offers more, so a second process with
 * this key that had asked a moment later would take the place of ours, instead of being refused and going on behind it.
 *
 * A tip is paid in full, whoever made it up: past the ceiling nothing is sent, and what is sent offers no more.
 */
function feesOf(reader: Reader, ceiling: bigint | null) {
  let fees: { maxFeePerGas: bigint; maxPriorityFeePerGas: bigint; at: number } | null = null;
  async function now() {
    if (fees && performance.now() - fees.at < FEES_MS) return fees;
    const { maxFeePerGas, maxPriorityFeePerGas } = await reader.estimateFeesPerGas();
    if (ceiling !== null && maxFeePerGas > ceiling)
      throw new Error(`gas costs ${formatGwei(maxFeePerGas)} gwei, and gas_ceiling_gwei is ${formatGwei(ceiling)}`);
    const [most, tip] = [upTo(4n, maxFeePerGas * RISE), upTo(2n, maxPriorityFeePerGas)].map((wei) =>
      ceiling !== null && wei > ceiling ? ceiling : wei,
    ) as [bigint, bigint];
    fees = { maxFeePerGas: most, maxPriorityFeePerGas: tip, at: performance.now() };
    return fees;
  }
  const forget = () => {
    fees = null;
  };
  return { now, forget };
}

/** What the transactions of this key cost. */
function costsOf(reader: Reader, address: Address) {
  const costs = new BoundedMap<string, bigint>(COSTS_KEPT);
  /** Null also where a node left out what it is made of, or wrote it otherwise: the transaction is mined all the same. */
  function costOf(receipt: Awaited<ReturnType<Sender["receipt"]>>): bigint | null {
    try {
      if (receipt.from.toLowerCase() !== address.toLowerCase()) return null;
      // Of rollups: what their own chain charges for the bytes. A member that viem passes on as it came.
      const { l1Fee = 0n } = receipt as { l1Fee?: Hex | bigint | null };
      // Of a member that is missing viem makes a null, whatever its type says; multiplied, that throws.
      const cost = receipt.effectiveGasPrice * receipt.gasUsed + BigInt(l1Fee ?? 0n);
      costs.set(receipt.transactionHash.toLowerCase(), cost);
      return cost;
    } catch {
      return null;
    }
  }

  async function costNow(tx: string): Promise<bigint | null> {
    const enough = new AbortController();
    const late = systemClock.sleep(COST_WITHIN_MS, enough.signal).then(() => null);
    const asked = reader.getTransactionReceipt({ hash: tx as Hex }).then(costOf);
    const cost = await Promise.race([asked, late]).catch(() => null);
    enough.abort();
    return cost;
  }
  const spent = async (tx: string) => costs.get(tx.toLowerCase()) ?? costNow(tx);
  return { costOf, spent };
}

/**
 * Sends transactions of one key in one line, so that nonces never skip and never clash: the next one is signed when
 * the node has taken the one before. Another process with the same key is met by asking for the nonce anew.
 * @param ceiling wei that a unit of gas may cost, tip and all; null: whatever the node names
 */
export function createSender(
  reader: Reader,
  chainId: number,
  key: Hex | LocalAccount,
  ceiling: bigint | null = null,
): Sender {
  const account = typeof key === "string" ? privateKeyToAccount(key) : key;
  const fees = feesOf(reader, ceiling);
  const { costOf, spent } = costsOf(reader, account.address);
  let nonce: number | null = null;
  let line: Promise<unknown> = Promise.resolve();

  async function sendNext(to: Address, data: Hex, gas = GAS): Promise<Hex> {
    for (let attempt = 1; ; attempt++) {
      let hash: Hex | null = null;
      try {
        nonce ??= await reader.getTransactionCount({ address: account.address, blockTag: "pending" });
        const { maxFeePerGas, maxPriorityFeePerGas } = await fees.now();
        const offered = { maxFeePerGas, maxPriorityFeePerGas };
        const transaction = { type: "eip1559", chainId, nonce, to, data, gas, ...offered } as const;
        const signed = await account.signTransaction(transaction);
        hash = keccak256(signed);
        await reader.request({ method: "eth_sendRawTransaction", params: [signed] });
        nonce += 1;
        return hash;
      } catch (error) {
        // Whatever went wrong, what we believe of the nonce is worth nothing now; of fees, where they were the matter.
        nonce = null;
        if (!/nonce|already|replacement/i.test(String(error))) fees.forget();
        // The node took it and the answer was lost: sent again under another nonce, it would be two transactions.
        if (hash && (await reader.getTransaction({ hash }).catch(() => null))) return hash;
        if (attempt === ATTEMPTS || !/nonce|underpriced|already/i.test(String(error))) throw error;
        // Two processes that step at the same pace would clash for ever.
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 4 * attempt));
      }
    }
  }

  return {
    address: account.address,
    spent,
    async write(call) {
      const reverts = await whyItWouldRevert(reader, account.address, call);
      if (reverts !== null) throw new WouldRevert(reverts);
      const data = encodeFunctionData({ abi: call.abi, functionName: call.functionName, args: call.args });
      const sent = line.then(() => sendNext(call.address, data, call.gas));
      line = sent.catch(() => {});
      return sent;
    },
    async receipt(hash) {
      try {
        const receipt = await minedReceipt(reader, hash);
        costOf(receipt);
        return receipt;
      } catch (error) {
        // The node may have let go of it. Counted on, it would be a gap that nothing sent after it ever passes.
        nonce = null;
        throw error;
      }
    },
  };
}

/** Asks the node itself, where no receipt yet is a null: the client's own method would build an error each time. */
async function minedReceipt(reader: Reader, hash: Hex): ReturnType<Sender["receipt"]> {
  const deadline = performance.now() + RECEIPT_WITHIN_MS;
  for (let wait = 2; ; wait = Math.min(wait * 2, 250)) {
    const receipt = await reader.request({ method: "eth_getTransactionReceipt", params: [hash] });
    if (receipt) return formatTransactionReceipt(receipt);
    if (performance.now() > deadline) throw new ChainDown(`transaction ${hash} is not mined`);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

const MAX_SAYS = 300;

/** An error in words for the record: of one bounded length, and without the secrets of this process. */
export function errorText(error: unknown): string {
  const text = error instanceof BaseError ? error.shortMessage : error instanceof Error ? error.message : String(error);
  return redact(text).slice(0, MAX_SAYS);
}

/** Would this call pass now, sent from here? Null, or what it reverts with. @throws ChainDown */
export async function whyItWouldRevert(reader: Reader, from: Address, call: ContractCall): Promise<string | null> {
  try {
    await reader.simulateContract({ ...call, account: from, gas: call.gas ?? GAS });
    return null;
  } catch (error) {
    const reverted = revertIn(error);
    if (reverted) return errorText(reverted.data?.errorName ?? reverted.reason ?? reverted.signature ?? "reverted");
    if (isTransportError(error))
      throw new ChainDown(`the chain cannot be asked: ${error.shortMessage}`, { cause: error });
    throw error;
  }
}

/** Send a call and wait for its receipt. Never throws for what the chain or the way to it does. */
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
