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
import { type AnswerEquality, nullableEquality, quorum } from "./quorum.ts";
import { type AsOf, type Block, mapAsOf } from "./rails.ts";
import { ChainDown, chainRead, type Reader } from "./rpc.ts";
import { errorText, type Outcome, type Sender, transact, whyItWouldRevert } from "./sender.ts";
import { isUsed, logsOfPayment, type TokenAtNode, type TokenOnChain } from "./settlement.ts";

/**
 * Gas limit of each call: enough for an authorization through collector and token, with room for a contract wallet's
 * signature.
 */
const CALL_GAS = 500_000n;

/**
 * State on the chain of a hold (a buyer's payment in escrow), with the transaction that caused it. `final`: the block
 * of that transaction is not expected to be replaced.
 */
export type HoldState =
  | { state: "none" }
  | { state: "held"; tx: string; final: boolean; amountAtomic: bigint }
  | { state: "captured" | "voided" | "reclaimed"; tx: string; final: boolean; amountAtomic: bigint };

/** Whether a payment could be placed in escrow: its payer and its hold, or the scheme's reason why not. */
export type HoldVerdict = { valid: true; payer: string; hold: Hold } | { valid: false; reason: string };

/**
 * Holds buyers' money in the commerce-payments escrow (x402 `auth-capture`), with us as the operator. `authorize`,
 * `capture` and `void` are idempotent: when the action was done before, they return `sent` with the transaction that
 * did it. They never throw for what the chain does. Only `state` decides what happened to the money.
 */
export interface Escrow {
  /** Lower-case address of the operator, which authorizes, captures and voids. */
  readonly operator: string;
  /** Returns an x402 offer by which a buyer places `totalAtomic` in escrow (`escrowOffer`). @param now unix seconds */
  offer(totalAtomic: bigint, now: number): PaymentRequirements;
  /**
   * Checks whether a payment could be placed in escrow now, without moving money.
   * @param payment decoded payment header
   * @param offer our current offer; the buyer's echo of it may differ in the deadlines only
   * @param now unix seconds
   * @throws ChainDown
   */
  check(payment: unknown, offer: PaymentRequirements, now: number): Promise<HoldVerdict>;
  /** Moves the whole amount into the escrow. The buyer's signature can be used only once, so there is no partial hold. */
  authorize(hold: Hold, sinceBlock: number): Promise<Outcome>;
  /** Captures the whole amount. The transaction has to be in a block before `captureDeadline`. */
  capture(hold: Hold, sinceBlock: number): Promise<Outcome>;
  /** Returns the whole amount to the buyer. */
  void(hold: Hold, sinceBlock: number): Promise<Outcome>;
  /**
   * Reads the state of a hold.
   * @param sinceBlock block that was the newest when the order was claimed
   * @throws ChainDown
   */
  state(hold: Hold, sinceBlock: number): Promise<AsOf<HoldState>>;
}

export interface EscrowOptions {
  /** The token that is held, and the nodes of its chain. */
  money: TokenOnChain;
  /** Sends as the operator and pays the gas. */
  sender: Sender;
  /** Receives captured money. */
  payTo: string;
}

/** Name of the escrow's event that puts a hold into each state. */
const EVENT_OF_STATE = {
  held: "PaymentAuthorized",
  captured: "PaymentCaptured",
  voided: "PaymentVoided",
  reclaimed: "PaymentReclaimed",
} as const;

/** For each action, the states of a hold which show that the action was done. */
const STATES_AFTER = {
  authorize: ["held", "captured", "voided", "reclaimed"],
  capture: ["captured"],
  void: ["voided"],
} as const;

