import type {
  BoughtRequest,
  Gas,
  JudgedBy,
  OrderStep,
  Quote,
  StepOf,
  StepState,
  WorkProblem,
} from "../record/order-step.ts";

/** Did the seller take our payment? `unknown`: it may have taken it or may still take it. */
export type LegFate = "unknown" | "paid" | "unpaid";

/**
 * A leg: one payment to one seller for an order, and the seller's answer. Prices are USDC as decimal text;
 * `validBefore` is unix seconds of the chain's time.
 */
export interface Leg {
  /** Number of the leg in its order, from 0. */
  readonly leg: number;
  /** Capability id of the endpoint. */
  readonly cap: string;
  readonly url: string;
  readonly method: BoughtRequest["method"];
  readonly payTo: string;
  readonly price: string;
  /** Address of our wallet that pays. */
  readonly wallet: string;
  readonly nonce: string;
  readonly validBefore: number;
  /** Number of a block before the payment, at which searches for the payment begin. */
  readonly sinceBlock: number;
  /** Had the endpoint a letter (a grade) when it was paid? */
  readonly lettered: boolean;
  /** The strongest check that judges the answer; null in older orders. */
  readonly judgedBy: JudgedBy | null;
  /** The endpoint's class, whose check judges the answer. */
  readonly class: string;
  fate: LegFate;
  /** Transaction in which the seller took our payment; null unless `fate` is `paid`. */
  tx: string | null;
  /** Transaction in which the seller sent the money back, as text; null if it has not. */
  recovered: string | null;
  /** Amount that the seller sent back, as text; null if it sent nothing. */
  recoveredAmount: string | null;
  /** The seller's answer as the step `seller_result` describes it; null while the log has no such step of this leg. */
  result: Pick<
    StepOf<"seller_result">,
    | "status"
    | "content_type"
    | "sha256"
    | "size"
    | "delivered"
    | "delivery"
    | "schema_ok"
    | "latency_ms"
    | "checks"
    | "pass"
    | "unmet"
    | "at"
  > | null;
  /** Did the answer pass, and if not, whose fault is it? null before the step `checked`. */
  checked: Pick<StepOf<"checked">, "pass" | "fault"> | null;
}

/**
 * One order of a buyer, computed from its steps in the log: what the buyer requested and paid, and our payments to
 * sellers for it. The buyer's payment itself is in the log at offset `claimedAt`; request bodies and answers are in
 * the object store (order-objects.ts).
 */
