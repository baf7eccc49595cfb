import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { RFC3339 } from "./time.ts";
import { METHODS } from "./vocabulary.ts";

/**
 * Steps of an order (a call that a buyer buys through us, orders.md). The replica (selling process) that acts on an
 * order writes one step before each action, and one step after it has observed the action's result. The objects are
 * loose: unknown members are kept. Money is dollars as text with six decimals; times of the chain are unix seconds. A
 * leg is one payment to one seller for the order.
 */
const Money = z.string().regex(/^\d{1,12}\.\d{6}$/);
const Time = z.string().regex(RFC3339);
const Explanation = z.string().max(2000);
const Tx = z.string().max(120);
const Leg = z.int().min(0).max(63);

/**
 * The cost, in the chain's own coin, of a transaction that we sent, from the transaction's receipt on the chain.
 * Transactions of others are not recorded.
 */
const Gas = z.looseObject({
  kind: z.enum(["charge", "hold", "capture", "void", "refund", "cancel"]),
  tx: Tx,
  wei: z.string().regex(/^\d{1,40}$/),
});
export type Gas = z.infer<typeof Gas>;

/**
 * Members of every step. `epoch` grows when another replica takes over the order; a step with an older epoch has no
 * effect.
 */
const STEP_MEMBERS = {
  order: z.string().regex(/^ord_[0-9A-HJKMNP-TV-Z]{26}$/),
  /**
   * `chain|asset|from|nonce` of the buyer's payment, in lower case. It is the record's key, so all steps of an order
   * lie in one partition.
   */
  key: z.string().max(400),
  epoch: z.int().min(0),
  /** Name of the replica that wrote the step. */
  by: z.string().max(60),
  at: Time,
  /** Cost of the transaction that the step reports; absent if there is none, or its cost was not yet known. */
  gas: Gas.optional(),
};

/** Longest signed payment header for a seller, in characters. It is bounded because the log keeps it for ever. */
export const MAX_SIGNED_CHARS = 12_288;

/** The request that is bought. The body's bytes are not in the log but in the object store (order-objects.ts). */
export const BoughtRequest = z.looseObject({
  url: z.string().max(4096),
  method: z.enum(METHODS),
  headers: z.record(z.string().max(60), z.string().max(1000)),
  /** sha256 of the body; absent if there is no body or it is empty. */
  body_sha256: Sha256Hex.optional(),
  body_bytes: z.int().min(0).optional(),
  /** Name of the MCP tool that is called; then the body holds its arguments. Absent: a plain HTTP call. */
  tool: z.string().max(200).optional(),
  /** sha256 over `METHOD url` (for an MCP tool `TOOL url name`), a newline and the body. */
  sha256: Sha256Hex,
});
export type BoughtRequest = z.infer<typeof BoughtRequest>;

/** The price and fee that the buyer was promised, and the most that it will be charged. */
export const Quote = z.looseObject({
  /**
   * The price that the seller's own 402 asked for this call. If other sellers may be tried after a failure, the most
   * that any of them may cost.
   */
  price: Money,
  fee: Money,
  total: Money,
});
export type Quote = z.infer<typeof Quote>;

/**
 * Checks by which a bought answer may be judged, the most conclusive first: a known right answer; the seller's JSON
 * Schema; the form of the endpoint's class; that the answer parses; the HTTP status.
 */
export const JUDGED_BY = ["truth", "schema", "class", "parses", "status"] as const;
export type JudgedBy = (typeof JUDGED_BY)[number];

const Check = z.looseObject({ name: z.string().max(60), ok: z.boolean(), says: z.string().max(500).optional() });

const defineStep = <S extends string, T extends z.ZodRawShape>(state: S, shape: T) =>
  z.looseObject({ ...STEP_MEMBERS, state: z.literal(state), ...shape });

