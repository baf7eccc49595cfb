import type { PaymentRequirements } from "@x402/core/types";
import { erc20Abi, type Hex, isAddress, recoverTypedDataAddress } from "viem";
import { RECEIVE_TYPES } from "./authorization.ts";
import {
  COLLECTOR,
  ESCROW,
  ESCROW_ABI,
  type EscrowPlace,
  escrowOffer,
  type Hold,
  holdOf,
  holdTimeObstacle,
} from "./escrow-terms.ts";
import { type AnswerEquality, orNull, quorum } from "./quorum.ts";
import { type AsOf, type Block, mapAsOf } from "./rails.ts";
import { ChainDown, chainRead, type Reader } from "./rpc.ts";
import { errorText, type Outcome, type Sender, transact, whyItWouldRevert } from "./sender.ts";
import { isUsed, logsSince, type TokenAtNode, type TokenOnChain } from "./settlement.ts";

/** An authorization through collector and token, with room for a contract wallet's signature. */
const GAS = 500_000n;

/** What the chain says of a hold. `final` as for a settlement. */
export type HoldState =
  | { state: "none" }
  | { state: "held"; tx: string; final: boolean; amountAtomic: bigint }
  | { state: "captured" | "voided" | "reclaimed"; tx: string; final: boolean; amountAtomic: bigint };

export type HoldChecked = { valid: true; payer: string; hold: Hold } | { valid: false; reason: string };

/**
 * Buyers' money held in the commerce-payments escrow (x402 `auth-capture`), with us as the operator. Every act may be
 * done again: what is done already is `sent` with the transaction that did it. An act never throws for what the chain
 * does, and its answer decides nothing: `state` does.
 */
export interface Escrow {
  /** Lower-case address that authorizes, captures and voids. */
  readonly operator: string;
  /** See `escrowOffer`. @param now unix seconds */
  offer(totalAtomic: bigint, now: number): PaymentRequirements;
  /**
   * Would a payment be held if we placed it now? Moves nothing.
   * @param payment decoded payment header @param offer ours, of now: only its deadlines may differ from what the buyer
   * answers
   * @throws ChainDown
   */
  check(payment: unknown, offer: PaymentRequirements, now: number): Promise<HoldChecked>;
  /** Move the buyer's money into the escrow: all of it, since the buyer's signature is used up by any part. */
  authorize(hold: Hold, sinceBlock: number): Promise<Outcome>;
  /** Take all of it. Refused from `captureDeadline` on: begin well before, a transaction waits for its block. */
  capture(hold: Hold, sinceBlock: number): Promise<Outcome>;
  /** Give all of it back. */
  void(hold: Hold, sinceBlock: number): Promise<Outcome>;
  /** @param sinceBlock before which nothing of this hold can have happened @throws ChainDown */
  state(hold: Hold, sinceBlock: number): Promise<AsOf<HoldState>>;
}

export interface EscrowOptions {
  money: TokenOnChain;
  /** Its key is the operator's, and pays the gas. */
  sender: Sender;
  /** Gets what is captured. */
  payTo: string;
}

const EVENTS = {
  held: "PaymentAuthorized",
  captured: "PaymentCaptured",
  voided: "PaymentVoided",
  reclaimed: "PaymentReclaimed",
} as const;

/** Which of a hold's states an act leads to. */
const REACHES = {
  authorize: ["held", "captured", "voided", "reclaimed"],
  capture: ["captured"],
  void: ["voided"],
} as const;

