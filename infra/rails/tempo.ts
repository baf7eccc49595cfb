import { randomBytes } from "node:crypto";
import {
  type Address,
  createClient,
  custom,
  decodeFunctionData,
  encodeFunctionData,
  type Hex,
  maxUint256,
  parseAbi,
  parseAbiItem,
} from "viem";
import { estimateGas, sendRawTransaction, waitForTransactionReceipt } from "viem/actions";
import type { Transaction } from "viem/tempo";
import { systemClock } from "../clock.ts";
import { Failure } from "../errors.ts";
import { accountOf } from "./account.ts";
import {
  challengeObstacle,
  createNonceGuard,
  credentialHeaderOf,
  methodDetails,
  orderAsStockClient,
} from "./charge.ts";
import { createTokenRail, type EvmRailOptions } from "./evm.ts";
import {
  type Block,
  CannotSign,
  NotSigned,
  NoWallet,
  type PayableEntry,
  type PaymentChallenge,
  type Rail,
  type SettlementQuery,
  type SignedPayment,
  type Wallet,
} from "./rails.ts";
import { chainRead } from "./rpc.ts";
import { errorText, type Outcome, WouldRevert, whyItWouldRevert } from "./sender.ts";
import {
  type BlockTransfer,
  balanceOf,
  blockAt,
  blockTransferOf,
  logsOfPayment,
  MAX_BLOCKS_PER_REQUEST,
  requireLogsOf,
  SEARCH_MARGIN_BLOCKS,
  type TokenAtNode,
} from "./settlement.ts";

/** Tempo's chains (CAIP-2) and their default dollar in mpp's package, a TIP-20 token with 6 decimals. */
const DOLLARS: Readonly<Record<string, { symbol: string; address: string }>> = {
  "eip155:4217": { symbol: "USDC.e", address: "0x20c000000000000000000000b9537d11c60e8b50" },
  "eip155:42431": { symbol: "pathUSD", address: "0x20c0000000000000000000000000000000000000" },
};

/** Reports whether a network (CAIP-2) is one of Tempo's. */
export const isTempo = (network: string): boolean => Object.hasOwn(DOLLARS, network);

/** Returns the default dollar of a Tempo chain; null for any other network. */
export const tempoDollar = (network: string): { symbol: string; address: string } | null =>
  isTempo(network) ? DOLLARS[network]! : null;

const TRANSFER_ABI = parseAbi(["function transferWithMemo(address to, uint256 amount, bytes32 memo)"]);
const TRANSFER_WITH_MEMO_EVENT = parseAbiItem(
  "event TransferWithMemo(address indexed from, address indexed to, uint256 amount, bytes32 indexed memo)",
);
/** A challenge with less time left than this, in seconds, is not signed. */
const MIN_VALIDITY_S = 10;
/**
 * Before a memo is signed, a use of it is searched in this many of the newest blocks; challenges live for minutes.
 * Together with SEARCH_MARGIN_BLOCKS that is one log request.
 */
const LOOK_BACK_BLOCKS = MAX_BLOCKS_PER_REQUEST - SEARCH_MARGIN_BLOCKS - 1;
/** Number of units of the gas price (1e-18 dollars) in one atomic unit of the token (1e-6 dollars). */
const FEE_UNIT = 10n ** 12n;

/**
 * Returns why an mpp challenge cannot be paid with a signed Tempo transaction that the seller sends; null if it can be.
 * The method must be `tempo`, the intent `charge`, the mode `pull`, and the seller must not set the memo. Pure; never
 * throws.
 */
function whyNotTempo(entry: PayableEntry, network: string, asset: string): string | null {
  const why = challengeObstacle(entry, { method: "tempo", network, asset, bits: 128 });
  if (why !== null) return why;
  const { supportedModes, memo } = methodDetails(entry.challenge!);
  if (supportedModes !== undefined && !(Array.isArray(supportedModes) && supportedModes.includes("pull")))
    return "only payments that the payer sends are taken";
  // A memo chosen by the seller could belong to another payment; ours is derived from the challenge.
  return memo === undefined || memo === null ? null : "the seller sets the memo";
}

/**
 * Loads the protocol's client and the chain's transaction format. Loading takes seconds, so it is done at the first
 * signature for Tempo.
 */