export interface Order {
  readonly id: string;
  /** Key of the buyer's payment in the log (claim.ts). */
  readonly key: string;
  /** Partition of the log topic `orders` that has all steps of the order. */
  readonly partition: number;
  /**
   * Log offsets of the order's first step (`claimed`) and of the newest `seller_intent`. A replica (selling process)
   * that takes over the order reads these two steps.
   */
  readonly claimedAt: number;
  intentAt: number | null;
  readonly operation: StepOf<"claimed">["operation"];
  readonly scheme: StepOf<"claimed">["scheme"];
  readonly network: string;
  readonly asset: string;
  readonly payer: string;
  /** Our address to which the buyer pays, lower case. */
  readonly payTo: string;
  readonly nonce: string;
  readonly validBefore: number;
  readonly sinceBlock: number;
  readonly paymentSha256: string;
  readonly requestSha256: string;
  readonly quote: Quote;
  /** Did the buyer agree that the call is published whole? */
  readonly publish: boolean;
  /** The buyer's own expectation of the answer; null if it stated none. */
  readonly expect: Readonly<Record<string, unknown>> | null;
  /** The payment's identifier, as chosen by the buyer's client. */
  readonly identifier: string | null;
  /**
   * Opaque name of the client network (an IPv4 address or an IPv6 prefix) from which the buyer sent the request; null
   * when unknown.
   */
  readonly client: string | null;
  /**
   * True: the fees that the payer has paid before cover the risk of this order, so the order does not count towards
   * the limit over all buyers.
   */
  readonly credit: boolean;
  /** RFC 3339. */
  readonly createdAt: string;
  state: Exclude<
    StepState,
    "leg_paid" | "leg_unpaid" | "leg_recovered" | "expired" | "recorded" | "adopted" | "stamped" | "reopened"
  >;
  /** Number of takeovers by another replica and of new attempts at our own operation, so far. */
  epoch: number;
  /** Name of the replica that acts on the order. */
  by: string;
  /** When `state` or `by` was set last, RFC 3339, by the clock of the replica that wrote the step. */
  changedAt: string;
  /** When the order's newest step was appended, unix ms by the log's clock. */
  movedAt: number;
  /**
   * How many steps changed the order. The number is part of the next step's event id, so that two steps with one
   * state have different ids.
   */
  steps: number;
  legs: Leg[];
  /**
   * Set if the buyer bought an operation that we do ourselves, with its answer once it is done; null if the buyer
   * bought a call of a seller's endpoint.
   */
  own: { result: Pick<StepOf<"worked">, "content_type" | "sha256" | "size"> | null } | null;
  /** Explanation in the newest step that has one, in words; null before the first, and when a new attempt begins. */
  says: string | null;
  /** Why our own operation gave no answer, as returned to the buyer; else null. */
  problem: WorkProblem | null;
  /** Transaction that charged the buyer, and its amount; null while no charge is known. */
  charged: { tx: string; amount: string } | null;
  /**
   * Transaction that put the buyer's money into escrow, and the time (unix seconds) until which we may capture
   * (collect) it.
   */
  hold: { tx: string; captureDeadline: number } | null;
  /** Our transfer back to the buyer. `at`: log offset of the step `refund_intent`, which holds the signed transfer. */
  refund: { at: number; from: string; nonce: string; validBefore: number; sinceBlock: number } | null;
  /** Transaction that sent the charge back to the buyer, and its amount; null before that. */
  refunded: { tx: string; amount: string } | null;
  /** Gas cost of each of our own transactions. */
  gas: Gas[];
  /** Hashes of the transactions that were sent to charge the buyer. */
  sent: string[];
  /**
   * The payer's balance, in dollars as text, when its last charge was refused; null if the last charge was not refused,
   * or the balance could not be read.
   */
  refusedAt: string | null;
  /**
   * May the payer have caused that an attempt to charge it failed, since a transaction was sent, the charge was refused
   * or the wallet held too little?
   */
  failedByPayer: boolean;
  /** `ours` if the order was written off since we did not charge its buyer in time; null otherwise. */
  unchargedFault: "ours" | null;
  /** Bytes of the order's records in the log. */
  bytes: number;
  /**
   * False while the block in which the buyer was charged, or got its money back from escrow, may still vanish from
   * the chain.
   */
  final: boolean;
  /** The buyer's authorization cannot be used any more. */
  expired: boolean;
  /**
   * True when nothing more is written about the call to the public record: it is there, whole or as salted commitments,
   * or it never will be, because its bytes were lost.
   */
  recorded: boolean;
}

interface Rule {
  /** States that the step may follow. */
  from: readonly Order["state"][];
  /** A further condition on the order before the step; absent: none. */
  when?: (order: Order) => boolean;
}

const isExact = ({ scheme }: Order): boolean => scheme === "exact";
const isEscrow = ({ scheme }: Order): boolean => scheme === "auth-capture";
const hasPassed = (order: Order): boolean =>
  order.own ? order.own.result !== null : order.legs.at(-1)?.checked?.pass === true;
/** Also true before anything was checked. */
const hasNotPassed = (order: Order): boolean => !hasPassed(order);

/**
 * May a seller be paid now? In an order with escrow only once the buyer's money is held; after another seller's
 * answer failed, only once that seller can no longer take our payment.
 */
