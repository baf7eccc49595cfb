import type { z } from "zod";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { NotBought } from "../../pipelines/orders/buying.ts";
import { StepNotSeen } from "../../pipelines/orders/order-log.ts";
import { formatMoney } from "../../pipelines/record/money.ts";
import { Counter, unwritten } from "../buy/counter.ts";
import { type Payment, paymentOf } from "../buy/payments.ts";
import { paymentRequired, requirementsOf, type Sale } from "../buy/terms.ts";
import { Problem, validated } from "../http/problem.ts";
import { JSON_TYPE } from "../http/reply.ts";
import { jsonBody } from "../http/request.ts";
import type { Call, Operation } from "./operation.ts";
import { sellingOf } from "./via.ts";

/** Price of each of our own operations, micro-units (interface, Limits). */
const PRICE_MICRO = 20_000n;
/** Seconds in which a payment must still hold: the longest work, and a settlement. */
const HOLDS_S = 135;

/** An operation of our own that is sold: its row without what all of them share, and the work. */
export interface Work<I> extends Pick<Operation, "id" | "path" | "summary"> {
  body: z.ZodType<I>;
  answer: z.ZodType;
  /** Longest body, bytes. */
  maxBody: number;
  errors?: Operation["errors"];
  /** The answer. @throws Problem, also by rejecting: then nothing is charged */
  run(call: Call, input: I): Promise<object>;
}

/**
 * A paid operation: without a payment the terms, as a 402, whatever the body is. With one the input is looked at, the work
 * is done, and only then the buyer is charged; work that fails costs nothing, and the same payment again gives the same
 * answer.
 */
export const paid = <I>(work: Work<I>): Operation => ({
  id: work.id,
  method: "POST",
  path: work.path,
  summary: work.summary,
  body: work.body,
  answer: work.answer,
  type: JSON_TYPE,
  tag: "buy",
  price: {
    mode: "fixed",
    amount: formatMoney(PRICE_MICRO),
    accepts: ({ payOnDelivery }) => (payOnDelivery ? [requirementsOf(payOnDelivery.sales.cashier, PRICE_MICRO)] : []),
    since: "2026-11-23",
  },
  errors: ["bad_payment", "payment_used", "unavailable", "log_unavailable", ...(work.errors ?? [])],
  limiter: (service) => service.buyLimiter,
  run: (call) => sold(call, work),
});

async function sold<I>(call: Call, work: Work<I>): Promise<Response> {
  const { service, request } = call;
  const { sales } = sellingOf(service);
  const counter = new Counter(sales);
  const sale: Sale = {
    ...{ url: service.baseUrl + work.path, description: work.summary, mime: JSON_TYPE, totalMicro: PRICE_MICRO },
  };
  const payment = paymentOf(request.headers);
  if (!payment)
    return paymentRequired(sales.cashier, sale, { error: "Payment required: you are charged if the work is done." });
  const input = validated(work.body, await jsonBody(request.body, work.maxBody));
  const requestSha256 = sha256hex(Buffer.concat([Buffer.from(`POST ${work.path}\n`), canonicalBytes(input as object)]));
  const known = await counter.known(payment, requestSha256);
  if (known) return counter.told(known, payment, sale);
  return counter.unlessKnown(payment, requestSha256, sale, () =>
    fresh(call, work, counter, { input, sale, payment, requestSha256 }),
  );
}

interface Fresh<I> {
  input: I;
  sale: Sale;
  payment: Payment;
  requestSha256: string;
}

/** Sold for a payment that no order has yet. */
async function fresh<I>(call: Call, work: Work<I>, counter: Counter, asked: Fresh<I>): Promise<Response> {
  const { input, sale, payment, requestSha256 } = asked;
  const { sales } = counter;
  const wrong = await counter.wrongWith(payment, sale, HOLDS_S);
  if (wrong) return paymentRequired(sales.cashier, sale, { error: wrong });
  const total = formatMoney(PRICE_MICRO);
  const quote = { price: formatMoney(0n), fee: total, total };
  const { key, claim } = counter.claimOf(payment, sale, { operation: "own", requestSha256, quote, publish: false });
  const answer = async () => ({
    bytes: Buffer.from(JSON.stringify(await work.run(call, input))),
    contentType: JSON_TYPE,
  });
  try {
    const order = await sales.buying.sell(key, claim, answer);
    return await counter.told(counter.same(order, payment, requestSha256), payment, sale);
  } catch (error) {
    if (error instanceof NotBought) throw new Problem("unavailable", error.message);
    if (error instanceof StepNotSeen) throw unwritten();
    throw error;
  }
}
