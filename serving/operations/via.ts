import { z } from "zod";
import { systemClock } from "../../infra/clock.ts";
import { signObject } from "../../infra/keys/signer.ts";
import { findTimeProblem, isSignedBy } from "../../pipelines/corrections/dispute.ts";
import { answerOf } from "../../pipelines/orders/order-objects.ts";
import { readSalts } from "../../pipelines/orders/publishing-calls.ts";
import { BuyersExpectation, MAX_EXPECTATION_CHARS } from "../../pipelines/record/expectation.ts";
import { faultsOf, pointerOf } from "../../pipelines/record/faults.ts";
import { parseJson } from "../../pipelines/record/json.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { NOTHING_SOLD, PUBLISH_HEADER } from "../buy/eligible.ts";
import { orderDocument } from "../buy/order-document.ts";
import { EXPECT_HEADER, type PayOnDelivery } from "../buy/pay-on-delivery.ts";
import { paymentOf } from "../buy/payments.ts";
import { exactOffer } from "../buy/terms.ts";
import type { Service } from "../context.ts";
import { Problem, queryOf, validate } from "../http/problem.ts";
import { JSON_TYPE, uncachedJson } from "../http/reply.ts";
import { readBody } from "../http/request.ts";
import { CapId } from "../schemas/common.ts";
import { BuyerOrders, BuyerPath, BuyerQuery, OrderId, type OrderShown, SignedOrder } from "../schemas/orders.ts";
import type { Call, Operation, Price } from "./operation.ts";

/** Longest body that is passed on to a seller. It is stored with the order. */
const MAX_BODY_BYTES = 131_072;

/** Returns the part that sells calls. @throws Problem unavailable if nothing is sold */
export function sellingOf({ payOnDelivery, whyNotSold }: Service): PayOnDelivery {
  if (payOnDelivery) return payOnDelivery;
  throw new Problem("unavailable", whyNotSold ?? NOTHING_SOLD);
}

/** Reports whether the buyer asks for the call to be published. @throws Problem bad_request */
export const wantsPublish = (headers: Headers): boolean => {
  const flag = headers.get(PUBLISH_HEADER);
  if (flag === null || flag === "false") return false;
  if (flag === "true") return true;
  const detail = 'must be "true" or "false"';
  throw new Problem("bad_request", `${PUBLISH_HEADER} ${detail}`, {
    errors: [{ pointer: `/headers/${PUBLISH_HEADER}`, detail }],
  });
};

/** Parses the buyer's own expectation of the answer, or null. @throws Problem */
function expectationIn(headers: Headers): BuyersExpectation | null {
  const text = headers.get(EXPECT_HEADER);
  if (text === null) return null;
  const pointerToHeader = `/headers/${EXPECT_HEADER}`;
  const refuse = (errors: { pointer: string; detail: string }[]): never => {
    throw new Problem("bad_request", errors.map(({ pointer, detail }) => `${pointer} ${detail}`).join("; "), {
      errors,
    });
  };
  if (text.length > MAX_EXPECTATION_CHARS || !/^[\x20-\x7e]*$/.test(text))
    return refuse([
      { pointer: pointerToHeader, detail: `must be at most ${MAX_EXPECTATION_CHARS} characters of ASCII` },
    ]);
  const parsed = parseJson(Buffer.from(text));
  if (parsed === undefined)
    return refuse([{ pointer: pointerToHeader, detail: 'must be JSON such as {"min_length": 20}' }]);
  const parsedExpectation = BuyersExpectation.safeParse(parsed);
  if (parsedExpectation.success) return parsedExpectation.data;
  return refuse(
    faultsOf(parsedExpectation.error).map(({ path, detail }) => ({
      pointer: path.length === 0 ? pointerToHeader : pointerToHeader + pointerOf(path),
      detail,
    })),
  );
}

/** Answers a request for a call of an endpoint: with a payment it buys the call, without one it returns the price. */
async function viaCall(
  method: "GET" | "POST",
  { service, request, params, query, client, refuseWhenOverloaded }: Call,
): Promise<Response> {
  const selling = sellingOf(service);
  const cap = validate(ViaPath, params).capability_id;
  const { headers } = request;
  // A HEAD gets the headers of a GET and buys nothing.
  const payment = request.method === "HEAD" ? null : paymentOf(headers);
  // Under overload, requests for a price, which are free, are refused in favour of requests with a payment.
  if (!payment) refuseWhenOverloaded();
  const publish = wantsPublish(headers);
  const expect = expectationIn(headers);
  const body = method === "POST" ? await readBody(request.body, MAX_BODY_BYTES) : null;
  return selling.call({ cap, method, query, body, headers, payment, publish, expect, client });
}

