import { Failure } from "../errors.ts";

/**
 * A payment rail signs payments for the terms of a 402, and reads from the chain which of them settled. Amounts are
 * atomic units of the asset (BigInt). Times are unix seconds of the chain's own clock (block times), never of a clock
 * of this process.
 */
export interface Rail {
  /** CAIP-2 id of the chain, e.g. `eip155:84532`; for a rail over several chains, of the first. */
  readonly network: string;
  /** All chains of a rail over several chains. Every read through such a rail has to name one. */
  readonly networks?: readonly string[];
  /** Contract of the asset, lower-case 0x address; one unit is one dollar. */
  readonly asset: string;
  /** Returns the decimals of the asset in which an entry is paid. A rail without this method has 6 for all entries. */
  decimalsOf?(entry: Pick<PayableEntry, "network" | "asset">): number;
  /**
   * Reports whether this rail can sign an entry: its network and asset match, payTo is an address, the amount is
   * positive, and it is x402 `exact` or an mpp challenge. The expiry of a challenge is only checked by `sign`.
   */
  canPay(entry: PayableEntry): boolean;
  /**
   * Returns what a wallet has to hold beside the amount of an entry, atomic units: more than any fee that the payer
   * pays in the same token. Absent where the payer pays no fee.
   */
  feeReserve?(entry: PayableEntry): bigint;
  /**
   * Signs the payment for one entry without sending it. The header value is complete and can be sent more than once:
   * it has one nonce and settles once. The caller makes it durable before sending it.
   * @throws CannotSign when the terms cannot be signed now; ChainDown when the chain has to be asked and does not
   * answer
   */
  sign(entry: PayableEntry, wallet: Wallet, context: SignContext): Promise<SignedPayment>;
  /**
   * Reads from the chain whether one authorization settled: the Transfer that used its nonce. Null if at the returned
   * block the nonce was unused or cancelled, or was used before the blocks that are searched. What the seller's headers
   * say about the settlement is ignored.
   * @throws ChainDown also when the token reports the nonce as used in the searched blocks and no log shows the
   * transfer
   */
  settlementOf(query: SettlementQuery): Promise<AsOf<Settlement | null>>;
  /** Reads transfers of the asset from `from` to `to` since a block, oldest first. Finds refunds. @throws ChainDown */
  transfers(query: { from: string; to: string; sinceBlock: number } & AssetRef): Promise<AsOf<Settlement[]>>;
  /** Reads the transfers of the asset in one transaction; empty while the transaction is in no block. @throws ChainDown */
  transfersIn(tx: string, place?: AssetRef): Promise<AsOf<Settlement[]>>;
  /**
   * Reads who sent the asset to an address between two times; null when the chain has no block between them.
   * @throws ChainDown; the reason with which `signal` was aborted
   */
  payersOf(query: PayersQuery): Promise<Payers | null>;
  /**
   * Reads the newest block, at which a search may begin. The block does not prove what settled.
   * @throws ChainDown
   */
  head(place?: AssetRef): Promise<Block>;
  /** Reads the atomic units of the asset that an address holds at `head`. @throws ChainDown */
  balance(address: string, place?: AssetRef): Promise<AsOf<bigint>>;
}

/** A block of a chain; time in unix seconds. */
export interface Block {
  number: number;
  time: number;
}

/** The blocks as of which a value was read. */
export interface Blocks {
  /** The block at which the value was read. */
  head: Block;
  /** Newest block at or below `head` that is not expected to vanish. */
  final: Block;
}

/**
 * A value read from a chain, with the blocks as of which it was read. Value and blocks come from the same node, or
 * from the same quorum of nodes. That an event did not happen is certain up to `final` only; see {@link
 * isFinallyExpired}.
 */
export interface AsOf<T> extends Blocks {
  value: T;
}

