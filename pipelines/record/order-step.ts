import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { RFC3339 } from "./time.ts";
import { METHODS } from "./vocabulary.ts";

/**
 * Steps of an order (orders.md). A replica writes one before each act, and one after it saw the result. The objects are
 * loose: unknown members are kept. Money is text with six decimals; times of the chain are unix seconds.
 */
const Money = z.string().regex(/^\d{1,12}\.\d{6}$/);
const Time = z.string().regex(RFC3339);
const Says = z.string().max(2000);
const Tx = z.string().max(120);
const Leg = z.int().min(0).max(63);

/**
 * What a transaction of ours cost in the chain's own coin, from its receipt. Transactions of others are not recorded.
 */
const Gas = z.looseObject({
  kind: z.enum(["charge", "hold", "capture", "void", "refund", "cancel"]),
  tx: Tx,
  wei: z.string().regex(/^\d{1,40}$/),
});
export type Gas = z.infer<typeof Gas>;

/** Members of every step. A step of an epoch that has ended changes nothing. */
const STEP = {
  order: z.string().regex(/^ord_[0-9A-HJKMNP-TV-Z]{26}$/),
  /** `chain|asset|from|nonce` in lower case. It is the record's key, so a claim and its order lie in one partition. */
  key: z.string().max(400),
  epoch: z.int().min(0),
  /** Replica that wrote it. */
  by: z.string().max(60),
  at: Time,
  /** For the step's own transaction; absent where it had none, or before its cost was known. */
  gas: Gas.optional(),
};

/** Longest signed payment header for a seller, characters: the log keeps it for ever. */
export const MAX_SIGNED = 12_288;

/** The request that is bought. The body's bytes are an object of the order (order-objects.ts). */
export const BoughtRequest = z.looseObject({
  url: z.string().max(4096),
  method: z.enum(METHODS),
  headers: z.record(z.string().max(60), z.string().max(1000)),
  /** sha256 of the body; absent where there is none or it is empty. */
  body_sha256: Sha256Hex.optional(),
  body_bytes: z.int().min(0).optional(),
  /** Name of the tool that is called; then the body is its arguments. Absent: a plain HTTP call. */
  tool: z.string().max(200).optional(),
  /** sha256 over `METHOD url` (of a tool `TOOL url name`), a newline and the body. */
  sha256: Sha256Hex,
});
export type BoughtRequest = z.infer<typeof BoughtRequest>;

/** What the buyer was promised, and the most that it will be charged. */
export const Quote = z.looseObject({
  /** The price that the seller's own 402 asked for this call; with a fallback, the most that any candidate may cost. */
  price: Money,
  fee: Money,
  total: Money,
});
export type Quote = z.infer<typeof Quote>;

const Check = z.looseObject({ name: z.string().max(60), ok: z.boolean(), says: z.string().max(500).optional() });

const step = <S extends string, T extends z.ZodRawShape>(state: S, shape: T) =>
  z.looseObject({ ...STEP, state: z.literal(state), ...shape });

const Claimed = step("claimed", {
  operation: z.enum(["via", "execute", "own"]),
  scheme: z.enum(["exact", "auth-capture"]),
  network: z.string().max(120),
  asset: z.string().max(120),
  payer: z.string().max(120),
  nonce: z.string().max(120),
  valid_after: z.int().min(0),
  valid_before: z.int().min(0),
  /** Block before which nothing of this order can have happened. */
  since_block: z.int().min(0),
  /** The buyer's payment as it came, decoded. Whoever settles, settles this. */
  payment: z.looseObject({}),
  payment_sha256: Sha256Hex,
  /** The offer that the payment answers, in the form that the facilitator takes. */
  requirements: z.looseObject({}),
  /** sha256 of the buyer's request; this payment for another request is refused. */
  request_sha256: Sha256Hex,
  quote: Quote,
  /** Did the buyer ask for the call to be published? */
  publish: z.boolean(),
  /** What the client calls its payment, so that it buys once; absent where it has no name. */
  identifier: z.string().max(128).optional(),
  /** Opaque name of the client network that asked; absent where there is none. */
  client: z.string().max(60).optional(),
  /** True: it was accepted on the fees that its payer has paid before, since the common caps were reached. */
  credit: z.boolean().optional(),
  /**
   * Salts (hex) of the commitments to a call that is not published. They are kept when the hidden bytes are gone.
   * Absent where the call is published, and in older orders.
   */
  salts: z.looseObject({ request: Sha256Hex, response: Sha256Hex }).optional(),
});

/** Written before a byte leaves for the seller: the request, and the only payment that may be sent for this leg. */
const SellerIntent = step("seller_intent", {
  leg: Leg,
  cap: z.string().max(64),
  request: BoughtRequest,
  wallet: z.string().max(120),
  pay_to: z.string().max(200),
  price: Money,
  /** Had the seller's endpoint a letter? Absent: no. */
  lettered: z.boolean().optional(),
  network: z.string().max(120),
  asset: z.string().max(120),
  header_name: z.string().max(60),
  signed_bytes: z.string().max(MAX_SIGNED),
  nonce: z.string().max(120),
  valid_before: z.int(),
  since_block: z.int().min(0),
  /** What the answer is compared with. Only the process that signed sees the answer. */
  want: z.looseObject({ class: z.string().max(60), schema_sha256: Sha256Hex.optional(), mime: z.string().nullable() }),
  deadline_ms: z.int().min(0),
});