const ClaimedStep = defineStep("claimed", {
  /** via: a call of the endpoint that the buyer names; execute: of one that we choose; own: our own operation. */
  operation: z.enum(["via", "execute", "own"]),
  scheme: z.enum(["exact", "auth-capture"]),
  network: z.string().max(120),
  asset: z.string().max(120),
  payer: z.string().max(120),
  nonce: z.string().max(120),
  valid_after: z.int().min(0),
  valid_before: z.int().min(0),
  /**
   * Number of a block on the chain that is older than every transaction of this order. Searches for the buyer's
   * payment begin at this block.
   */
  since_block: z.int().min(0),
  /** The buyer's payment as received, decoded. A replica that takes over the order settles this payment. */
  payment: z.looseObject({}),
  payment_sha256: Sha256Hex,
  /** The offer of ours that the payment accepts, in the form that the facilitator requires. */
  requirements: z.looseObject({}),
  /** sha256 of the buyer's request. If the payment is sent again with another request, that request is refused. */
  request_sha256: Sha256Hex,
  quote: Quote,
  /** Did the buyer ask for the call to be published? */
  publish: z.boolean(),
  /** Identifier that the client gave its payment, so that a repeated request buys only once; absent if it gave none. */
  identifier: z.string().max(128).optional(),
  /** Opaque name of the client's IP network; absent if it is not known. */
  client: z.string().max(60).optional(),
  /** The buyer's own expectation of the answer; absent if it states none. */
  expect: z.looseObject({}).optional(),
  /**
   * True: the limit over all buyers' open orders or losses was reached, and the order was accepted because the fees
   * that its payer has paid before cover the risk.
   */
  credit: z.boolean().optional(),
  /**
   * Salts (hex) of the commitments (commitment.ts) to the bytes of a call that is not published. They stay in the log
   * when the bytes are deleted. Absent if the call is published, and in older orders.
   */
  salts: z.looseObject({ request: Sha256Hex, response: Sha256Hex }).optional(),
});

/**
 * The step that is written before the first byte is sent to the seller: the request, and the only payment that may be
 * sent for this leg.
 */
const SellerIntent = defineStep("seller_intent", {
  leg: Leg,
  cap: z.string().max(64),
  request: BoughtRequest,
  /** Address of our wallet that pays. */
  wallet: z.string().max(120),
  pay_to: z.string().max(200),
  price: Money,
  /** Did the seller's endpoint have a letter (grade) when it was paid? Absent means no. */
  lettered: z.boolean().optional(),
  network: z.string().max(120),
  asset: z.string().max(120),
  header_name: z.string().max(60),
  signed_bytes: z.string().max(MAX_SIGNED_CHARS),
  nonce: z.string().max(120),
  valid_before: z.int(),
  since_block: z.int().min(0),
  /**
   * The values with which the answer is compared, for the record: only the process that wrote this step receives the
   * answer and compares it.
   */
  want: z.looseObject({
    class: z.string().max(60),
    schema_sha256: Sha256Hex.optional(),
    mime: z.string().nullable(),
    /** The most conclusive check of the answer, as announced to the buyer; absent in older orders. */
    judged_by: z.enum(JUDGED_BY).optional(),
    /** For `truth`: the question that the buyer's input asks, and its right answer. */
    known: z.looseObject({ class: z.string().max(60), variant: z.string().max(60), truth: z.unknown() }).optional(),
  }),
  /** Time from the sending of the payment within which the whole answer must arrive. */
  deadline_ms: z.int().min(0),
});

/**
 * The forms in which the payment of a tool's call was sent, in order: itself, or base64 of its JSON (the intent's
 * `signed_bytes`). Two: the seller answered the first with its demand, so the call was repeated with the same
 * signature. Absent for other endpoints, and in older records, which all sent the object.
 */
export const PaymentForms = z
  .array(z.enum(["object", "string"]))
  .max(2)
  .optional();

/**
 * The seller's answer, or how the connection ended. The answer's bytes are in the object store (order-objects.ts)
 * before this step is written.
 */
const SellerResult = defineStep("seller_result", {
  leg: Leg,
  status: z.int().nullable(),
  content_type: z.string().max(300).nullable(),
  sha256: Sha256Hex.nullable(),
  size: z.int().min(0),
  delivered: z.boolean(),
  /**
   * Score of the delivery (0 to 1). `schema_ok`: does the answer fit the seller's schema? Both are absent in older
   * orders.
   */
  delivery: z.number().min(0).max(1).nullable().optional(),
  schema_ok: z.boolean().nullable().optional(),
  latency_ms: z.number().min(0).nullable(),
  checks: z.array(Check).max(32),
  pass: z.boolean(),
  /** The answer passed all of our checks and failed only the buyer's own expectation, so the seller is not at fault. */
  unmet: z.literal(true).optional(),
  payment_forms: PaymentForms,
  says: Explanation.optional(),
});

/**
 * We have done one of our own paid operations, for which no seller is paid. The answer's bytes are stored under the
 * name that the answer of leg 0 would have.
 */
const WorkedStep = defineStep("worked", { content_type: z.string().max(300), sha256: Sha256Hex, size: z.int() });

/**
 * Why one of our own paid operations was not done, as returned to its buyer. A repeated request with this payment
 * gets the same problem.
 */
const WorkProblem = z.looseObject({
  code: z.string().max(60),
  detail: Explanation,
  errors: z
    .array(z.looseObject({ pointer: z.string().max(300), detail: z.string().max(500) }))
    .max(32)
    .optional(),
});
export type WorkProblem = z.infer<typeof WorkProblem>;

