import {
  type Address,
  createClient,
  formatTransactionRequest,
  getAddress,
  type Hex,
  isAddressEqual,
  isHex,
  parseTransaction,
  recoverTransactionAddress,
  recoverTypedDataAddress,
  serializeTransaction,
  type TransactionSerializableEIP1559,
} from "viem";
import { type LocalAccount, privateKeyToAccount, toAccount } from "viem/accounts";
import { signTypedData } from "viem/actions";
import { redact } from "../secrets.ts";
import { NotSigned, type Wallet } from "./rails.ts";
import { quietHttp } from "./rpc.ts";

/** Signs as this wallet: with its key, or by asking the signer that has it. @throws TypeError for what is no key */
export function accountOf({ address, privateKey, signer }: Wallet): LocalAccount {
  if (signer !== undefined) return outside(getAddress(address), signer);
  if (!isHex(privateKey)) throw new TypeError("a wallet's private key is 0x and 64 hex digits");
  return privateKeyToAccount(privateKey);
}

/** EIP-1559 transactions alone are sent, and they carry their signature beside them. */
type Transaction = TransactionSerializableEIP1559 & { type: "eip1559" };

/**
 * A key that another machine keeps: it speaks JSON-RPC as wallets do (`eth_signTypedData_v4`, `eth_signTransaction`).
 * What it answers is held against what was asked: a signature of somebody else, or of other terms, would make a seller
 * that cannot settle it look like one that does not deliver. All its calls throw NotSigned, never the seller's fault.
 */
function outside(address: Address, signer: string): LocalAccount {
  const client = createClient({ transport: quietHttp(signer) });
  const asked = async <T>(what: string, ask: () => Promise<T>, isWhatWasAsked: (answer: T) => Promise<boolean>) => {
    let answer: T;
    try {
      answer = await ask();
    } catch (cause) {
      const [line] = redact(String((cause as Error).message)).split("\n");
      throw new NotSigned(`the signer of ${address} gave no ${what}: ${line}`, { cause });
    }
    if (await isWhatWasAsked(answer).catch(() => false)) return answer;
    throw new NotSigned(`the signer of ${address} answered with another ${what} than was asked for`);
  };
  const refuse = async (): Promise<never> => {
    throw new NotSigned(`the signer of ${address} is asked for typed data and transactions alone`);
  };
  return toAccount({
    address,
    signMessage: refuse,
    signTypedData: (data) =>
      asked(
        "signature",
        () => signTypedData(client, { ...data, account: address } as Parameters<typeof signTypedData>[1]),
        async (signature) => {
          const by = await recoverTypedDataAddress({ ...data, signature } as never);
          return isAddressEqual(by, address);
        },
      ),
    async signTransaction(transaction) {
      const wanted = transaction as Transaction;
      const params = [
        { ...formatTransactionRequest(wanted), chainId: `0x${wanted.chainId.toString(16)}`, from: address },
      ];
      const raw = await asked(
        "transaction",
        async () => {
          // Some nodes wrap it.
          const answer = (await client.request({ method: "eth_signTransaction", params } as never)) as
            | Hex
            | { raw: Hex };
          return typeof answer === "string" ? answer : answer.raw;
        },
        async (signed) => {
          const by = await recoverTransactionAddress({ serializedTransaction: signed as `0x02${string}` });
          const { r: _r, s: _s, v: _v, yParity: _y, ...told } = parseTransaction(signed as `0x02${string}`);
          return isAddressEqual(by, address) && serializeTransaction(told) === serializeTransaction(wanted);
        },
      );
      return raw as never;
    },
  });
}