/** The answer, or how the connection ended. The bytes are an object of the order, durable before this step. */
const SellerResult = step("seller_result", {
  leg: Leg,
  status: z.int().nullable(),
  content_type: z.string().max(300).nullable(),
  sha256: Sha256Hex.nullable(),
  size: z.int().min(0),
  delivered: z.boolean(),
  /** Score of the delivery, and whether it fits the seller's schema; absent in older orders. */
  delivery: z.number().min(0).max(1).nullable().optional(),
  schema_ok: z.boolean().nullable().optional(),
  latency_ms: z.number().min(0).nullable(),
  checks: z.array(Check).max(32),
  pass: z.boolean(),
  says: Says.optional(),
});

/**
 * Our own work is done and its answer is kept; no seller is paid for it. The bytes are the order's answer object of leg
 * 0.
 */
const Worked = step("worked", { content_type: z.string().max(300), sha256: Sha256Hex, size: z.int() });

/** Why our own work was not done, as its buyer was told: the same payment is told so again. */
const WorkProblem = z.looseObject({
  code: z.string().max(60),
  detail: Says,
  errors: z
    .array(z.looseObject({ pointer: z.string().max(300), detail: z.string().max(500) }))
    .max(32)
    .optional(),
});
export type WorkProblem = z.infer<typeof WorkProblem>;

/** Our own signed transfer back to the buyer. Sent again, it is the same transfer. */
const RefundIntent = step("refund_intent", {
  amount: Money,
  from: z.string().max(120),
  transfer: z.looseObject({}),
  nonce: z.string().max(120),
  valid_before: z.int(),
  since_block: z.int().min(0),
});

export const OrderStep = z.discriminatedUnion("state", [
  Claimed,
  step("rejected", { says: Says }),
  step("verified", {}),
  step("hold_intent", {}),
  step("held", { tx: Tx, capture_deadline: z.int() }),
  step("hold_failed", { says: Says }),
  step("hold_unknown", { says: Says }),
  SellerIntent,
  Worked,
  SellerResult,
  step("seller_unknown", { leg: Leg, says: Says }),
  /** `last`: no further candidate is tried. `fault`: why it did not pass. */
  step("checked", { leg: Leg, pass: z.boolean(), last: z.boolean(), fault: z.enum(["seller", "ours"]).nullable() }),
  /** What the chain holds of a leg's payment, once that is certain. */
  step("leg_paid", { leg: Leg, tx: Tx, amount: Money }),
  step("leg_unpaid", { leg: Leg }),
  /** A seller sent back the money of a leg that did not pass. */
  step("leg_recovered", { leg: Leg, tx: Tx, amount: Money }),
  step("settle_intent", {}),
  /**
   * `final: false`: its block may still be undone, and the charge with it; absent where the block was deep enough when
   * seen.
   */
  step("settled", { tx: Tx, amount: Money, final: z.boolean().optional() }),
  /** `tx`: a transaction that was sent. `payer_has`: the payer's balance, where the charge was refused. */
  step("settle_unknown", { says: Says, tx: Tx.optional(), payer_has: Money.optional() }),
  step("written_off", { says: Says }),
  step("released", { says: Says, problem: WorkProblem.optional() }),
  /**
   * Our own work, which ended without an answer, is begun again for the same payment. `steps` as in `adopted`.
   */
  step("reopened", { steps: z.int().min(0) }),
  step("void_intent", { says: Says }),
  step("voided", { tx: Tx, says: Says, final: z.boolean().optional() }),
  step("void_unknown", { says: Says }),
  step("reclaimable", { says: Says }),
  step("refund_due", { tx: Tx, amount: Money }),
  RefundIntent,
  step("refunded", { tx: Tx, amount: Money }),
  step("refund_unknown", { says: Says }),
  /** The buyer's authorization is past its time and was not used: this order moves no money any more. */
  step("expired", {}),
  /**
   * The call is in the record, published or as commitments, and needs no further record. `lost`: its bytes were gone
   * before that, so it never will be.
   */
  step("recorded", { lost: z.literal(true).optional() }),
  /**
   * `steps`: number of steps of the order when it was taken to be abandoned; if there is a further one, this changes
   * nothing.
   */
  step("adopted", { steps: z.int().min(0).optional() }),
  /** Changes nothing. A replica that wants to take over an order reads the log's own time from it. */
  step("stamped", {}),
]);
export type OrderStep = z.infer<typeof OrderStep>;
export type StepState = OrderStep["state"];
export type StepOf<S extends StepState> = Extract<OrderStep, { state: S }>;