/** Applies a function to the value of a read and keeps its blocks. */
export const mapAsOf = <T, U>({ value, head, final }: AsOf<T>, convert: (value: T, blocks: Blocks) => U): AsOf<U> => ({
  value: convert(value, { head, final }),
  ...{ head, final },
});

/**
 * Reports whether an event that a read did not find can no longer happen: the final block of that same read is past the
 * event's deadline.
 * @param validBefore unix seconds of chain time; at this time and later the event cannot happen
 * @param marginS seconds that the final block must be past the deadline, since a node may show an event of an older
 * block late
 */
export const isFinallyExpired = ({ final }: Blocks, validBefore: number, marginS: number): boolean =>
  final.time > validBefore + marginS;

/** Largest number of blocks by which the logs of a node are expected to lag behind its head. */
const LOGS_LAG_BLOCKS = 300;

/**
 * Returns the number of the block up to which a list of transfers is complete; the next search begins after it. A
 * node's logs may lag behind its head, and nothing in a token's state shows that the log of a transfer is missing. So
 * blocks that are not final, and the newest 300, are searched again.
 */
export const completeUpTo = ({ head, final }: Blocks): number => Math.min(final.number, head.number - LOGS_LAG_BLOCKS);

/**
 * Chain (CAIP-2) and asset that a read is about. A rail over several chains or assets needs both fields, a rail over
 * one asset needs neither.
 */
export interface AssetRef {
  network?: string;
  asset?: string;
}

/** The members of a rail that are needed to parse the terms of a 402. */
export type RailCapabilities = Pick<Rail, "network" | "networks" | "canPay" | "decimalsOf">;

/** Returns all chains (CAIP-2) of a rail. */
export const networksOf = ({ network, networks }: Pick<Rail, "network" | "networks">): readonly string[] =>
  networks ?? [network];

/** Returns the decimals of the asset that an entry is paid in; 6 when the rail has no `decimalsOf`. */
export const decimalsOf = (rail: Pick<Rail, "decimalsOf">, entry: Pick<PayableEntry, "network" | "asset">): number =>
  rail.decimalsOf?.(entry) ?? 6;

/** One payable entry of a 402, parsed from x402 terms (version 1 or 2) or an mpp challenge. */
export interface PayableEntry {
  /** Version of x402; null for an mpp challenge, which is in `challenge`. */
  x402Version: 1 | 2 | null;
  challenge?: PaymentChallenge;
  scheme: string;
  /** CAIP-2. */
  network: string;
  asset: string;
  payTo: string;
  amountAtomic: bigint;
  /** Longest validity of the payment, seconds. */
  maxTimeoutSeconds: number;
  /** `extra` of the x402 entry, such as the token's EIP-712 name and version; empty for a challenge. */
  extra: Record<string, unknown>;
  /** The entry as the seller sent it; a payment of x402 v2 repeats it in its field `accepted`. */
  raw: unknown;
}

/**
 * An mpp challenge (`WWW-Authenticate: Payment`). Fields are the header's parameters, unchanged, since the seller's
 * id may cover their exact characters.
 */
export interface PaymentChallenge {
  id: string;
  realm: string;
  method: string;
  intent: string;
  /** base64url of the JSON request, untouched. */
  request: string;
  /** RFC 3339. */
  expires?: string;
  digest?: string;
  opaque?: string;
  /** Header for the credential; Authorization when absent. */
  header?: string;
}

/** Fields of the 402 around the entry that is signed. */
export interface SignContext {
  /** `resource` and `extensions` of the 402, which a payment of x402 v2 repeats. */
  resource?: unknown;
  extensions?: unknown;
}

/** A complete payment header, and the fields that its signature covers. */
export interface SignedPayment {
  headerName: "X-PAYMENT" | "PAYMENT-SIGNATURE" | "AUTHORIZATION" | "PAYMENT-AUTHORIZATION";
  headerValue: string;
  from: string;
  /**
   * EIP-3009 nonce, 0x + 64 hex. x402: random, drawn by us. mpp: a hash of the challenge's id and realm; on Tempo the
   * memo.
   */
  nonce: string;
  /** Unix seconds. The payment can settle while `validAfter < now < validBefore`. */
  validAfter: number;
  validBefore: number;
  amountAtomic: bigint;
}