function mayPay(order: Order): boolean {
  const lastLeg = order.legs.at(-1);
  if (order.own) return false;
  if (isEscrow(order) && order.hold === null) return false;
  return lastLeg === undefined || (lastLeg.checked?.pass === false && lastLeg.fate === "unpaid");
}

/**
 * For each step the states that it may follow (orders.md, States). In any other state of the order the step changes
 * nothing: its writer had not read the newest steps.
 */
const RULES: Readonly<Record<Exclude<Order["state"], "claimed">, Rule>> = {
  rejected: { from: ["claimed"] },
  verified: { from: ["claimed"] },
  hold_intent: { from: ["verified"], when: isEscrow },
  held: { from: ["hold_intent", "hold_unknown"] },
  // The block with the hold may vanish from the chain, and the hold with it.
  hold_failed: { from: ["hold_intent", "hold_unknown", "void_intent", "void_unknown", "voided"] },
  hold_unknown: { from: ["hold_intent"] },
  seller_intent: { from: ["verified", "held", "checked"], when: mayPay },
  worked: { from: ["verified"], when: ({ own }) => own !== null },
  seller_result: { from: ["seller_intent"] },
  seller_unknown: { from: ["seller_intent"] },
  checked: { from: ["seller_result", "seller_unknown"] },
  // If the block with the charge vanished, the charge is sent again or given up.
  settle_intent: { from: ["checked", "worked", "settle_unknown", "settled"], when: hasPassed },
  // A charge that was given up may still be found on the chain. Then the buyer has paid for an answer that passed.
  settled: { from: ["settle_intent", "settle_unknown", "written_off", "settled"], when: hasPassed },
  settle_unknown: { from: ["settle_intent"] },
  written_off: { from: ["checked", "worked", "settle_intent", "settle_unknown", "settled"], when: hasPassed },
  // Only an order without money in escrow is released; an order with escrow is voided instead.
  released: {
    from: ["verified", "checked"],
    when: (order) => hasNotPassed(order) && (isExact(order) || order.state === "verified"),
  },
  void_intent: {
    from: ["held", "checked", "void_unknown", "voided"],
    when: (order) => isEscrow(order) && hasNotPassed(order),
  },
  voided: { from: ["void_intent", "void_unknown", "voided"] },
  void_unknown: { from: ["void_intent"] },
  reclaimable: {
    from: ["held", "checked", "settle_intent", "settle_unknown", "settled", "void_intent", "void_unknown", "voided"],
    when: isEscrow,
  },
  // A charge was found on the chain that the buyer did not owe: somebody else submitted its authorization, or a hold
  // was captured that we were giving back. Or the order was written off, and its buyer then used the nonce to pay us
  // another amount than it owed.
  refund_due: {
    from: [
      ...(["rejected", "released", "written_off", "hold_intent", "hold_unknown"] as const),
      ...(["void_intent", "void_unknown", "voided"] as const),
    ],
  },
  refund_intent: { from: ["refund_due", "refund_unknown"] },
  refunded: { from: ["refund_intent", "refund_unknown"] },
  refund_unknown: { from: ["refund_intent"] },
};

/** Place of a record in the log topic `orders`. */
export interface RecordPlace {
  partition: number;
  offset: number;
}

/**
 * Place and size of a record that was read from the log, and when it was appended by the log's own clock (not the
 * writer's clock).
 */
export interface AppendedPlace extends RecordPlace {
  appendedAt: Date;
  /** Bytes of the record. */
  bytes: number;
}

