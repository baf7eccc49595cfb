import { Failure } from "../errors.ts";

/**
 * A payment rail: signs what a 402 asks for, and reads from the chain what really happened. It knows nothing of trust.
 * Amounts are atomic units of the asset (BigInt). Times here are chain time in unix seconds: never the record's clock.
 */
export interface Rail {
  /** CAIP-2 id of the chain, e.g. `eip155:84532`; of a rail over several, the first. */
  readonly network: string;
  /** Of a rail over several chains: all of them. What is asked of such a rail names one. */
  readonly networks?: readonly string[];
  /** Asset contract this rail pays in, lower-case 0x address: a unit of it is a dollar. */
  readonly asset: string;
  /** Decimals of the asset that an entry is paid in; absent: 6, as USDC has nearly everywhere. */
  decimalsOf?(entry: Pick<PayableEntry, "network" | "asset">): number;
  /**
   * Can this rail sign this entry (network, asset, payTo an address, amount a positive integer; x402 `exact`, or an mpp
   * `evm/charge` challenge)? Whether a challenge has expired is only asked at the signature.
   */
  canPay(entry: PayableEntry): boolean;
  /**
   * Make the signed payment for one entry, without sending it anywhere. The header value is complete: sending it and
   * re-sending it later are the same payment (same nonce), so it is made durable before a byte leaves.
   * @throws CannotSign when the seller's terms do not allow it now; ChainDown when the chain had to be asked.
   */
  sign(entry: PayableEntry, wallet: Wallet, context: SignContext): Promise<SignedPayment>;
  /**
   * What the chain says of one authorization: the Transfer of exactly this nonce, or null as of a block at which it was
   * not used, or was cancelled. Never believes a header of the seller. @throws ChainDown also where the token calls it
   * used and no log says how
   */
  settlementOf(query: SettlementQuery): Promise<AsOf<Settlement | null>>;
  /** Transfers of the asset from `from` to `to` since a block, oldest first: how a refund is seen. @throws ChainDown */
  transfers(query: { from: string; to: string; sinceBlock: number } & AssetRef): Promise<AsOf<Settlement[]>>;
  /** Transfers of the asset in one transaction; none while it is in no block. @throws ChainDown */
  transfersIn(tx: string, place?: AssetRef): Promise<AsOf<Settlement[]>>;
  /**
   * Who sent the asset to an address between two moments, block by block from the newest on; null where the chain has
   * no block between them. @throws ChainDown; what `signal` was aborted with
   */
  payersOf(query: PayersQuery): Promise<Payers | null>;
  /** Newest block: where a search begins, and when to look again. What happened is never judged by it. @throws ChainDown */
  head(place?: AssetRef): Promise<Block>;
  /** Units of the asset that an address holds at `head`. @throws ChainDown */
  balance(address: string, place?: AssetRef): Promise<AsOf<bigint>>;
}

/** A block of a chain; time in unix seconds. */
export interface Block {
  number: number;
  time: number;
}

/** Between which blocks something was read. */
export interface Blocks {
  /** The block that the answer was read at. */
  head: Block;
  /** Newest block at or below `head` that is not expected to vanish. */
  final: Block;
}

/**
 * What was read from a chain, and as of when. All of it is what one and the same node said, or as many as have to agree:
 * a value of one node and the height of another say nothing together. That something did not happen is known up to
 * `final` alone, and is said only by {@link isFinallyExpired}.
 */
export interface AsOf<T> extends Blocks {
  value: T;
}

/** The same read, put in other words. */
export const mapAsOf = <T, U>({ value, head, final }: AsOf<T>, put: (value: T, blocks: Blocks) => U): AsOf<U> => ({
  value: put(value, { head, final }),
  ...{ head, final },
});

/**
 * Can what a read did not find never happen any more? Only where a block that does not vanish is past the time until
 * which it could, of the very read that did not find it.
 * @param validBefore unix seconds of chain time from which on it cannot happen
 * @param marginS chain seconds after it in which an event in an older block may still become visible
 */
export const isFinallyExpired = ({ final }: Blocks, validBefore: number, marginS: number): boolean =>
  final.time > validBefore + marginS;

/** Blocks by which the logs of a node may lag behind its head. */
const LOGS_LAG_BLOCKS = 300;

/**
 * Up to which block a list of transfers is whole for good: the next search begins after it. No state of a token says how
 * many there were, as it does of a nonce, so the newest blocks are looked at again, and all that are not final.
 */
export const completeUpTo = ({ head, final }: Blocks): number => Math.min(final.number, head.number - LOGS_LAG_BLOCKS);

/** Which chain (CAIP-2) and asset of a rail that has several; a rail over one may be asked without. */
export interface AssetRef {
  network?: string;
  asset?: string;
}

