import { type Address, createClient, custom, decodeFunctionData, type Hex, parseAbi, parseAbiItem } from "viem";
import type { Transaction } from "viem/tempo";
import { systemClock } from "../clock.ts";
import { accountOf } from "./account.ts";
import { challengeObstacle, createNonceGuard, headerOf, inClientOrder, methodDetails } from "./charge.ts";
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
import {
  type BlockTransfer,
  balanceOf,
  blockAt,
  blockTransferOf,
  logsSince,
  requireLogsOf,
  type TokenAtNode,
} from "./settlement.ts";

/**
 * Chains of Tempo (CAIP-2) and the dollar that sellers ask for there, TIP-20 with 6 decimals: what mpp's own package
 * takes by default.
 */
const DOLLARS: Readonly<Record<string, { symbol: string; address: string }>> = {
  "eip155:4217": { symbol: "USDC.e", address: "0x20c000000000000000000000b9537d11c60e8b50" },
  "eip155:42431": { symbol: "pathUSD", address: "0x20c0000000000000000000000000000000000000" },
};

export const isTempo = (network: string): boolean => Object.hasOwn(DOLLARS, network);

/** The dollar of a Tempo chain; null for any other network. */
export const tempoDollar = (network: string): { symbol: string; address: string } | null =>
  isTempo(network) ? DOLLARS[network]! : null;

const CALL = parseAbi(["function transferWithMemo(address to, uint256 amount, bytes32 memo)"]);
const WITH_MEMO = parseAbiItem(
  "event TransferWithMemo(address indexed from, address indexed to, uint256 amount, bytes32 indexed memo)",
);
/** A challenge that ends sooner could expire on the way. */
const LEAST_VALIDITY_S = 10;
/** How far back a memo is looked for before it is signed: challenges live for minutes. */
const LOOK_BACK_BLOCKS = 9_000;
/** Gas is priced in 1e-18 dollars, and a token has 6 decimals. */
const FEE_UNIT = 10n ** 12n;

/**
 * Why this mpp challenge cannot be paid with a signed Tempo transaction that the seller sends, or null when it can.
 * Pure; never throws. Method `tempo`, intent `charge`, mode `pull`, one transfer whose memo is ours to set.
 */
function whyNotTempo(entry: PayableEntry, network: string, asset: string): string | null {
  const why = challengeObstacle(entry, { method: "tempo", network, asset, bits: 128 });
  if (why !== null) return why;
  const { supportedModes, memo } = methodDetails(entry.challenge!);
  if (supportedModes !== undefined && !(Array.isArray(supportedModes) && supportedModes.includes("pull")))
    return "only payments that the payer sends are taken";
  // A memo of the seller's own choice may be another payment's: ours is made from the challenge, and names it alone.
  return memo === undefined || memo === null ? null : "the seller sets the memo";
}

/** The protocol's client and the chain's transactions: seconds to load, and needed by who signs on Tempo alone. */
async function loadClient() {
  const [{ tempo }, { Transaction }, { tempo: chain }] = await Promise.all([
    import("mppx/client"),
    import("viem/tempo"),
    import("viem/tempo/chains"),
  ]);
  return { charge: tempo.charge, deserialize: Transaction.deserialize, chain };
}

type Deserialize = Awaited<ReturnType<typeof loadClient>>["deserialize"];

/** What the signed transaction does, held against what was to be signed: one transfer of this token, and nothing else. */
function checked(
  deserialize: Deserialize,
  signed: string,
  entry: PayableEntry,
  from: string,
): { memo: Hex; validBefore: number; fee: bigint } {
  const {
    calls,
    validBefore,
    gas = 0n,
    maxFeePerGas = 0n,
    ...said
  } = deserialize(signed as Transaction.TransactionSerializedTempo) as {
    calls?: readonly { to?: string; data?: Hex; value?: bigint }[];
    validBefore?: number;
    from?: string;
    gas?: bigint;
    maxFeePerGas?: bigint;
  };
  const [call, ...others] = calls ?? [];
  if (!call?.data || others.length > 0 || !validBefore)
    throw new Error("it is not one call with an end to its validity");
  const { args } = decodeFunctionData({ abi: CALL, data: call.data });
  const [to, amount, memo] = args;
  const isWanted =
    call.to?.toLowerCase() === entry.asset.toLowerCase() &&
    to.toLowerCase() === entry.payTo.toLowerCase() &&
    amount === entry.amountAtomic &&
    (call.value ?? 0n) === 0n &&
    (said.from === undefined || said.from.toLowerCase() === from.toLowerCase());
  if (!isWanted) throw new Error("what was signed is not what was to be paid");
  return { memo, validBefore, fee: (gas * maxFeePerGas + FEE_UNIT - 1n) / FEE_UNIT };
}

