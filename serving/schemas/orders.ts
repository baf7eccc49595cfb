import { z } from "zod";
import { JUDGED_BY } from "../../pipelines/record/order-step.ts";
import { CapId, Money, wholeNumber } from "./common.ts";

/** Id of an order, the path parameter of GET /v1/orders/{order_id}. */
export const OrderId = z.string().regex(/^ord_[0-9A-HJKMNP-TV-Z]{26}$/, "must be an order id");

/** A transfer of money. */
const Transfer = z.strictObject({ tx: z.string(), amount: Money });

/** A call of one seller for an order. An order that tries several sellers one after the other has several. */
const OrderLeg = z.strictObject({
  capability_id: CapId,
  url: z.string(),
  method: z.string(),
  pay_to: z.string(),
  price: Money,
  /** Whether the seller was paid; `unknown` until that is certain on the chain. */
  money: z.enum(["unknown", "paid", "unpaid"]),
  /** Transaction that paid the seller; null: none is known. */
  tx: z.string().nullable(),
  /** HTTP status of the seller's answer; null without an answer. */
  status: z.int().nullable(),
  delivered: z.boolean().nullable(),
  /** Whether the answer passed all checks; null while it is not checked. */
  passed: z.boolean().nullable(),
  /** Class (kind of endpoints by the questions that they answer) whose check judged the answer; `any`: none. */
  class: z.string(),
  /** Name of the check in `checks` that tells most about the answer; null in older orders, which did not store it. */
  judged_by: z.enum(JUDGED_BY).nullable(),
  latency_ms: z.number().nullable(),
  checks: z.array(z.looseObject({ name: z.string(), ok: z.boolean(), says: z.string().optional() })),
  content_type: z.string().nullable(),
  /** SHA-256 of the answer, hex. */
  sha256: z.string().nullable(),
  /** Length of the answer, bytes. */
  bytes: z.int(),
});

/** One order (a purchase through the service), as it is shown to anybody who knows its id. */
export const OrderShown = z.strictObject({
  schema: z.literal("svc.order.v1"),
  order_id: OrderId,
  operation: z.enum(["via", "execute", "own"]),
  scheme: z.string(),
  state: z.string(),
  /** Whether the order has ended. */
  ended: z.boolean(),
  says: z.string(),
  created_at: z.string(),
  changed_at: z.string(),
  payer: z.string(),
  network: z.string(),
  asset: z.string(),
  seller_price: Money,
  fee: Money,
  total: Money,
  /** Whether the buyer asked for the call to be published in the record. */
  published: z.boolean(),
  /** What the buyer itself expected of the answer (docs/pay-on-delivery.md); null: nothing. */
  expect: z.looseObject({}).nullable(),
  /**
   * For money in escrow: the transaction that holds it, and the time from which the payer can reclaim it (unix
   * seconds).
   */
  hold: z.strictObject({ tx: z.string(), capture_deadline: z.int() }).nullable(),
  charged: Transfer.nullable(),
  refunded: Transfer.nullable(),
  legs: z.array(OrderLeg),
  /** Cost of our transactions for the order, in wei of the network's coin; the buyer is not charged for it. */
  gas: z.array(
    z.strictObject({
      kind: z.enum(["charge", "hold", "capture", "void", "refund", "cancel"]),
      tx: z.string(),
      wei: z.string(),
    }),
  ),
  /** Salts (hex) with which request and answer of a call that is not published were hashed for the record. */
  salts: z.strictObject({ request: z.string(), response: z.string() }).nullable(),
  /** The seller's answer, once the buyer was charged. */
  answer: z
    .strictObject({ status: z.int(), content_type: z.string().nullable(), sha256: z.string(), base64: z.string() })
    .nullable(),
  /** Set if the buyer was charged and the answer's bytes are no longer stored. Null in lists of orders. */
  answer_expired: z.strictObject({ sha256: z.string(), bytes: z.int() }).nullable(),
});
export type OrderShown = z.infer<typeof OrderShown>;

/** An order as it is read by its id: with the time of the answer, signed with the answers key. */
export const SignedOrder = OrderShown.extend({
  answered_at: z.string(),
  signing_key_id: z.string(),
  canonicalization: z.literal("RFC8785"),
  signature: z.string(),
});

/** Body of a 402: terms of x402 version 1. Those of version 2 are in the header. */
export const PaymentTerms = z.looseObject({
  x402Version: z.int(),
  error: z.string(),
  guarantee: z.string().optional(),
  accepts: z.array(z.looseObject({})),
});

/** Path and query of GET /v1/buyers/{address}/orders. */
export const BuyerPath = z.object({
  address: z.string().regex(/^0x[0-9a-fA-F]{40}$/, "must be 0x and 40 hex digits"),
});
export const BuyerQuery = z.object({
  cursor: OrderId.optional().describe("Id of an order: those before it in time are answered. `next` of a page is one."),
  limit: wholeNumber(1, 100, 100),
});

/** Orders of one wallet, newest first; `answer` is null in all of them. */
export const BuyerOrders = z.strictObject({
  schema: z.literal("svc.orders.v1"),
  payer: z.string(),
  orders: z.array(OrderShown),
  next: OrderId.nullable().describe("Cursor of the next page, null on the last."),
});
export type BuyerOrders = z.infer<typeof BuyerOrders>;