/** Our signed transfer back to the buyer. Sending it again cannot pay twice, since its nonce is fixed. */
const RefundIntent = defineStep("refund_intent", {
  amount: Money,
  from: z.string().max(120),
  transfer: z.looseObject({}),
  nonce: z.string().max(120),
  valid_before: z.int(),
  since_block: z.int().min(0),
});

export const OrderStep = z.discriminatedUnion("state", [
  ClaimedStep,
  defineStep("rejected", { says: Explanation }),
  defineStep("verified", {}),
  defineStep("hold_intent", {}),
  defineStep("held", { tx: Tx, capture_deadline: z.int() }),
  defineStep("hold_failed", { says: Explanation }),
  defineStep("hold_unknown", { says: Explanation }),
  SellerIntent,
  WorkedStep,
  SellerResult,
  defineStep("seller_unknown", { leg: Leg, says: Explanation }),
  /**
   * The answer was checked. `last`: no further seller is tried. `fault`: whose fault it is that the answer did not
   * pass; null if it passed, or failed only the buyer's own expectation.
   */
  defineStep("checked", {
    leg: Leg,
    pass: z.boolean(),
    last: z.boolean(),
    fault: z.enum(["seller", "ours"]).nullable(),
  }),
  /** The chain shows that the payment of a leg was made (`leg_paid`) or never will be (`leg_unpaid`). */
  defineStep("leg_paid", { leg: Leg, tx: Tx, amount: Money }),
  defineStep("leg_unpaid", { leg: Leg }),
  /** A seller sent back the money of a leg whose answer did not pass. */
  defineStep("leg_recovered", { leg: Leg, tx: Tx, amount: Money }),
  defineStep("settle_intent", {}),
  /**
   * The buyer was charged. `final: false`: the block with the charge may still vanish from the chain; absent if it
   * was deep enough when it was read.
   */
  defineStep("settled", { tx: Tx, amount: Money, final: z.boolean().optional() }),
  /**
   * It is not known whether the buyer was charged. `tx`: the transaction that was sent, if any. `payer_has`: the
   * payer's balance, if the charge was refused. `by_payer`: the payer may have caused it, since the charge was refused
   * or the payer held too little; absent in older orders.
   */
  defineStep("settle_unknown", {
    ...{ says: Explanation, tx: Tx.optional(), payer_has: Money.optional() },
    by_payer: z.literal(true).optional(),
  }),
  /**
   * No further attempt is made to collect the charge. `fault`: the charge was never sent, for a cause of ours; absent:
   * the buyer could not be charged, and owes it.
   */
  defineStep("written_off", { says: Explanation, fault: z.literal("ours").optional() }),
  /** The buyer owes nothing, and none of its money is in escrow. */
  defineStep("released", { says: Explanation, problem: WorkProblem.optional() }),
  /**
   * One of our own paid operations, which ended without an answer, is begun again for the same payment. `steps`: as
   * in `adopted`.
   */
  defineStep("reopened", { steps: z.int().min(0) }),
  defineStep("void_intent", { says: Explanation }),
  defineStep("voided", { tx: Tx, says: Explanation, final: z.boolean().optional() }),
  defineStep("void_unknown", { says: Explanation }),
  /** We can no longer capture the money in escrow; the buyer can take it back from the contract, or has done so. */
  defineStep("reclaimable", { says: Explanation }),
  /** The chain shows a charge that the buyer did not owe, or not in this amount; it is to be sent back. */
  defineStep("refund_due", { tx: Tx, amount: Money }),
  RefundIntent,
  defineStep("refunded", { tx: Tx, amount: Money }),
  defineStep("refund_unknown", { says: Explanation }),
  /** The buyer's payment authorization expired unused, so this order cannot charge the buyer any more. */
  defineStep("expired", {}),
  /**
   * The call is in the public record, whole or as commitments. `lost`: it never will be, because its bytes were lost
   * before it was written.
   */
  defineStep("recorded", { lost: z.literal(true).optional() }),
  /**
   * Another replica takes over the order. `steps`: number of the order's steps when that replica judged the order
   * abandoned. If the log has further steps of the order before the `adopted`, the `adopted` has no effect.
   */
  defineStep("adopted", { steps: z.int().min(0).optional() }),
  /**
   * Changes nothing. A replica that wants to take over an order appends this step to learn the log's own time from
   * its timestamp.
   */
  defineStep("stamped", {}),
]);
export type OrderStep = z.infer<typeof OrderStep>;
export type StepState = OrderStep["state"];
export type StepOf<S extends StepState> = Extract<OrderStep, { state: S }>;