/**
 * See `Rail.settlementOf`: the payment's memo stands in the token's own event. No state of the token says whether a memo
 * was used, so nothing ties the logs to the block as a nonce does: the node has to give the logs of this very block by
 * its hash, which one without the block refuses (EIP-234). A node that has it, and hides older logs, is believed; then
 * only `agree` helps.
 */
async function findByMemo(money: TokenAtNode, query: SettlementQuery, head: Block): Promise<BlockTransfer | null> {
  const args = { from: query.from as Address, memo: query.nonce as Hex };
  const [log] = await logsSince(query.sinceBlock, head, (range) =>
    money.reader.getLogs({ address: money.asset, event: WITH_MEMO, args, strict: true, ...range }),
  );
  if (!log) {
    await requireLogsOf(money, head);
    return null;
  }
  const { from, to, amount: value } = log.args;
  return blockTransferOf(money, { ...log, args: { from, to, value } });
}

/**
 * Signs mpp `tempo/charge` challenges with the protocol's own client: a whole transaction, with a memo made from the
 * challenge, that is good for 25 seconds and that the seller sends. Nothing leaves here. The fee is taken from the
 * payer in the same token, unless the seller pays it, so a wallet needs no coin. The memo stands in the place of the
 * nonce.
 */
function createTempoSigner(any: TokenAtNode): (entry: PayableEntry, wallet: Wallet) => Promise<SignedPayment> {
  const { reader, network } = any;
  const chainId = Number(network.slice("eip155:".length));
  const request = reader.request as (asked: { method: string; params?: unknown }) => Promise<unknown>;

  const refuseUsed = createNonceGuard(async (from, nonce) => {
    const head = await blockAt(any, "latest");
    const sinceBlock = Math.max(0, head.number - LOOK_BACK_BLOCKS);
    return (await findByMemo(any, { from, nonce, sinceBlock }, head)) !== null;
  });

  return async (entry, wallet) => {
    const challenge = entry.challenge as PaymentChallenge;
    // Transactions of a form that no signer knows but the protocol's own client.
    if (wallet.signer !== undefined) throw new NotSigned("on Tempo a wallet pays whose key lies in the folder");
    const account = accountOf(wallet);
    const now = systemClock.now().getTime();
    if (challenge.expires !== undefined && Date.parse(challenge.expires) < now + LEAST_VALIDITY_S * 1000)
      throw new CannotSign("the challenge has expired, or is about to");
    // Only what was read and will be checked: whatever else the seller wrote asks for nothing of us.
    const asked = {
      ...{ amount: entry.amountAtomic.toString(), currency: entry.asset, recipient: entry.payTo },
      methodDetails: { chainId, ...(methodDetails(challenge).feePayer === true ? { feePayer: true } : {}) },
    };
    const { charge, deserialize, chain } = await loadClient();
    const client = createClient({ chain: { ...chain, id: chainId }, transport: custom({ request }) });
    const method = charge({ account, getClient: () => client as never, mode: "pull" });
    const { id, realm, expires } = challenge;
    const own = { id, realm, method: "tempo", intent: "charge", request: asked, ...(expires ? { expires } : {}) };
    const credential = await chainRead("the fee of a payment", () =>
      method.createCredential({ challenge: own as never, context: {} as never }),
    );
    const { payload, source } = JSON.parse(
      Buffer.from(credential.replace(/^Payment /, ""), "base64url").toString("utf8"),
    ) as { payload: { type: string; signature: string }; source: string };
    if (payload.type !== "transaction") throw new Error(`a credential of type ${payload.type}`);
    const from = account.address.toLowerCase() as Address;
    const { memo, validBefore, fee } = checked(deserialize, payload.signature, entry, from);
    const sponsored = asked.methodDetails.feePayer === true;
    const held = await balanceOf(any, from);
    // The client signs what the wallet cannot pay, and a seller that cannot take it would look like one that does not
    // want to.
    if (held < entry.amountAtomic + (sponsored ? 0n : fee))
      throw new NoWallet(`the wallet holds ${held} units, too few for ${entry.amountAtomic} and a fee of up to ${fee}`);
    await refuseUsed(from, memo);
    const complete = { challenge: inClientOrder(challenge), payload, source };
    return {
      headerName: headerOf(challenge)!,
      headerValue: `Payment ${Buffer.from(JSON.stringify(complete)).toString("base64url")}`,
      ...{ from, nonce: memo, validAfter: 0, validBefore, amountAtomic: entry.amountAtomic },
    };
  };
}

/** Rail for mpp `tempo/charge` with a TIP-20 token: settlement is read from the token's event that carries the memo. */
export const createTempoRail = (options: EvmRailOptions): Rail =>
  createTokenRail(options, {
    obstacleTo: (entry) => whyNotTempo(entry, options.network, options.asset.toLowerCase()),
    signer: createTempoSigner,
    find: findByMemo,
  });
