import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { RFC3339 } from "./time.ts";
import { METHODS } from "./vocabulary.ts";

/**
 * Steps of an order (orders.md): what a replica writes before it acts and after it saw what came of it. Loose: members
 * that we do not know yet are kept. Money is text with six decimals, moments of the chain are unix seconds.
 */
const Money = z.string().regex(/^\d{1,12}\.\d{6}$/);
const Time = z.string().regex(RFC3339);
const Says = z.string().max(2000);
const Tx = z.string().max(120);
const Leg = z.int().min(0).max(63);

/** What a transaction of ours cost in the chain's own coin, by its receipt. Nothing is said of what others sent. */
const Gas = z.looseObject({
  kind: z.enum(["charge", "hold", "capture", "void", "refund", "cancel"]),
  tx: Tx,
  wei: z.string().regex(/^\d{1,40}$/),
});
export type Gas = z.infer<typeof Gas>;

/** Members that every step has. A step of an epoch that is over changes nothing. */
const STEP = {
  order: z.string().regex(/^ord_[0-9A-HJKMNP-TV-Z]{26}$/),
  /** `chain|asset|from|nonce`, lower-case: key of the record, so a claim and its order share a partition. */
  key: z.string().max(400),
  epoch: z.int().min(0),
  /** Replica that wrote it. */
  by: z.string().max(60),
  at: Time,
  /** Of the step's own transaction; absent where it had none, or before it was booked. */
  gas: Gas.optional(),
};

/** Longest payment header that is signed for a seller, characters: it stands in the log for ever. */
export const MAX_SIGNED = 12_288;

/** The request that is bought. The bytes of its body are an object of the order (order-objects.ts). */
export const BoughtRequest = z.looseObject({
  url: z.string().max(4096),
  method: z.enum(METHODS),
  headers: z.record(z.string().max(60), z.string().max(1000)),
  /** Of the body; absent without one, or where it is empty. */
  body_sha256: Sha256Hex.optional(),
  body_bytes: z.int().min(0).optional(),
  /** sha256 over `METHOD url`, a newline and the body. */
  sha256: Sha256Hex,
});
export type BoughtRequest = z.infer<typeof BoughtRequest>;

/** What the buyer was promised and will be charged. */
export const Quote = z.looseObject({
  /** Seller's price as its own 402 asked at this call; with a fallback the most that any candidate may cost. */
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
  /** The buyer's payment as it came, decoded: what is settled, whoever settles it. */
  payment: z.looseObject({}),
  payment_sha256: Sha256Hex,
  /** The offer it answers, as the facilitator takes it. */
  requirements: z.looseObject({}),
  /** sha256 of what was asked of us; the same payment for another request is refused. */
  request_sha256: Sha256Hex,
  quote: Quote,
  /** Has the buyer asked for the call to be published? */
  publish: z.boolean(),
  /** Opaque name of the client network that asked; absent where there is none. */
  client: z.string().max(60).optional(),
  /** It stands on what its payer has paid in fees: the caps of the whole were reached. */
  credit: z.boolean().optional(),
  /**
   * Salts (hex) of the commitments to a call that is not published. They stay when the bytes that they hide are gone;
   * absent in a published call's order, and in those from before there were any.
   */
  salts: z.looseObject({ request: Sha256Hex, response: Sha256Hex }).optional(),
});

/** Before a byte leaves for the seller: the request, and the only payment that may be sent for this leg. */
const SellerIntent = step("seller_intent", {
  leg: Leg,
  cap: z.string().max(64),
  request: BoughtRequest,
  wallet: z.string().max(120),
  pay_to: z.string().max(200),
  price: Money,
  /** Had the seller a letter? Absent: no. */
  lettered: z.boolean().optional(),
  network: z.string().max(120),
  asset: z.string().max(120),
  header_name: z.string().max(60),
  signed_bytes: z.string().max(MAX_SIGNED),
  nonce: z.string().max(120),
  valid_before: z.int(),
  since_block: z.int().min(0),
  /** What the answer is held against, by the process that signed: no other one ever sees the answer. */
  want: z.looseObject({ class: z.string().max(60), schema_sha256: Sha256Hex.optional(), mime: z.string().nullable() }),
  deadline_ms: z.int().min(0),
});

/** What came back, watched to its end. Its bytes are an object of the order, durable before this step. */
const SellerResult = step("seller_result", {
  leg: Leg,
  status: z.int().nullable(),
  content_type: z.string().max(300).nullable(),
  sha256: Sha256Hex.nullable(),
  size: z.int().min(0),
  delivered: z.boolean(),
  /** Score of the delivery, and whether it fits the seller's schema; absent in orders from before they were kept. */
  delivery: z.number().min(0).max(1).nullable().optional(),
  schema_ok: z.boolean().nullable().optional(),
  latency_ms: z.number().min(0).nullable(),
  checks: z.array(Check).max(32),
  pass: z.boolean(),
  says: Says.optional(),
});

/** Our own work is done, and its answer kept: nobody else is paid for it. Its bytes are the answer's object of leg 0. */
const Worked = step("worked", { content_type: z.string().max(300), sha256: Sha256Hex, size: z.int() });

/** Our own signed transfer back to the buyer: sent again it is the same one. */
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
  /** `last`: no further candidate is tried. */
  step("checked", { leg: Leg, pass: z.boolean(), last: z.boolean(), fault: z.enum(["seller", "ours"]).nullable() }),
  /** What the chain says of a leg's payment, once it is sure. */
  step("leg_paid", { leg: Leg, tx: Tx, amount: Money }),
  step("leg_unpaid", { leg: Leg }),
  /** Money of a failed leg that its seller sent back. */
  step("leg_recovered", { leg: Leg, tx: Tx, amount: Money }),
  step("settle_intent", {}),
  /** `final: false`: its block may still vanish, and the charge with it; absent where it was deep enough when it was seen. */
  step("settled", { tx: Tx, amount: Money, final: z.boolean().optional() }),
  /** `tx`: a transaction that was sent. `payer_has`: the payer's balance where the charge was refused. */
  step("settle_unknown", { says: Says, tx: Tx.optional(), payer_has: Money.optional() }),
  step("written_off", { says: Says }),
  step("released", { says: Says }),
  step("void_intent", { says: Says }),
  step("voided", { tx: Tx, says: Says, final: z.boolean().optional() }),
  step("void_unknown", { says: Says }),
  step("reclaimable", { says: Says }),
  step("refund_due", { tx: Tx, amount: Money }),
  RefundIntent,
  step("refunded", { tx: Tx, amount: Money }),
  step("refund_unknown", { says: Says }),
  /** The buyer's authorization can be used no more, and was not: nothing of this order moves any money any more. */
  step("expired", {}),
  /**
   * The call stands in the record, published or as commitments: nobody need write it any more. `lost`: its bytes were
   * gone before it could be written, and it never will be.
   */
  step("recorded", { lost: z.literal(true).optional() }),
  /** `steps`: how many steps had changed the order when it was taken for left; after a further one this changes nothing. */
  step("adopted", { steps: z.int().min(0).optional() }),
  /** Changes nothing: whoever wants to take an order over reads the log's own time from it. */
  step("stamped", {}),
]);
export type OrderStep = z.infer<typeof OrderStep>;
export type StepState = OrderStep["state"];
export type StepOf<S extends StepState> = Extract<OrderStep, { state: S }>;