/** What a rail is asked while terms are read. */
export type RailCapabilities = Pick<Rail, "network" | "networks" | "canPay" | "decimalsOf">;

export const networksOf = ({ network, networks }: Pick<Rail, "network" | "networks">): readonly string[] =>
  networks ?? [network];

export const decimalsOf = (rail: Pick<Rail, "decimalsOf">, entry: Pick<PayableEntry, "network" | "asset">): number =>
  rail.decimalsOf?.(entry) ?? 6;

/** One payable entry of a 402, already read: of x402 terms, version 1 or 2, or one mpp challenge. */
export interface PayableEntry {
  /** null: no x402 entry but an mpp challenge, which `challenge` holds. */
  x402Version: 1 | 2 | null;
  challenge?: PaymentChallenge;
  scheme: string;
  /** CAIP-2. */
  network: string;
  asset: string;
  payTo: string;
  amountAtomic: bigint;
  maxTimeoutSeconds: number;
  extra: Record<string, unknown>;
  /** The entry as the seller sent it: what v2 wants echoed as `accepted`. */
  raw: unknown;
}

/**
 * An mpp challenge (`WWW-Authenticate: Payment`) as the seller wrote it: text in, text out, since the seller bound its
 * id to these very characters. Names are the parameters'.
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
  /** Header the credential is wanted in; absent: Authorization. */
  header?: string;
}

export interface SignContext {
  /** v2: `resource` and `extensions` of the 402, echoed as the protocol wants. */
  resource?: unknown;
  extensions?: unknown;
}

export interface SignedPayment {
  headerName: "X-PAYMENT" | "PAYMENT-SIGNATURE" | "AUTHORIZATION" | "PAYMENT-AUTHORIZATION";
  headerValue: string;
  from: string;
  /** EIP-3009 nonce, 0x + 64 hex. x402: drawn by us. mpp: the hash of the challenge. */
  nonce: string;
  validAfter: number;
  validBefore: number;
  amountAtomic: bigint;
}

export interface SettlementQuery extends AssetRef {
  from: string;
  nonce: string;
  /** First block to look in. */
  sinceBlock: number;
}

export interface PayersQuery extends AssetRef {
  to: string;
  /** Unix seconds: blocks from `since` on and before `until`, long final. */
  since: number;
  until: number;
  signal?: AbortSignal | undefined;
}

/** What an address was sent in a range of blocks, without Transfers of nothing: anybody makes those for anybody. */
export interface Payers {
  /** By lower-case address. */
  payers: ReadonlyMap<string, { transfers: number; amountAtomic: bigint }>;
  /** First and last block of the range, both counted. */
  fromBlock: number;
  toBlock: number;
  /** false: what was asked for begins earlier, and a node did not give as much. */
  whole: boolean;
}

export interface Settlement {
  tx: string;
  blockNumber: number;
  blockTime: number;
  from: string;
  to: string;
  /** Who sent the transaction, lower case: said of an authorization alone, and only where a node tells. */
  sender?: string;
  amountAtomic: bigint;
  asset: string;
  /** Of the asset; absent: 6. */
  decimals?: number;
  network: string;
  /** Deep enough that we no longer expect it to vanish (confirmations are the rail's setting). */
  final: boolean;
}

/** A paying wallet. `known` ones are ours in public; a `blind` one pays on one UTC day and never again. */
export interface Wallet {
  address: string;
  /** 0x + 64 hex; never logged, never in the record. Absent: {@link signer} has it. */
  privateKey?: string;
  /** Address of the outside signer that has the key (account.ts). */
  signer?: string;
}

/** The seller's own terms cannot be signed at this moment (an expired or repeated challenge). Not our fault. */
export class CannotSign extends Error {
  override readonly name = "CannotSign";
}

/** What a wallet is wanted for: how much of which asset, on which chain. */
export interface Need extends Required<AssetRef> {
  amountAtomic: bigint;
}

/**
 * There is no wallet that could pay this now: none has the money, or none is left. Never the seller's fault, and the call
 * that was planned is written down as not made.
 */
export class NoWallet extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("wallet", message, options);
  }
}

/** The wallet is there, and who has its key did not sign with it. */
export class NotSigned extends NoWallet {}

/** Hands out wallets with money on them. Same arguments, same wallet: a restart pays from the same one. */
export interface Wallets {
  /** @throws NoWallet, ChainDown */
  known(need?: Need): Promise<Wallet>;
  /**
   * A wallet for one endpoint on one UTC day that holds at least `atLeastAtomic`.
   * @param need what the local chain's wallets need not know: they are on one chain, and minted
   * @throws NoWallet, ChainDown
   */
  blind(cap: string, day: string, atLeastAtomic: bigint, need?: Need): Promise<Wallet>;
}
