import { sha256hex } from "../../infra/canonical.ts";
import { formatMoney } from "../../pipelines/record/money.ts";
import { type CallDescription, outlinesOf } from "../buy/extensions.ts";
import { paymentOf } from "../buy/payments.ts";
import { exactOffer, paymentRequired, refusalFields, resourceUrl, type Sale } from "../buy/terms.ts";
import type { Service } from "../context.ts";
import { Problem, validate } from "../http/problem.ts";
import { JSON_TYPE } from "../http/reply.ts";
import { jsonOf, readBody } from "../http/request.ts";
import { researchBrief } from "../work/brief/research-brief.ts";
import { companiesLookup } from "../work/companies.ts";
import { docsExtract } from "../work/docs-extract.ts";
import { webEvidence } from "../work/web-evidence.ts";
import type { Work } from "../work/work.ts";
import type { Call, Operation } from "./operation.ts";
import { sellingOf } from "./via.ts";

/** The work of the operations of our own that this service sells. */
export const WORKS: readonly Work[] = [docsExtract, companiesLookup, webEvidence, researchBrief];

/** Price of one item of each of our own operations, millionths of a USDC. */
const PRICE_MICRO = 20_000n;
/** Seconds for which a payment must still be valid: the longest work and the settlement. */
const REQUIRED_VALIDITY_S = 180;

/**
 * Returns a paid operation. Without a payment it answers a 402 with the terms, whatever the body is; where the price
 * depends on the number of items in the body, only that number is read. With a payment it validates the input, does
 * the work, and charges the buyer after that; failed work is not charged. A repeated payment gets the stored answer
 * or problem; after a fault of ours the work is tried again.
 */
const paidOperation = (work: Work): Operation => {
  const { input, output } = outlinesOf(work.body, work.answer);
  const description: CallDescription = { method: "POST", input: { example: work.example, schema: input }, output };
  return { ...rowOf(work), run: (call) => sellWork(call, work, description) };
};

/**
 * Reports whether the operation is offered. In a service without the parts for its own paid operations it counts as
 * offered, so that it is described.
 */
const isOffered = (work: Work, { work: deps }: Service): boolean => !deps || (work.offered?.(deps) ?? true);

const rowOf = (work: Work): Omit<Operation, "run"> => ({
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
    accepts: (service) => {
      const { payOnDelivery } = service;
      return payOnDelivery && isOffered(work, service)
        ? [exactOffer(payOnDelivery.sales.receivingAccount, PRICE_MICRO)]
        : [];
    },
    since: "2026-11-23",
  },
  errors: [...new Set([...ERRORS, ...work.errors])],
  isOffered: (service) => isOffered(work, service),
  limiter: (service) => service.buyLimiter,
});

const ERRORS = [
  "bad_payment",
  "payment_used",
  "answer_expired",
  "seller_failed",
  "unavailable",
  "log_unavailable",
] as const;

/**
 * Returns how many times {@link PRICE_MICRO} a body costs; 1 for a body that is not JSON, which is refused only once
 * a payment is sent with it.
 */
function countPrices(work: Work, bytes: Buffer): number {
  if (!work.countPrices) return 1;
  let body: unknown;
  try {
    body = jsonOf(bytes);
  } catch {
    return 1;
  }
  return work.countPrices(body);
}

/** Returns the sale of a request. @param prices how many times {@link PRICE_MICRO} the body costs */
function saleOf({ service, query }: Call, work: Work, description: CallDescription, prices: number): Sale {
  const perItemText = prices > 1 ? `. This body: ${prices} at ${formatMoney(PRICE_MICRO)} USDC each` : "";
  return {
    ...{ url: resourceUrl(service, work.path, query), description: `${work.summary}${perItemText}`, mime: JSON_TYPE },
    ...{ totalMicro: PRICE_MICRO * BigInt(prices), described: description },
  };
}

async function sellWork(call: Call, work: Work, description: CallDescription): Promise<Response> {
  const { service, request } = call;
  const { sales, checkout, places } = sellingOf(service);
  const { work: deps } = service;
  if (!deps) throw new Problem("unavailable", "this server sells no work of its own; ask the service itself");
  if (!isOffered(work, service))
    throw new Problem("unavailable", `${work.path} is not sold here yet; nothing is charged`);
  const payment = paymentOf(request.headers);
  const paymentDemand = { error: "Payment required: you are charged once the work is done." };
  if (!payment && !work.countPrices)
    return paymentRequired(sales.receivingAccount, saleOf(call, work, description, 1), paymentDemand);
  const bytes = await readBody(request.body, work.maxBodyBytes);
  const sale = saleOf(call, work, description, countPrices(work, bytes));
  if (!payment) return paymentRequired(sales.receivingAccount, sale, paymentDemand);
  const input = validate(work.body, jsonOf(bytes));
  const requestSha256 = sha256hex(Buffer.concat([Buffer.from(`POST ${work.path}\n`), bytes]));
  return checkout.answer(payment, requestSha256, sale, async () => {
    const fault = await checkout.paymentFault(payment, sale, REQUIRED_VALIDITY_S);
    if (fault) return paymentRequired(sales.receivingAccount, sale, refusalFields(fault));
    const { client } = call;
    const purchaseRequest = { operation: "own" as const, requestSha256, priceMicro: 0n, publish: false, client };
    const holder = { payer: payment.from.toLowerCase(), client };
    const place = await places.forWork(holder);
    try {
      return await checkout.sell(checkout.claimOf(payment, sale, purchaseRequest), payment, sale, async () => ({
        bytes: Buffer.from(JSON.stringify(await work.run(input, { ...deps, holder }))),
        contentType: JSON_TYPE,
      }));
    } finally {
      place.leave();
    }
  });
}

/** Our own paid operations, in the order of {@link WORKS}. */
export const PAID: readonly Operation[] = WORKS.map(paidOperation);