export function createEscrow({ money, sender, payTo }: EscrowOptions): Escrow {
  if (!isAddress(payTo, { strict: false })) throw new TypeError(`not an address: ${payTo}`);
  const { reader, network, asset, domain } = money;
  const place: EscrowPlace = { network, asset, payTo, operator: sender.address, ...(domain && { domain }) };
  const call = (functionName: string, args: readonly unknown[]) => ({
    ...{ address: ESCROW, abi: ESCROW_ABI, functionName, args, gas: GAS },
  });
  const authorizing = ({ info, amountAtomic, signature }: Hold) =>
    call("authorize", [info, amountAtomic, COLLECTOR, signature]);

  /** Do it, unless it is done; and look again when it was refused: somebody may have done it just before us. */
  async function act(
    what: keyof typeof REACHES,
    hold: Hold,
    since: number,
    args: readonly unknown[],
  ): Promise<Outcome> {
    const done = async (): Promise<Outcome | null> => {
      const { value: seen } = await stateOf(money, hold, since);
      if (!(REACHES[what] as readonly string[]).includes(seen.state) || seen.state === "none") return null;
      if (what !== "authorize" || seen.state === "held") return { outcome: "sent", tx: seen.tx };
      const held = { hold, since, state: "held" } as const;
      const { value: placed } = await quorum.read(money, (node, head) => eventOf(node, held, head), orNull(FOUND));
      return placed && "tx" in placed ? { outcome: "sent", tx: placed.tx } : null;
    };
    try {
      const before = await done();
      if (before) return before;
      const outcome = await transact(sender, call(what, args));
      if (outcome.outcome !== "refused") return outcome;
      const now = await done();
      // The node that would refuse it has it already, and those that were asked lag behind: it is not refused for good.
      const isThere = outcome.reason === COLLECTED && !("tx" in outcome);
      return (
        now ?? (isThere ? { outcome: "unknown", says: "one node has it already, and others do not yet" } : outcome)
      );
    } catch (error) {
      return { outcome: "unknown", says: errorText(error) };
    }
  }

  return {
    operator: sender.address.toLowerCase(),
    offer: (totalAtomic, now) => escrowOffer(place, totalAtomic, now),
    async check(payment, offer, now) {
      const hold = holdOf(payment, offer);
      if ("reason" in hold) return { valid: false, reason: hold.reason };
      const late = holdTimeObstacle(hold, now);
      if (late) return { valid: false, reason: late };
      const unsigned = await whyNotSigned(money, hold, offer);
      if (unsigned) return { valid: false, reason: unsigned };
      const reverts = await whyItWouldRevert(reader, sender.address, authorizing(hold));
      if (reverts) return { valid: false, reason: await reasonOf(money, hold, reverts) };
      return { valid: true, payer: hold.payer, hold };
    },
    authorize: (hold, since) => act("authorize", hold, since, authorizing(hold).args),
    capture: (hold, since) => act("capture", hold, since, [hold.info, hold.amountAtomic, 0, hold.info.feeReceiver]),
    void: (hold, since) => act("void", hold, since, [hold.info]),
    state: (hold, since) => stateOf(money, hold, since),
  };
}

/** Are the escrow's contracts on this chain? Where they are not, nothing can be held. @throws ChainDown */
export async function hasEscrow(reader: Reader): Promise<boolean> {
  const code = (address: `0x${string}`) => chainRead("a contract", () => reader.getCode({ address }));
  const codes = await Promise.all([code(ESCROW), code(COLLECTOR)]);
  return codes.every((one) => one !== undefined && one !== "0x");
}

/**
 * Who signed is asked here first: it costs the chain nothing. A contract wallet's signature can only be verified by the chain.
 */
async function whyNotSigned(
  { reader, network }: TokenAtNode,
  hold: Hold,
  offer: PaymentRequirements,
): Promise<string | null> {
  const { info, signature } = hold;
  const { name, version } = offer.extra as { name: string; version: string };
  const chainId = Number(network.slice("eip155:".length));
  const signer = await recoverTypedDataAddress({
    domain: { name, version, chainId, verifyingContract: info.token },
    types: RECEIVE_TYPES,
    primaryType: "ReceiveWithAuthorization",
    message: {
      ...{ from: info.payer, to: COLLECTOR, value: info.maxAmount, validAfter: 0n },
      ...{ validBefore: BigInt(info.preApprovalExpiry), nonce: hold.nonce as `0x${string}` },
    },
    signature,
  }).catch(() => null);
  if (signer?.toLowerCase() === hold.payer) return null;
  const code = await chainRead("code", () => reader.getCode({ address: info.payer }));
  return code && code !== "0x" ? null : "invalid_auth_capture_evm_signature";
}