async function loadClient() {
  const [{ tempo }, { Transaction }, { tempo: chain }] = await Promise.all([
    import("mppx/client"),
    import("viem/tempo"),
    import("viem/tempo/chains"),
  ]);
  return { charge: tempo.charge, deserialize: Transaction.deserialize, chain };
}

type Deserialize = Awaited<ReturnType<typeof loadClient>>["deserialize"];

const chainIdOf = (network: string): number => Number(network.slice("eip155:".length));

/** Creates a client that knows Tempo's transactions, over the nodes of a token. */
function createTempoClient({ reader, network }: TokenAtNode, { chain }: Awaited<ReturnType<typeof loadClient>>) {
  const request = reader.request as (asked: { method: string; params?: unknown }) => Promise<unknown>;
  return createClient({ chain: { ...chain, id: chainIdOf(network) }, transport: custom({ request }) });
}

/**
 * Returns the account of a wallet whose key is in the folder. @throws NotSigned for an outside signer, which does not
 * know Tempo's transaction type
 */
function keyAccountOf(wallet: Wallet) {
  if (wallet.signer !== undefined) throw new NotSigned("an outside signer cannot sign for Tempo; use a key file");
  return accountOf(wallet);
}

/** Returns the highest fee of a transaction in units of the token, rounded up. */
const feeOf = (gas: bigint, maxFeePerGas: bigint): bigint => (gas * maxFeePerGas + FEE_UNIT - 1n) / FEE_UNIT;

/**
 * Checks that a signed transaction makes exactly the transfer of this entry and nothing else.
 * @returns its memo, its expiry (unix seconds) and its highest fee (units of the token)
 * @throws Error otherwise
 */
function verifyTransaction(
  deserialize: Deserialize,
  signed: string,
  entry: Pick<PayableEntry, "asset" | "payTo" | "amountAtomic">,
  from: string,
): { memo: Hex; validBefore: number; fee: bigint } {
  const {
    calls,
    validBefore,
    gas = 0n,
    maxFeePerGas = 0n,
    ...otherFields
  } = deserialize(signed as Transaction.TransactionSerializedTempo) as {
    calls?: readonly { to?: string; data?: Hex; value?: bigint }[];
    validBefore?: number;
    from?: string;
    gas?: bigint;
    maxFeePerGas?: bigint;
  };
  const [call, ...otherCalls] = calls ?? [];
  if (!call?.data || otherCalls.length > 0 || !validBefore)
    throw new Error("the signed transaction is not a single call with an expiry");
  const { args } = decodeFunctionData({ abi: TRANSFER_ABI, data: call.data });
  const [to, amount, memo] = args;
  const paysEntry =
    call.to?.toLowerCase() === entry.asset.toLowerCase() &&
    to.toLowerCase() === entry.payTo.toLowerCase() &&
    amount === entry.amountAtomic &&
    (call.value ?? 0n) === 0n &&
    (otherFields.from === undefined || otherFields.from.toLowerCase() === from.toLowerCase());
  if (!paysEntry) throw new Error("the signed transaction does not pay what the entry asks for");
  return { memo, validBefore, fee: feeOf(gas, maxFeePerGas) };
}

/**
 * Reads a settlement from one node by the memo in the token's event (see `Rail.settlementOf`). The token has no state
 * that shows whether a memo was used, so a missing log could mean that the node lags behind `head`. Therefore the
 * node also has to return the logs of that block by hash, which it refuses without the block (EIP-234). A node that
 * has the block and hides older logs is only detected by `agree`.
 * @throws ChainDown
 */
async function findByMemo(money: TokenAtNode, query: SettlementQuery, head: Block): Promise<BlockTransfer | null> {
  const args = { from: query.from as Address, memo: query.nonce as Hex };
  const [log] = await logsOfPayment(query.sinceBlock, head, (range) =>
    money.reader.getLogs({ address: money.asset, event: TRANSFER_WITH_MEMO_EVENT, args, strict: true, ...range }),
  );
  if (!log) {
    await requireLogsOf(money, head);
    return null;
  }
  const { from, to, amount: value } = log.args;
  return blockTransferOf(money, { ...log, args: { from, to, value } });
}

/**
 * Returns a function that signs mpp `tempo/charge` challenges with the protocol's own client. The result is a
 * complete transaction that is valid for 25 seconds and that the seller sends. Its memo is derived from the challenge
 * and serves as the payment's nonce. The payer pays the fee in the same token, unless the seller pays it, so a wallet
 * needs no other coin for gas.
 */
