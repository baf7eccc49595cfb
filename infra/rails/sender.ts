import { type Address, encodeFunctionData, formatTransactionReceipt, type Hex, keccak256 } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { ChainDown, type Reader } from "./rpc.ts";

/** Ample for one EIP-3009 transfer; no estimate is asked for, so a doomed transfer costs gas and no time. */
const GAS = 250_000n;
const FEES = { maxFeePerGas: 10_000_000_000n, maxPriorityFeePerGas: 1_000_000_000n } as const;
const ATTEMPTS = 12;
const RECEIPT_WITHIN_MS = 15_000;

export interface ContractCall {
  address: Address;
  abi: readonly unknown[];
  functionName: string;
  args?: readonly unknown[];
}

export interface Sender {
  readonly address: Address;
  /** Sign and send; resolves with the hash once the node took it. Callers may run in parallel. */
  write(call: ContractCall): Promise<Hex>;
  /** The receipt, once mined. Throws `ChainDown` after 15 s without one: the transaction may still be mined later. */
  receipt(hash: Hex): Promise<Awaited<ReturnType<Reader["getTransactionReceipt"]>>>;
}

/**
 * Sends transactions from one key in one line, so that nonces never skip and never clash: the next one is signed when
 * the node has taken the one before. Another process with the same key is met by asking for the nonce anew.
 */
export function createSender(reader: Reader, chainId: number, privateKey: Hex): Sender {
  const account = privateKeyToAccount(privateKey);
  let nonce: number | null = null;
  let line: Promise<unknown> = Promise.resolve();

  async function sendNext(to: Address, data: Hex): Promise<Hex> {
    for (let attempt = 1; ; attempt++) {
      let hash: Hex | null = null;
      try {
        nonce ??= await reader.getTransactionCount({ address: account.address, blockTag: "pending" });
        const transaction = { type: "eip1559", chainId, nonce, to, data, gas: GAS, ...FEES } as const;
        const signed = await account.signTransaction(transaction);
        hash = keccak256(signed);
        await reader.request({ method: "eth_sendRawTransaction", params: [signed] });
        nonce += 1;
        return hash;
      } catch (error) {
        // Whatever went wrong, what we believe of the nonce is worth nothing now.
        nonce = null;
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
    write(call) {
      const data = encodeFunctionData({ abi: call.abi, functionName: call.functionName, args: call.args });
      const sent = line.then(() => sendNext(call.address, data));
      line = sent.catch(() => {});
      return sent;
    },
    receipt: (hash) => minedReceipt(reader, hash),
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
