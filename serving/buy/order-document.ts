import { withFinalResults } from "../../pipelines/orders/judgement.ts";
import { isEnded, type Leg, type Order } from "../../pipelines/orders/order.ts";
import { answerDigestOf } from "../../pipelines/orders/order-objects.ts";
import type { OrderShown } from "../schemas/orders.ts";

const STATE_TEXTS: Readonly<Record<Order["state"], string>> = {
  claimed: "The payment is being looked at.",
  rejected: "Nothing was bought and nothing was charged.",
  verified: "The seller is about to be called.",
  hold_intent: "The money is being put into escrow.",
  held: "The money waits in escrow; the seller is about to be called.",
  hold_failed: "The money could not be put into escrow; nothing was bought and nothing was charged.",
  hold_unknown: "Whether the money is in escrow is being looked up on the chain.",
  seller_intent: "The seller is being called.",
  seller_result: "The answer is being checked.",
  seller_unknown: "What the seller answered was lost on our side; you are not charged.",
  worked: "The work is done; you are about to be charged.",
  checked: "The answer was checked.",
  settle_intent: "The answer passed; you are being charged.",
  settled: "The answer passed and you were charged.",
  settle_unknown: "The answer passed; whether you were charged is being looked up on the chain.",
  written_off: "The answer passed and your payment could not be collected; the answer is not given out.",
  released: "The answer did not pass; nothing was charged.",
  void_intent: "Nothing passed; the money is being given back to you.",
  voided: "Nothing passed; the money went back to you.",
  void_unknown: "Nothing passed; whether the money went back is being looked up on the chain.",
  reclaimable:
    "The money was neither taken nor given back in time: you can reclaim it from the escrow, if you have not.",
  refund_due: "Your payment was taken although nothing passed; it is being sent back.",
  refund_intent: "Your payment was taken although nothing passed; it is being sent back.",
  refunded: "Your payment was taken although nothing passed, and was sent back.",
  refund_unknown: "Your payment is being sent back; whether it arrived is being looked up on the chain.",
};

const checksOf = (leg: Leg | undefined): OrderShown["legs"][number]["checks"] => {
  const result = leg?.result;
  return result ? withFinalResults(result.checks, result.pass || result.unmet === true) : [];
};

/** Describes the state of an order in one sentence, followed by its reason. */
export function orderText(order: Order): string {
  const failed = checksOf(order.legs.at(-1)).filter(({ ok }) => !ok);
  const why = failed.map(({ name, says }) => (says ? `${name} (${says})` : name)).join(", ");
  const reason = why === "" ? (order.says ?? "") : `Failed: ${why}.`;
  return order.state === "settled" || reason === ""
    ? STATE_TEXTS[order.state]
    : `${STATE_TEXTS[order.state]} ${reason}`;
}

const legDocument = (leg: Leg): OrderShown["legs"][number] => ({
  capability_id: leg.cap,
  ...{ url: leg.url, method: leg.method, pay_to: leg.payTo, price: leg.price, money: leg.fate, tx: leg.tx },
  status: leg.result?.status ?? null,
  delivered: leg.result?.delivered ?? null,
  passed: leg.checked?.pass ?? null,
  ...{ class: leg.class, judged_by: leg.judgedBy },
  latency_ms: leg.result?.latency_ms ?? null,
  checks: checksOf(leg),
  content_type: leg.result?.content_type ?? null,
  sha256: leg.result?.sha256 ?? null,
  bytes: leg.result?.size ?? 0,
});

/**
 * Returns an order as a document for its buyer (`svc.order.v1`).
 * @param byId members for a reader that knows the order's id: the answer's bytes if the buyer was charged (null: they
 * were deleted), and the salts of the published hashes of the call
 */
export function orderDocument(
  order: Order,
  byId: { answer: Uint8Array | null; salts: OrderShown["salts"] } | null = null,
): OrderShown {
  const { answer, salts } = byId ?? { answer: null, salts: null };
  const answerDigest = byId && order.state === "settled" ? answerDigestOf(order) : null;
  const result = order.own?.result ? { status: 200, ...order.own.result } : order.legs.at(-1)?.result;
  return {
    schema: "svc.order.v1",
    ...{ order_id: order.id, operation: order.operation, scheme: order.scheme, state: order.state },
    ...{ ended: isEnded(order), says: orderText(order), created_at: order.createdAt, changed_at: order.changedAt },
    ...{ payer: order.payer, network: order.network, asset: order.asset },
    ...{ seller_price: order.quote.price, fee: order.quote.fee, total: order.quote.total },
    hold: order.hold ? { tx: order.hold.tx, capture_deadline: order.hold.captureDeadline } : null,
    expect: order.expect,
    ...{ published: order.publish, charged: order.state === "settled" || order.refund ? order.charged : null },
    ...{ refunded: order.refunded, legs: order.legs.map(legDocument) },
    ...{ salts, gas: order.gas.map(({ kind, tx, wei }) => ({ kind, tx, wei })) },
    answer:
      answer && result?.status != null && result.sha256 !== null
        ? {
            ...{ status: result.status, content_type: result.content_type, sha256: result.sha256 },
            base64: Buffer.from(answer).toString("base64"),
          }
        : null,
    answer_expired: answerDigest && answer === null ? { sha256: answerDigest.sha256, bytes: answerDigest.size } : null,
  };
}