/** Makes the order that begins with this step. */
export function orderFromClaim(
  claim: StepOf<"claimed">,
  { partition, offset, appendedAt, bytes }: AppendedPlace,
): Order {
  return {
    id: claim.order,
    key: claim.key,
    partition,
    claimedAt: offset,
    intentAt: null,
    operation: claim.operation,
    scheme: claim.scheme,
    network: claim.network,
    asset: claim.asset,
    payer: claim.payer.toLowerCase(),
    payTo: String(claim.requirements.payTo ?? "").toLowerCase(),
    nonce: claim.nonce,
    validBefore: claim.valid_before,
    sinceBlock: claim.since_block,
    paymentSha256: claim.payment_sha256,
    requestSha256: claim.request_sha256,
    quote: claim.quote,
    publish: claim.publish,
    expect: claim.expect ?? null,
    identifier: claim.identifier ?? null,
    client: claim.client ?? null,
    credit: claim.credit === true,
    createdAt: claim.at,
    state: "claimed",
    epoch: claim.epoch,
    by: claim.by,
    changedAt: claim.at,
    movedAt: appendedAt.getTime(),
    steps: 1,
    legs: [],
    own: claim.operation === "own" ? { result: null } : null,
    says: null,
    problem: null,
    charged: null,
    hold: null,
    refund: null,
    refunded: null,
    gas: [],
    sent: [],
    refusedAt: null,
    failedByPayer: false,
    unchargedFault: null,
    bytes,
    final: true,
    expired: false,
    recorded: false,
  };
}

const legOf = (intent: StepOf<"seller_intent">): Leg => ({
  leg: intent.leg,
  cap: intent.cap,
  url: intent.request.url,
  method: intent.request.method,
  payTo: intent.pay_to.toLowerCase(),
  price: intent.price,
  wallet: intent.wallet,
  nonce: intent.nonce,
  validBefore: intent.valid_before,
  sinceBlock: intent.since_block,
  lettered: intent.lettered === true,
  judgedBy: intent.want.judged_by ?? null,
  class: intent.want.class,
  fate: "unknown",
  tx: null,
  recovered: null,
  recoveredAmount: null,
  result: null,
  checked: null,
});

/**
 * An order whose epoch has reached this number is not attempted again. The epoch grows with each takeover by another
 * replica and each new attempt at our own operation.
 */
const MAX_EPOCHS = 32;

/**
 * May our own operation be attempted again for an order that ended without an answer? Yes while nobody was paid or
 * charged for it and its payment is still valid.
 */
export const mayReopen = ({ own, state, expired, epoch }: Order): boolean =>
  own?.result === null && (state === "released" || state === "rejected") && !expired && epoch < MAX_EPOCHS;

/**
 * Applies a step that is not in {@link RULES}, since it may follow any state, such as the step that a seller took our
 * payment.
 * @returns true when it changed the order
 */
function applySideStep(order: Order, step: OrderStep): boolean {
  if (step.state === "stamped") return false;
  if (step.state === "adopted") {
    // If the replica that acts on the order wrote another step in the meantime, it has not abandoned the order.
    if (step.epoch !== order.epoch + 1 || (step.steps !== undefined && step.steps !== order.steps)) return false;
    Object.assign(order, { epoch: step.epoch, by: step.by, changedAt: step.at });
    return true;
  }
  if (step.state === "reopened") {
    if (step.epoch !== order.epoch + 1 || step.steps !== order.steps || !mayReopen(order)) return false;
    const { epoch, by, at: changedAt } = step;
    Object.assign(order, { epoch, by, changedAt, state: "verified", says: null, problem: null });
    return true;
  }
  if (step.state === "expired") {
    if (order.expired) return false;
    order.expired = true;
    return true;
  }
  if (step.state === "recorded") {
    if (!callToRecord(order)) return false;
    order.recorded = true;
    return true;
  }
  const leg = "leg" in step ? order.legs.find((one) => one.leg === step.leg) : undefined;
  if (!leg) return false;
  if (step.state === "leg_recovered") {
    if (leg.fate !== "paid" || leg.recovered !== null) return false;
    Object.assign(leg, { recovered: step.tx, recoveredAmount: step.amount });
  } else {
    if (leg.fate !== "unknown") return false;
    leg.fate = step.state === "leg_paid" ? "paid" : "unpaid";
    leg.tx = step.state === "leg_paid" ? step.tx : null;
  }
  return true;
}