/** Creates the escrow of one token. @throws TypeError when `payTo` is not an address */
export function createEscrow({ money, sender, payTo }: EscrowOptions): Escrow {
  if (!isAddress(payTo, { strict: false })) throw new TypeError(`not an address: ${payTo}`);
  const { reader, network, asset, domain } = money;
  const escrowPlace: EscrowPlace = { network, asset, payTo, operator: sender.address, ...(domain && { domain }) };
  const toCall = (functionName: string, args: readonly unknown[]) => ({
    ...{ address: ESCROW, abi: ESCROW_ABI, functionName, args, gas: CALL_GAS },
  });
  const authorizeCall = ({ info, amountAtomic, signature }: Hold) =>
    toCall("authorize", [info, amountAtomic, COLLECTOR, signature]);

  /**
   * Performs an action on a hold unless the chain shows that the action was done. After a refusal the chain is read
   * once more, since another process may have performed the action in between.
   */
  async function performOnce(
    action: keyof typeof STATES_AFTER,
    hold: Hold,
    since: number,
    args: readonly unknown[],
  ): Promise<Outcome> {
    const findEarlierResult = async (): Promise<Outcome | null> => {
      const { value: holdState } = await stateOf(money, hold, since);
      if (!(STATES_AFTER[action] as readonly string[]).includes(holdState.state) || holdState.state === "none")
        return null;
      if (action !== "authorize" || holdState.state === "held") return { outcome: "sent", tx: holdState.tx };
      const eventQuery = { hold, since, state: "held" } as const;
      const { value: authorizeEvent } = await quorum.read(
        money,
        (node, head) => findEvent(node, eventQuery, head),
        nullableEquality(HOLD_EQUALITY),
      );
      return authorizeEvent && "tx" in authorizeEvent ? { outcome: "sent", tx: authorizeEvent.tx } : null;
    };
    try {
      const earlierResult = await findEarlierResult();
      if (earlierResult) return earlierResult;
      const outcome = await transact(sender, toCall(action, args));
      if (outcome.outcome !== "refused") return outcome;
      const laterResult = await findEarlierResult();
      // The node that simulated the call knows the hold already, and the other nodes of the quorum do not yet, so the
      // refusal is not final.
      const isCollectedOnNode = outcome.reason === ALREADY_COLLECTED && !("tx" in outcome);
      return (
        laterResult ??
        (isCollectedOnNode ? { outcome: "unknown", says: "one node has it already, and others do not yet" } : outcome)
      );
    } catch (error) {
      return { outcome: "unknown", says: errorText(error) };
    }
  }

  return {
    operator: sender.address.toLowerCase(),
    offer: (totalAtomic, now) => escrowOffer(escrowPlace, totalAtomic, now),
    async check(payment, offer, now) {
      const hold = holdOf(payment, offer);
      if ("reason" in hold) return { valid: false, reason: hold.reason };
      const timeObstacle = holdTimeObstacle(hold, now);
      if (timeObstacle) return { valid: false, reason: timeObstacle };
      const signatureObstacle = await whyNotSigned(money, hold, offer);
      if (signatureObstacle) return { valid: false, reason: signatureObstacle };
      const revertReason = await whyItWouldRevert(reader, sender.address, authorizeCall(hold));
      if (revertReason) return { valid: false, reason: await schemeReasonOf(money, hold, revertReason) };
      return { valid: true, payer: hold.payer, hold };
    },
    authorize: (hold, since) => performOnce("authorize", hold, since, authorizeCall(hold).args),
    capture: (hold, since) =>
      performOnce("capture", hold, since, [hold.info, hold.amountAtomic, 0, hold.info.feeReceiver]),
    void: (hold, since) => performOnce("void", hold, since, [hold.info]),
    state: (hold, since) => stateOf(money, hold, since),
  };
}

/** Reports whether the escrow's contracts are deployed on this chain. @throws ChainDown */
export async function hasEscrow(reader: Reader): Promise<boolean> {
  const readCode = (address: `0x${string}`) => chainRead("a contract", () => reader.getCode({ address }));
  const codes = await Promise.all([readCode(ESCROW), readCode(COLLECTOR)]);
  return codes.every((one) => one !== undefined && one !== "0x");
}

/**
 * Returns a reason when the payer did not sign the hold, or null. The signer's address is recovered from the
 * signature without reading the chain. Only a contract wallet's signature is left to its contract to verify.
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

/** The escrow's error for a hold that was authorized before. */
const ALREADY_COLLECTED = "PaymentAlreadyCollected";

/** Reasons that the scheme defines, by the error with which the escrow reverts. */
const REASON_OF_ERROR: Readonly<Record<string, string>> = {
  AfterPreApprovalExpiry: "authorization_expired",
  InvalidExpiries: "deadline_ordering",
  InvalidSender: "operator_mismatch",
  [ALREADY_COLLECTED]: "payment_already_collected",
  TokenCollectionFailed: "token_collection_failed",
};