/** What the escrow reverts with when money was collected under this very hold before. */
const COLLECTED = "PaymentAlreadyCollected";

/** The scheme's names for what the escrow reverts with. */
const REASONS: Readonly<Record<string, string>> = {
  AfterPreApprovalExpiry: "authorization_expired",
  InvalidExpiries: "deadline_ordering",
  InvalidSender: "operator_mismatch",
  [COLLECTED]: "payment_already_collected",
  TokenCollectionFailed: "token_collection_failed",
};

/**
 * A reason for the buyer: what the escrow says, or what its token's words, which differ from token to token, come from.
 */
async function reasonOf({ reader, asset }: TokenAtNode, hold: Hold, reverts: string): Promise<string> {
  const { payer } = hold.info;
  const [used, balance] = await chainRead("a payer", () =>
    Promise.all([
      isUsed(reader, asset, payer, hold.nonce as Hex),
      reader.readContract({ address: asset, abi: erc20Abi, functionName: "balanceOf", args: [payer] }),
    ]),
  );
  const known = REASONS[reverts];
  if (known) return `invalid_auth_capture_evm_${known}`;
  if (used) return "invalid_auth_capture_evm_payment_already_collected";
  if (balance < hold.amountAtomic) return "invalid_auth_capture_evm_insufficient_balance";
  return "invalid_auth_capture_evm_simulation_failed";
}

/** A hold as one node has it: the event that put it into this state, and in which block. */
type Found = { state: "none" } | { state: keyof typeof EVENTS; tx: string; blockNumber: number; amountAtomic: bigint };

const FOUND: AnswerEquality<Found> = {
  textOf: (one) =>
    one.state === "none" ? one.state : [one.state, one.tx, one.blockNumber, one.amountAtomic].join(" "),
};

/** The one event of its kind that a hold has up to a block, or null. */
async function eventOf(
  { reader }: TokenAtNode,
  { hold, since, state }: { hold: Hold; since: number; state: keyof typeof EVENTS },
  head: Block,
): Promise<Found | null> {
  const event = ESCROW_ABI.find((item) => item.type === "event" && item.name === EVENTS[state])!;
  const [log] = await logsSince(since, head, (range) =>
    reader.getLogs({
      ...{ address: ESCROW, event: event as Extract<typeof event, { type: "event"; name: "PaymentVoided" }> },
      ...{ args: { paymentInfoHash: hold.hash }, strict: true, ...range },
    }),
  );
  if (!log) return null;
  return { state, tx: log.transactionHash, blockNumber: Number(log.blockNumber), amountAtomic: log.args.amount };
}

/** Which state it is, the escrow's own storage says at this block; its logs add the transaction. @throws ChainDown */
async function findHold(money: TokenAtNode, hold: Hold, since: number, head: Block): Promise<Found> {
  const [collected, capturable, refundable] = await chainRead("a hold", () =>
    money.reader.readContract({
      ...{ address: ESCROW, abi: ESCROW_ABI, functionName: "paymentState" },
      ...{ args: [hold.hash], blockNumber: BigInt(head.number) },
    }),
  );
  if (!collected) return { state: "none" };
  const over = refundable > 0n ? (["captured"] as const) : (["voided", "reclaimed", "captured"] as const);
  for (const state of capturable > 0n ? (["held"] as const) : over) {
    const seen = await eventOf(money, { hold, since, state }, head);
    if (seen) return seen;
  }
  throw new ChainDown(`the escrow has hold ${hold.hash}, and no log since ${since} says how`);
}

/** See `Escrow.state`. */
async function stateOf(money: TokenOnChain, hold: Hold, since: number): Promise<AsOf<HoldState>> {
  const read = await quorum.read(money, (node, head) => findHold(node, hold, since, head), FOUND);
  return mapAsOf(read, (found, { final }) => {
    if (found.state === "none") return found;
    const { blockNumber, ...seen } = found;
    return { ...seen, final: blockNumber <= final.number };
  });
}
