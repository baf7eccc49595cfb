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

/**
 * Returns the viem account of a wallet. It signs with the wallet's private key, or asks the wallet's outside signer.
 * @throws TypeError when the private key is not 0x-prefixed hex
 */
export function accountOf({ address, privateKey, signer }: Wallet): LocalAccount {
  if (signer !== undefined) return createOutsideAccount(getAddress(address), signer);
  if (!isHex(privateKey)) throw new TypeError("a wallet's private key is 0x and 64 hex digits");
  return privateKeyToAccount(privateKey);
}

/** Only EIP-1559 transactions are sent. */
type Transaction = TransactionSerializableEIP1559 & { type: "eip1559" };

/**
 * Returns an account whose key is kept by an outside signer, which speaks the JSON-RPC of wallets
 * (`eth_signTypedData_v4`, `eth_signTransaction`). Each answer is verified to be a signature by `address` over
 * exactly the requested data: a seller could not settle any other signature, and would then look like one that does
 * not deliver. A method that fails throws NotSigned, which is never counted as the seller's fault.
 */
function createOutsideAccount(address: Address, signer: string): LocalAccount {
  const client = createClient({ transport: quietHttp(signer) });
  const requestVerified = async <T>(
    what: string,
    request: () => Promise<T>,
    isRequested: (answer: T) => Promise<boolean>,
  ) => {
    let answer: T;
    try {
      answer = await request();
    } catch (cause) {
      const [line] = redact(String((cause as Error).message)).split("\n");
      throw new NotSigned(`the signer of ${address} gave no ${what}: ${line}`, { cause });
    }
    if (await isRequested(answer).catch(() => false)) return answer;
    throw new NotSigned(`the signer of ${address} answered with another ${what} than was asked for`);
  };
  const refuse = async (): Promise<never> => {
    throw new NotSigned(`the signer of ${address} is asked for typed data and transactions alone`);
  };
  return toAccount({
    address,
    signMessage: refuse,
    signTypedData: (data) =>
      requestVerified(
        "signature",
        () => signTypedData(client, { ...data, account: address } as Parameters<typeof signTypedData>[1]),
        async (signature) => {
          const signerAddress = await recoverTypedDataAddress({ ...data, signature } as never);
          return isAddressEqual(signerAddress, address);
        },
      ),
    async signTransaction(transaction) {
      const requested = transaction as Transaction;
      const params = [
        { ...formatTransactionRequest(requested), chainId: `0x${requested.chainId.toString(16)}`, from: address },
      ];
      const raw = await requestVerified(
        "transaction",
        async () => {
          // Some signers return the transaction as `{raw}`.
          const answer = (await client.request({ method: "eth_signTransaction", params } as never)) as
            | Hex
            | { raw: Hex };
          return typeof answer === "string" ? answer : answer.raw;
        },
        async (signed) => {
          const signerAddress = await recoverTransactionAddress({ serializedTransaction: signed as `0x02${string}` });
          const { r: _r, s: _s, v: _v, yParity: _y, ...unsigned } = parseTransaction(signed as `0x02${string}`);
          return (
            isAddressEqual(signerAddress, address) && serializeTransaction(unsigned) === serializeTransaction(requested)
          );
        },
      );
      return raw as never;
    },
  });
}