/**
 * Returns the scheme's reason for a revert. Errors of the token differ from token to token, so for them the payer's
 * nonce and balance are read instead.
 * @throws ChainDown
 */
async function schemeReasonOf({ reader, asset }: TokenAtNode, hold: Hold, revertReason: string): Promise<string> {
  const { payer } = hold.info;
  const [used, balance] = await chainRead("a payer", () =>
    Promise.all([
      isUsed(reader, asset, payer, hold.nonce as Hex),
      reader.readContract({ address: asset, abi: erc20Abi, functionName: "balanceOf", args: [payer] }),
    ]),
  );
  const knownReason = REASON_OF_ERROR[revertReason];
  if (knownReason) return `invalid_auth_capture_evm_${knownReason}`;
  if (used) return "invalid_auth_capture_evm_payment_already_collected";
  if (balance < hold.amountAtomic) return "invalid_auth_capture_evm_insufficient_balance";
  return "invalid_auth_capture_evm_simulation_failed";
}

/** State of a hold on one node: the event that caused it, and its block. */
type HoldOnNode =
  | { state: "none" }
  | { state: keyof typeof EVENT_OF_STATE; tx: string; blockNumber: number; amountAtomic: bigint };

const HOLD_EQUALITY: AnswerEquality<HoldOnNode> = {
  textOf: (one) =>
    one.state === "none" ? one.state : [one.state, one.tx, one.blockNumber, one.amountAtomic].join(" "),
};

/**
 * Searches the blocks of one node from `since` to `head` for the event that put the hold into `state`. Returns the
 * event's transaction, block and amount, or null if there is no such event.
 * @throws ChainDown
 */
async function findEvent(
  { reader }: TokenAtNode,
  { hold, since, state }: { hold: Hold; since: number; state: keyof typeof EVENT_OF_STATE },
  head: Block,
): Promise<HoldOnNode | null> {
  const event = ESCROW_ABI.find((item) => item.type === "event" && item.name === EVENT_OF_STATE[state])!;
  const [log] = await logsOfPayment(since, head, (range) =>
    reader.getLogs({
      ...{ address: ESCROW, event: event as Extract<typeof event, { type: "event"; name: "PaymentVoided" }> },
      ...{ args: { paymentInfoHash: hold.hash }, strict: true, ...range },
    }),
  );
  if (!log) return null;
  return { state, tx: log.transactionHash, blockNumber: Number(log.blockNumber), amountAtomic: log.args.amount };
}

/**
 * Reads a hold from one node: the state from the escrow's storage at block `head`, and from the escrow's logs the
 * transaction that caused the state.
 * @throws ChainDown also when the logs do not show the event that the storage implies
 */
async function findHold(money: TokenAtNode, hold: Hold, since: number, head: Block): Promise<HoldOnNode> {
  const [collected, capturable, refundable] = await chainRead("a hold", () =>
    money.reader.readContract({
      ...{ address: ESCROW, abi: ESCROW_ABI, functionName: "paymentState" },
      ...{ args: [hold.hash], blockNumber: BigInt(head.number) },
    }),
  );
  if (!collected) return { state: "none" };
  const endStates = refundable > 0n ? (["captured"] as const) : (["voided", "reclaimed", "captured"] as const);
  for (const state of capturable > 0n ? (["held"] as const) : endStates) {
    const foundState = await findEvent(money, { hold, since, state }, head);
    if (foundState) return foundState;
  }
  throw new ChainDown(`the escrow has hold ${hold.hash}, and no log since ${since} says how`);
}

/** Reads the state of a hold, on which a quorum of nodes agrees (`Escrow.state`). */
async function stateOf(money: TokenOnChain, hold: Hold, since: number): Promise<AsOf<HoldState>> {
  const agreedHold = await quorum.read(money, (node, head) => findHold(node, hold, since, head), HOLD_EQUALITY);
  return mapAsOf(agreedHold, (found, { final }) => {
    if (found.state === "none") return found;
    const { blockNumber, ...seen } = found;
    return { ...seen, final: blockNumber <= final.number };
  });
}