function createTempoSigner(token: TokenAtNode): (entry: PayableEntry, wallet: Wallet) => Promise<SignedPayment> {
  const chainId = chainIdOf(token.network);
  const refuseUsed = createNonceGuard(async (from, nonce) => {
    const head = await blockAt(token, "latest");
    const sinceBlock = Math.max(0, head.number - LOOK_BACK_BLOCKS);
    return (await findByMemo(token, { from, nonce, sinceBlock }, head)) !== null;
  });

  return async (entry, wallet) => {
    const challenge = entry.challenge as PaymentChallenge;
    const account = keyAccountOf(wallet);
    const now = systemClock.now().getTime();
    if (challenge.expires !== undefined && Date.parse(challenge.expires) < now + MIN_VALIDITY_S * 1000)
      throw new CannotSign("the challenge has expired, or is about to");
    // Only the parsed fields are passed on, and are checked below. The seller's other fields do not reach the client.
    const chargeRequest = {
      ...{ amount: entry.amountAtomic.toString(), currency: entry.asset, recipient: entry.payTo },
      methodDetails: { chainId, ...(methodDetails(challenge).feePayer === true ? { feePayer: true } : {}) },
    };
    const packages = await loadClient();
    const { charge, deserialize } = packages;
    const client = createTempoClient(token, packages);
    const method = charge({ account, getClient: () => client as never, mode: "pull" });
    const { id, realm, expires } = challenge;
    const ownChallenge = {
      id,
      realm,
      method: "tempo",
      intent: "charge",
      request: chargeRequest,
      ...(expires ? { expires } : {}),
    };
    const credential = await chainRead("the fee of a payment", () =>
      method.createCredential({ challenge: ownChallenge as never, context: {} as never }),
    );
    const { payload, source } = JSON.parse(
      Buffer.from(credential.replace(/^Payment /, ""), "base64url").toString("utf8"),
    ) as { payload: { type: string; signature: string }; source: string };
    if (payload.type !== "transaction") throw new Error(`a credential of type ${payload.type}`);
    const from = account.address.toLowerCase() as Address;
    const { memo, validBefore, fee } = verifyTransaction(deserialize, payload.signature, entry, from);
    const isSponsored = chargeRequest.methodDetails.feePayer === true;
    const balance = await balanceOf(token, from);
    // The client signs even when the wallet cannot pay; the seller could not settle that, and would look like one that
    // does not deliver.
    if (balance < entry.amountAtomic + (isSponsored ? 0n : fee))
      throw new NoWallet(
        `the wallet holds ${balance} units, too few for ${entry.amountAtomic} and a fee of up to ${fee}`,
      );
    await refuseUsed(from, memo);
    const complete = { challenge: orderAsStockClient(challenge), payload, source };
    return {
      headerName: credentialHeaderOf(challenge)!,
      headerValue: `Payment ${Buffer.from(JSON.stringify(complete)).toString("base64url")}`,
      ...{ from, nonce: memo, validAfter: 0, validBefore, amountAtomic: entry.amountAtomic },
    };
  };
}

/** Time for which a transfer of ours is valid, seconds. The chain accepts at most 30 with an expiring nonce. */
const TRANSFER_VALID_S = 25;
/** Gas beyond the estimate, which does not cover all of the signature's verification. */
const GAS_MARGIN = 5_000n;
/** Gas limit of a simulation. A first transfer to an address took 298,607 on a local node. */
const SIMULATION_GAS = 2_000_000n;
/**
 * Largest number of units of the token (ten cents) that a transfer of ours may cost. Nodes name the price, and it is
 * not trusted.
 */
const MAX_TRANSFER_FEE = 100_000n;
const RECEIPT_TIMEOUT_MS = 15_000;

/**
 * A prepared transfer of all that a wallet can send. `send` signs and sends it, and returns the nonce (the memo) by
 * which the transfer is found on the chain. Nothing is signed before that.
 */
export interface BalanceTransfer {
  amountAtomic: bigint;
  send(): Promise<{ nonce: string; outcome: Outcome }>;
}