/** Identifies one EIP-3009 authorization by its payer and nonce. */
export interface SettlementQuery extends AssetRef {
  from: string;
  nonce: string;
  /** Block that was the newest when the payment was signed or claimed; the search begins some minutes before it. */
  sinceBlock: number;
}

export interface PayersQuery extends AssetRef {
  to: string;
  /** Unix seconds. Blocks from `since` (inclusive) to `until` (exclusive) are read; all of them are long final. */
  since: number;
  until: number;
  signal?: AbortSignal | undefined;
}

/** The payers of an address in a range of blocks. Transfers of zero are left out: anybody can make them for any address. */
export interface Payers {
  /** Number and sum of the transfers of each payer, by the payer's lower-case address. */
  payers: ReadonlyMap<string, { transfers: number; amountAtomic: bigint }>;
  /** First and last block of the range, inclusive. */
  fromBlock: number;
  toBlock: number;
  /** false when the range begins later than `since`, because a limit was reached or a node has no older logs. */
  whole: boolean;
}

/** A Transfer of the asset in a block. */
export interface Settlement {
  /** Hash of the transaction. */
  tx: string;
  blockNumber: number;
  /** Unix seconds. */
  blockTime: number;
  from: string;
  to: string;
  /** Lower-case sender of the transaction. Only present for the settlement of an authorization, and when a node knows it. */
  sender?: string;
  amountAtomic: bigint;
  asset: string;
  /** Decimals of the asset; 6 when absent. */
  decimals?: number;
  network: string;
  /** Whether the block is deep enough not to be replaced, by the rail's setting `confirmations`. */
  final: boolean;
}

/**
 * A wallet that pays. The `known` wallet's address is public. A `blind` wallet is one that sellers do not know, and
 * pays on one UTC day only.
 */
export interface Wallet {
  address: string;
  /** 0x + 64 hex; never logged or recorded. Absent when {@link signer} keeps it. */
  privateKey?: string;
  /** Url of the outside signer that keeps the key (account.ts). */
  signer?: string;
}

/** Thrown when a seller's terms cannot be signed: an expired or repeated challenge. */
export class CannotSign extends Failure {
  constructor(why: string) {
    super("failed", why);
  }
}

/** The amount, asset and chain that a wallet has to pay. */
export interface PaymentNeed extends Required<AssetRef> {
  amountAtomic: bigint;
  /** Longest validity of the payment, seconds; absent: it is not known. */
  validForS?: number;
  /**
   * True when the caller only asks whether a wallet can pay and signs nothing now; then none of the wallet's money is
   * reserved for the payment.
   */
  onlyAsked?: boolean;
}

/**
 * Thrown when no wallet can pay now: there is no wallet, or none that may be used has the money. Never counted as the
 * seller's fault; the planned call is recorded as not made.
 */
export class NoWallet extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("wallet", message, options);
  }
}

/** Thrown when a wallet's outside signer did not sign. */
export class NotSigned extends NoWallet {}

/** Provides funded wallets. Equal arguments give the same wallet, also after a restart, as long as it can pay. */
export interface Wallets {
  /**
   * Returns the known wallet.
   * @param need what the wallet has to pay; when absent, no balance is checked
   * @throws NoWallet, ChainDown
   */
  known(need?: PaymentNeed): Promise<Wallet>;
  /**
   * Returns a wallet for one endpoint on one UTC day that holds at least `atLeastAtomic`.
   * @param cap the endpoint's capability id
   * @param need chain and asset; only wallets of the local chain, which mint one token, work without it
   * @throws NoWallet, ChainDown
   */
  blind(cap: string, day: string, atLeastAtomic: bigint, need?: PaymentNeed): Promise<Wallet>;
}