const ViaPath = z.object({ capability_id: CapId });

/** Price in the description of the API: the lowest price of a call through this service. */
const PRICE: Price = {
  mode: "dynamic",
  amount: "0.002000",
  accepts: ({ payOnDelivery }) => (payOnDelivery ? [exactOffer(payOnDelivery.sales.receivingAccount, 2_000n)] : []),
  since: "2026-11-23",
};

/** Members that all operations which sell calls have in common. */
export const PURCHASE = {
  answer: z.unknown().meta({
    title: "SellerAnswer",
    description: "The seller's answer, as it came, once it passed and you were charged",
  }),
  type: JSON_TYPE,
  tag: "buy",
  price: PRICE,
  needsRecord: true,
  requestHeaders: ["Touchstone-Publish"],
  limiter: (service) => service.buyLimiter,
} satisfies Partial<Operation>;

const via = {
  ...PURCHASE,
  requestHeaders: [...PURCHASE.requestHeaders, EXPECT_HEADER],
  path: "/v1/via/:capability_id",
  params: ViaPath,
  errors: [
    "bad_payment",
    "bad_input",
    "not_sold",
    "payment_used",
    "answer_expired",
    "seller_failed",
    "no_price",
    "unknown_capability",
    "unavailable",
  ],
} satisfies Partial<Operation>;

const viaGet: Operation = {
  ...via,
  id: "viaGet",
  summary: "Buy a GET call of this endpoint: charged only if the answer passed. Without a payment: the price, as a 402",
  run: (call) => viaCall("GET", call),
};

const viaPost: Operation = {
  ...via,
  id: "viaPost",
  method: "POST",
  summary:
    "Buy a POST call of this endpoint: charged only if the answer passed. Without a payment: the price, as a 402",
  run: (call) => viaCall("POST", call),
};

const OrderPath = z.object({ order_id: OrderId });

const refuseUnreadable = (): never => {
  throw new Problem("log_unavailable", "orders cannot be read now", { headers: { "retry-after": "5" } });
};

/** Matches half of a surrogate pair, which a stranger's text may contain and which RFC 8785 cannot represent. */
const LONE_SURROGATE = /\p{Surrogate}/gu;

const replaceLoneSurrogates = (shown: OrderShown): OrderShown =>
  JSON.parse(JSON.stringify(shown), (_, value) =>
    typeof value === "string" ? value.replace(LONE_SURROGATE, "\ufffd") : value,
  );

const order: Operation = {
  id: "order",
  path: "/v1/orders/:order_id",
  summary: "One order, signed: how it stands, what was paid and charged, and what was bought once it was charged",
  params: OrderPath,
  answer: SignedOrder,
  type: JSON_TYPE,
  tag: "buy",
  evenWhenOverloaded: true,
  errors: ["not_found", "log_unavailable", "unavailable"],
  limiter: (service) => service.readLimiter,
  async run({ service, params, limitHeaders }) {
    const { orders, objects } = sellingOf(service).sales.buying;
    const id = validate(OrderPath, params).order_id;
    await orders.catchUp().catch(refuseUnreadable);
    const storedOrder = orders.table.get(id);
    if (!storedOrder) throw new Problem("not_found", "there is no order with this id, or it was forgotten long ago");
    const bytes = storedOrder.state === "settled" ? answerOf(objects, storedOrder) : null;
    const [answer, salts] = await Promise.all([bytes, readSalts(orders, storedOrder)]).catch(refuseUnreadable);
    const document = replaceLoneSurrogates(orderDocument(storedOrder, { answer, salts }));
    const signed = signObject(service.answers, { ...document, answered_at: rfc3339(service.clock.now()) });
    return uncachedJson(signed, 200, limitHeaders);
  },
};

export const BUYING: readonly Operation[] = [viaGet, viaPost, order];

const Credential = z.strictObject({
  address: z.string().regex(/^0x[0-9a-fA-F]{40}$/),
  at: z.string().max(40),
  signature: z.string().regex(/^0x[0-9a-fA-F]{130}$/),
});