const SIDE_STEPS: ReadonlySet<StepState> = new Set([
  "adopted",
  "stamped",
  "reopened",
  "expired",
  "recorded",
  "leg_paid",
  "leg_unpaid",
  "leg_recovered",
]);

const MAX_SENT_TXS = 16;

/** Adds a transaction that was sent to charge the buyer, up to {@link MAX_SENT_TXS}. */
function addSentTx(order: Order, tx: string | undefined): void {
  if (tx !== undefined && !order.sent.includes(tx) && order.sent.length < MAX_SENT_TXS) order.sent.push(tx);
}

/**
 * Applies a step's members to the order.
 * @returns false if they contradict the order; then nothing was changed
 */
function applyMembers(order: Order, step: OrderStep, { offset }: RecordPlace): boolean {
  const leg = order.legs.at(-1);
  switch (step.state) {
    case "seller_intent":
      if (step.leg !== order.legs.length) return false;
      order.legs.push(legOf(step));
      order.intentAt = offset;
      return true;
    case "seller_result":
      if (leg?.leg !== step.leg) return false;
      leg.result = step;
      return true;
    case "worked":
      order.own!.result = step;
      return true;
    case "seller_unknown":
      return leg?.leg === step.leg;
    case "checked":
      if (leg?.leg !== step.leg || (step.pass && leg.result?.pass !== true)) return false;
      leg.checked = { pass: step.pass, fault: step.fault };
      return true;
    case "held":
      order.hold = { tx: step.tx, captureDeadline: step.capture_deadline };
      return true;
    case "settled":
      // Once settled or written off, the order changes only when the charge is final.
      if (step.final === false && (order.state === "settled" || order.state === "written_off")) return false;
      order.charged = { tx: step.tx, amount: step.amount };
      order.final = step.final !== false;
      addSentTx(order, step.tx);
      return true;
    case "settle_unknown":
      order.refusedAt = step.payer_has ?? null;
      order.failedByPayer ||= step.by_payer === true || step.payer_has !== undefined || step.tx !== undefined;
      addSentTx(order, step.tx);
      if (!order.final) Object.assign(order, { charged: null, final: true });
      return true;
    case "written_off":
      order.unchargedFault = step.fault ?? null;
      if (!order.final) Object.assign(order, { charged: null, final: true });
      return true;
    case "voided":
      if (order.state === "voided" && step.final === false) return false;
      order.final = step.final !== false;
      return true;
    case "released":
      order.problem = step.problem ?? null;
      return true;
    case "refund_due":
      order.charged = { tx: step.tx, amount: step.amount };
      order.final = true;
      return true;
    case "refund_intent":
      order.refund = {
        ...{ at: offset, from: step.from, nonce: step.nonce },
        ...{ validBefore: step.valid_before, sinceBlock: step.since_block },
      };
      return true;
    case "refunded":
      order.refunded = { tx: step.tx, amount: step.amount };
      return true;
    default:
      // A further step after a charge or a void that was not final means that its block has vanished.
      if (!order.final) Object.assign(order, { charged: null, final: true });
      return true;
  }
}

/**
 * Applies one step to its order. A repeated step, a step of an earlier epoch, and a step that may not follow the
 * order's state change nothing.
 * @returns true when it changed the order
 */
export function advance(order: Order, step: OrderStep, at: AppendedPlace): boolean {
  if (!applyIfAllowed(order, step, at)) return false;
  const { gas } = step;
  if (gas && !order.gas.some(({ tx }) => tx === gas.tx)) order.gas.push(gas);
  order.steps += 1;
  order.bytes += at.bytes;
  order.movedAt = at.appendedAt.getTime();
  return true;
}

