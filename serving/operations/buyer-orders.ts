import { systemClock } from "../../infra/clock.ts";
import { orderShown } from "../buy/shown.ts";
import { provesWallet } from "../buy/wallet-auth.ts";
import { Problem, queryOf, validated } from "../http/problem.ts";
import { freshJson, JSON_TYPE } from "../http/reply.ts";
import { BuyerOrders, BuyerPath, BuyerQuery } from "../schemas/orders.ts";
import type { Operation } from "./operation.ts";
import { sellingOf } from "./via.ts";

/** GET /v1/buyers/{address}/orders (docs/pay-on-delivery.md): orders are a buyer's own business, so its wallet signs. */
export const buyerOrders: Operation = {
  id: "buyerOrders",
  path: "/v1/buyers/:address/orders",
  summary: "Orders of a wallet, newest first, for who can sign with it; without the answers' bytes",
  params: BuyerPath,
  query: BuyerQuery,
  answer: BuyerOrders,
  type: JSON_TYPE,
  tag: "buy",
  always: true,
  errors: ["not_the_wallet", "bad_cursor", "log_unavailable", "unavailable"],
  limiter: (service) => service.readLimiter,
  async run({ service, request, params, query, limitHeaders }) {
    const { orders } = sellingOf(service).sales.buying;
    const { address } = validated(BuyerPath, params);
    const { cursor, limit } = validated(BuyerQuery, queryOf(query));
    // Wallets sign in real time, whatever time the record is in.
    await provesWallet(request.headers, address, service.baseUrl, systemClock.now());
    try {
      await orders.catchUp();
    } catch {
      throw new Problem("log_unavailable", "orders cannot be read now", { headers: { "retry-after": "5" } });
    }
    const all = orders.table.ofPayer(address);
    const at = cursor === undefined ? 0 : all.findIndex(({ id }) => id === cursor) + 1;
    if (cursor !== undefined && at === 0) {
      throw new Problem("bad_cursor", "no order of this wallet is the cursor, or it was forgotten long ago");
    }
    const page = all.slice(at, at + limit);
    const answer: BuyerOrders = {
      schema: "svc.orders.v1",
      payer: address.toLowerCase(),
      orders: page.map((order) => orderShown(order, null)),
      next: at + limit < all.length ? page.at(-1)!.id : null,
    };
    return freshJson(answer, 200, limitHeaders);
  },
};