/** Longest credential, characters. Some 300 are used. */
const MAX_CREDENTIAL_LENGTH = 1_000;
const CREDENTIAL_VALIDITY = { ms: 300_000, words: "5 minutes" };

/**
 * Returns the text that a wallet signs (EIP-191, personal_sign) to read its orders. It names the service and a time,
 * so that the signature is valid at no other service, and only for some minutes.
 * @param address lower case
 * @param at RFC 3339 with milliseconds, UTC
 */
export const ordersText = (service: string, address: string, at: string): string =>
  `I want to read the orders of my wallet.\nService: ${service}\nAddress: ${address}\nAt: ${at}`;

const refuse = (detail: string): never => {
  throw new Problem("not_the_wallet", detail, { headers: { "www-authenticate": "Wallet" } });
};

function credentialOf(headers: Headers): z.infer<typeof Credential> {
  const header = headers.get("authorization") ?? refuse("send Authorization: Wallet and a credential that it signed");
  const text = /^wallet +([A-Za-z0-9_-]+)={0,2}$/i.exec(header.trim().slice(0, MAX_CREDENTIAL_LENGTH))?.[1];
  if (text === undefined) return refuse("Authorization must be Wallet and base64url of JSON {address, at, signature}");
  try {
    return Credential.parse(JSON.parse(Buffer.from(text, "base64url").toString("utf8")));
  } catch {
    return refuse("the credential is no base64url of JSON {address, at, signature}");
  }
}

/**
 * Checks that the request has `Authorization: Wallet <credential>`, signed by this address for this service within
 * five minutes of now. Signatures of contracts (ERC-1271) are refused, since verifying them needs a node of a chain.
 * @throws Problem not_the_wallet with the reason
 */
async function requireWalletSignature(headers: Headers, address: string, service: string, now: Date): Promise<void> {
  const credential = credentialOf(headers);
  const walletAddress = address.toLowerCase();
  if (credential.address.toLowerCase() !== walletAddress) refuse("the credential is another wallet's");
  const timeProblem = findTimeProblem(credential.at, now, CREDENTIAL_VALIDITY);
  if (timeProblem !== null) refuse(`at ${timeProblem}`);
  const { at, signature } = credential;
  if (!(await isSignedBy(walletAddress, ordersText(service, walletAddress, at), signature))) {
    refuse(`the signature is not ${walletAddress}'s over the text for ${service}`);
  }
}

/** GET /v1/buyers/{address}/orders (docs/pay-on-delivery.md). Orders are private, so the buyer's wallet must sign. */
export const buyerOrders: Operation = {
  id: "buyerOrders",
  path: "/v1/buyers/:address/orders",
  summary: "Orders of a wallet, newest first, for who can sign with it; without the answers' bytes",
  params: BuyerPath,
  query: BuyerQuery,
  answer: BuyerOrders,
  type: JSON_TYPE,
  tag: "buy",
  evenWhenOverloaded: true,
  wallet: true,
  errors: ["not_the_wallet", "bad_cursor", "log_unavailable", "unavailable"],
  limiter: (service) => service.readLimiter,
  async run({ service, request, params, query, limitHeaders }) {
    const { orders } = sellingOf(service).sales.buying;
    const { address } = validate(BuyerPath, params);
    const { cursor, limit } = validate(BuyerQuery, queryOf(query));
    // Wallets sign in real time, also if the record's time is simulated.
    await requireWalletSignature(request.headers, address, service.baseUrl, systemClock.now());
    await orders.catchUp().catch(refuseUnreadable);
    const all = orders.table.ofPayer(address);
    const start = cursor === undefined ? 0 : all.findIndex(({ id }) => id === cursor) + 1;
    if (cursor !== undefined && start === 0) {
      throw new Problem("bad_cursor", "the cursor is not an order of this wallet, or it was forgotten long ago");
    }
    const page = all.slice(start, start + limit);
    const answer: BuyerOrders = {
      schema: "svc.orders.v1",
      payer: address.toLowerCase(),
      orders: page.map((order) => orderDocument(order)),
      next: start + limit < all.length ? page.at(-1)!.id : null,
    };
    return uncachedJson(answer, 200, limitHeaders);
  },
};