function applyIfAllowed(order: Order, step: OrderStep, at: RecordPlace): boolean {
  if (step.order !== order.id || step.state === "claimed") return false;
  if (step.state !== "adopted" && step.state !== "reopened" && step.epoch !== order.epoch) return false;
  if (SIDE_STEPS.has(step.state)) return applySideStep(order, step);
  const state = step.state as keyof typeof RULES;
  const { from, when } = RULES[state];
  if (order.final && (order.state === "settled" || order.state === "voided")) return false;
  if (!from.includes(order.state) || (when && !when(order)) || !applyMembers(order, step, at)) return false;
  order.state = state;
  order.changedAt = step.at;
  if ("says" in step && typeof step.says === "string") order.says = step.says;
  return true;
}

/** States in which it is decided whether the buyer pays. Whether a seller takes our payment may still be open. */
const ENDED_STATES: ReadonlySet<Order["state"]> = new Set([
  ...(["rejected", "hold_failed", "settled", "written_off"] as const),
  ...(["released", "voided", "reclaimable", "refunded"] as const),
]);

/** Is the outcome for the buyer decided? */
export const isEnded = ({ state }: Order): boolean => ENDED_STATES.has(state);

/**
 * Returns the leg whose call must still enter the public record, or null. A call enters it when its seller has our
 * money, its answer was read to the end, and the answer failed or the buyer was charged for it. A call that was
 * interrupted by our own crash does not enter it, since it is no evidence about the seller.
 */
export function callToRecord(order: Order): Leg | null {
  const leg = order.legs.at(-1);
  if (
    order.recorded ||
    !isEnded(order) ||
    !order.final ||
    leg?.fate !== "paid" ||
    leg.result === null ||
    leg.checked === null
  ) {
    return null;
  }
  if (leg.checked.fault === "ours" || (leg.checked.pass && order.state !== "settled")) return null;
  return leg;
}

/**
 * Is the order finished, that is, can no money of ours or of the buyer's move for it any more, and is its call in the
 * public record? Recovery checks all other orders.
 */
export function isClosed(order: Order): boolean {
  if (!isEnded(order) || !order.final || order.legs.some(({ fate }) => fate === "unknown") || callToRecord(order))
    return false;
  const wasCharged = order.state === "settled" || order.state === "refunded";
  return wasCharged || order.scheme === "auth-capture" || order.expired;
}

/**
 * Is it decided who bears the cost of the order's legs (payments to sellers)? In an order whose buyer is being refunded
 * it is: no buyer pays for them, though the refund may take long.
 */
export const areLegsDecided = (order: Order): boolean => isEnded(order) || order.state.startsWith("refund");

/** Returns whose fault it is that no buyer pays for this leg; null when a buyer paid, or that is not decided. */
export function faultOf(order: Order, leg: Leg): "seller" | "buyer" | "ours" | null {
  if (order.state === "settled" || !areLegsDecided(order)) return null;
  if (order.state === "written_off" && order.unchargedFault) return order.unchargedFault;
  return leg.checked?.pass || leg.result?.unmet ? "buyer" : (leg.checked?.fault ?? "ours");
}

/** Returns the legs for which the seller has our money, or may take it, and no buyer has paid. */
export const unpaidLegs = (order: Order): Leg[] =>
  order.state === "settled" ? [] : order.legs.filter(({ fate, recovered }) => fate !== "unpaid" && recovered === null);

/**
 * Did we pay gas for this transaction without earning by it? In an order that was not settled (its buyer was not
 * charged) every transaction is wasted, except a hold while the order has not ended. In a settled order every charge
 * is wasted, except the one that charged the buyer. Voids (returns of a hold), cancellations and refunds are always
 * wasted.
 */
export function isWasted(order: Order, { kind, tx }: Gas): boolean {
  if (kind === "void" || kind === "cancel" || kind === "refund") return true;
  if (order.state === "settled") return (kind === "charge" || kind === "capture") && tx !== order.charged?.tx;
  return kind !== "hold" || isEnded(order);
}