/**
 * Prepares the transfer of what a wallet holds of a TIP-20 token, less its highest fee: the chain sets that fee aside
 * from the same balance before it executes the transfer, and returns what was not used. `send` signs one transaction
 * of the wallet with one call, `transferWithMemo` with a random memo, and sends it.
 * @param balanceAtomic what the wallet holds, above zero
 * @returns null when the balance is not above the fee
 * @throws NotSigned for an outside signer; WouldRevert; ChainDown; Failure when the fee is above ten cents
 */
export async function prepareBalanceTransfer(
  token: TokenAtNode,
  wallet: Wallet,
  to: Address,
  balanceAtomic: bigint,
): Promise<BalanceTransfer | null> {
  const { reader, network, asset } = token;
  const account = keyAccountOf(wallet);
  const memo: Hex = `0x${randomBytes(32).toString("hex")}`;
  const contractCall = (amount: bigint) =>
    ({ address: asset, abi: TRANSFER_ABI, functionName: "transferWithMemo", args: [to, amount, memo] }) as const;
  // The amount follows from the fee. Until the fee is known, the smallest amount stands for it.
  const revertReason = await whyItWouldRevert(reader, account.address, { ...contractCall(1n), gas: SIMULATION_GAS });
  if (revertReason !== null) throw new WouldRevert(revertReason);
  const packages = await loadClient();
  const client = createTempoClient(token, packages);
  const requestOf = (amount: bigint) => ({
    calls: [{ to: asset, data: encodeFunctionData(contractCall(amount)) }],
    // `maxUint256` is the nonce key of expiring nonces, under which transactions of one wallet do not wait for each
    // other.
    ...{ feeToken: asset, nonceKey: maxUint256, nonce: 0 },
    validBefore: Math.floor(systemClock.now().getTime() / 1000) + TRANSFER_VALID_S,
  });
  const [estimatedGas, { maxFeePerGas, maxPriorityFeePerGas }] = await chainRead("the fee of a transfer", () =>
    Promise.all([
      estimateGas(client, { account, ...requestOf(1n), prepare: false } as never),
      reader.estimateFeesPerGas(),
    ]),
  );
  const gas = estimatedGas + GAS_MARGIN;
  const fee = feeOf(gas, maxFeePerGas);
  if (fee > MAX_TRANSFER_FEE)
    throw new Failure("chain", `the node asks for a fee of up to ${fee} units, more than ${MAX_TRANSFER_FEE}`);
  if (balanceAtomic <= fee) return null;
  const amountAtomic = balanceAtomic - fee;

  async function send(): Promise<{ nonce: string; outcome: Outcome }> {
    const transaction = { ...requestOf(amountAtomic), chainId: chainIdOf(network), gas, maxFeePerGas };
    const signed = await account.signTransaction({ ...transaction, maxPriorityFeePerGas } as never, {
      serializer: packages.chain.serializers.transaction,
    });
    const verified = verifyTransaction(
      packages.deserialize,
      signed,
      { asset, payTo: to, amountAtomic },
      account.address,
    );
    if (verified.memo !== memo || verified.fee !== fee) throw new Error("the signed transaction is not what was asked");
    let tx: Hex | undefined;
    try {
      tx = await sendRawTransaction(client, { serializedTransaction: signed });
      const { status } = await waitForTransactionReceipt(client, { hash: tx, timeout: RECEIPT_TIMEOUT_MS });
      const outcome: Outcome =
        status === "success" ? { outcome: "sent", tx } : { outcome: "refused", reason: "reverted", tx };
      return { nonce: memo, outcome };
    } catch (error) {
      return { nonce: memo, outcome: { outcome: "unknown", says: errorText(error), ...(tx && { tx }) } };
    }
  }
  return { amountAtomic, send };
}

/** Atomic units (a cent) that a wallet must hold for the fee of a payment, which is known at signing and far lower. */
const FEE_RESERVE = 10_000n;

/** Creates a rail for mpp `tempo/charge` with a TIP-20 token. Settlements are found by the memo in the token's event. */
export const createTempoRail = (options: EvmRailOptions): Rail => ({
  ...createTokenRail(options, {
    obstacleTo: (entry) => whyNotTempo(entry, options.network, options.asset.toLowerCase()),
    signIn: createTempoSigner,
    find: findByMemo,
  }),
  feeReserve: ({ challenge }) => (challenge && methodDetails(challenge).feePayer === true ? 0n : FEE_RESERVE),
});
