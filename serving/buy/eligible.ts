import type { OrderCaps } from "../../pipelines/orders/caps.ts";
import type { OrderTable } from "../../pipelines/orders/order-table.ts";
import { noOfferText } from "../../pipelines/orders/seller.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { formatMoney, parseMoney } from "../../pipelines/record/money.ts";
import { pathValues, variablesOf } from "../../pipelines/record/template.ts";
import { readHandshakeRequest } from "../../pipelines/record/volatile.ts";
import type { Buy } from "../schemas/check.ts";
import { cardOf, headlineOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { buyerTotal } from "./terms.ts";

/** Request header with which a buyer publishes a bought call in the record. */
export const PUBLISH_HEADER = "Touchstone-Publish";

/** Bounds on the calls that are sold (docs/design/orders.md). Prices are micro-units. */
export interface SalePolicy {
  /** Calls with a lower seller's price are not sold. */
  leastPrice: bigint;
  /** Calls with a higher seller's price are not sold. */
  maxPrice: bigint;
  /** Highest seller's price of an endpoint without a letter. */
  maxUnratedPrice: bigint;
  /** Effective number of our own calls that must have passed before calls of an endpoint without a letter are sold. */
  minUnratedPasses: number;
}

/** The fixed part of the policy. */
export const SALE_POLICY: Omit<SalePolicy, "leastPrice"> = {
  ...{ maxPrice: 10_000_000n, maxUnratedPrice: 100_000n, minUnratedPasses: 5 },
};

const smallest = (...amounts: bigint[]): bigint => amounts.sort((a, b) => (a < b ? -1 : 1))[0]!;

/**
 * Returns the policy under the caps of the settings. Calls with a higher price than may be lost in a day at one seller
 * are never bought, so they are not offered.
 */
export function salePolicyOf(caps: OrderCaps): SalePolicy {
  const maxPrice = smallest(SALE_POLICY.maxPrice, caps.lossPerPayeeDay, caps.lossPerPlatformDay, caps.lossPerCapDay);
  const maxUnratedPrice = smallest(SALE_POLICY.maxUnratedPrice, maxPrice, caps.lossPerDay);
  return { ...SALE_POLICY, leastPrice: caps.leastPrice, maxPrice, maxUnratedPrice };
}

/** An endpoint whose calls can be sold. */
export interface SellableEndpoint {
  cap: string;
  url: string;
  method: "GET" | "POST";
  /** Name of the MCP server's tool that is called; null: not a tool. */
  tool: string | null;
  /** Whether it has a letter (a grade from A to F). */
  lettered: boolean;
}

/**
 * Returns an endpoint's band (its letter, or UNRATED) and how many of our own calls passed, both from its newest card.
 * The number is an effective one: old and correlated calls count less.
 */
function bandAndPassesOf(view: View, cap: string): { band: string; passes: number } {
  const entry = view.entry(cap);
  const headline = entry ? headlineOf(entry) : null;
  if (!headline) return { band: "UNRATED", passes: 0 };
  const { point, n_eff } = cardOf(headline).components?.correctness ?? { point: null, n_eff: 0 };
  return { band: view.bandOf(entry!), passes: Math.floor((point ?? 0) * n_eff + 1e-9) };
}

/** Returns how an endpoint is called; or, in `says`, why its calls are never sold. */
export function sellableOf(view: View, cap: string): SellableEndpoint | { says: string } {
  const entry = view.entry(cap);
  const row = view.row(cap);
  const url = entry?.listing?.url ?? row?.url ?? null;
  const method = entry?.listing?.method ?? row?.method ?? null;
  if (url === null || method === null) return { says: "The record has no url of this endpoint." };
  const tool = entry?.listing ? entry.listing.tool : toolWithoutListing(cap, { url, method }, row?.request);
  if (tool === undefined) return { says: "The record does not name the tool that is called there." };
  if (tool !== null && variablesOf(url).length > 0)
    return { says: "The address of its MCP server is a template, which calls of tools do not fill." };
  const calledMethod = tool === null ? method : "POST";
  if (calledMethod !== "GET" && calledMethod !== "POST")
    return { says: `Calls with ${calledMethod} are not bought through this service.` };
  return { cap, url, method: calledMethod, tool, lettered: bandAndPassesOf(view, cap).band !== "UNRATED" };
}

/**
 * Returns the tool of an endpoint without a listing, from its id and our newest handshake; null: not a tool; undefined:
 * unknown.
 */
function toolWithoutListing(
  cap: string,
  { url, method }: { url: string; method: string },
  request: string | null | undefined,
): string | null | undefined {
  if (capId(method, url) === cap) return null;
  return request ? readHandshakeRequest(request)?.tool : undefined;
}

/**
 * Returns why a call is not sold at this price (micro-units), as a sentence for the buyer, or null. The service loses
 * the price of each call that fails, so endpoints with a bad letter, or with few observed calls, are restricted.
 */
export function saleRefusal(view: View, cap: string, priceMicro: bigint, policy: SalePolicy): string | null {
  const { band, passes } = bandAndPassesOf(view, cap);
  if (band === "F") return "Its letter is F: its calls are not sold by this service.";
  if (view.row(cap)?.unserved)
    return "It took the payment of one of our calls without an answer: its calls are not sold.";
  if (priceMicro < policy.leastPrice) return `Calls below ${formatMoney(policy.leastPrice)} USDC are not bought.`;
  if (priceMicro > policy.maxPrice) return `At most ${formatMoney(policy.maxPrice)} USDC are paid for one call.`;
  if (band !== "UNRATED") return null;
  if (priceMicro > policy.maxUnratedPrice) {
    return `It has no letter: at most ${formatMoney(policy.maxUnratedPrice)} USDC are paid for one of its calls.`;
  }
  return passes < policy.minUnratedPasses
    ? `It has no letter, and ${passes} of the ${policy.minUnratedPasses} calls of ours that have to pass first.`
    : null;
}

/**
 * Describes when a buyer is charged, in words that are true for every input. The 402 of a call names the exact check
 * (pipelines/orders/judgement.ts).
 * @param name class of the endpoint
 */
const guaranteeFor = (name = "any"): string =>
  name === "any"
    ? "You are charged only after the answer passed the check that the 402 of your call names: the right answer where your input fixes one that we know, else the seller's own schema, or the form and the status alone."
    : `You are charged only after the answer passed the check that the 402 of your call names: the right answer of the class ${name} where your input fixes it, else the seller's own schema, or the form and the status alone.`;

/** What decides whether a call is sold, besides the endpoint's record: the policy, the network, and our orders. */
export interface SaleContext {
  policy: SalePolicy;
  /** The network on which both buyers pay and sellers are paid. */
  receivingAccount: { network: string };
  buying: {
    /** Tells which sellers have money of ours for a call that did not pass. */
    orders: { table: Pick<OrderTable, "isOwedBy"> };
    /** Why no call of any seller is bought now, as a sentence; null or absent: calls are bought. */
    whyClosed?: string | null;
  };
}

/**
 * Returns how to buy a call of an endpoint through this service (the operation `via`), for check answers; or why
 * `via` would refuse it now. Spending caps that change within seconds are checked only by `via`.
 * @param under a normalised url that matches the endpoint's template; the returned url has the values of this url for
 * the template's variables
 */
export function buyTerms(
  view: View,
  cap: string,
  baseUrl: string,
  context: SaleContext,
  under?: string,
): Buy | { says: string } {
  const { policy, receivingAccount, buying } = context;
  const sellable = sellableOf(view, cap);
  if ("says" in sellable) return sellable;
  const row = view.row(cap);
  // No handshake is in the tables of the present yet: none was made, or, while past days are simulated, they are
  // written at the end.
  if (row === undefined) return { says: "No handshake of ours with it has been read yet." };
  if (row.price == null) {
    const askedForPayment = (row.asked_for_payment ?? 0) > 0;
    return {
      says: askedForPayment ? "Its newest 402 names no price." : "No handshake of ours was answered with a price yet.",
    };
  }
  // Our wallets can pay if the newest 402 names a payee on their network; the price is known if the asset is a dollar.
  if (row.unit !== "USD") return { says: "Its price is in an asset of which we do not know what a unit is worth." };
  if (row.pay_to == null || !row.networks.includes(receivingAccount.network)) {
    return { says: noOfferText(receivingAccount.network) };
  }
  const price = parseMoney(row.price);
  const refusal = saleRefusal(view, cap, price, policy) ?? buying.whyClosed ?? null;
  if (refusal !== null) return { says: refusal };
  if (buying.orders.table.isOwedBy({ ...sellable, payTo: row.pay_to })) {
    return {
      says: "Money of ours is with it or its payee for a call that brought nothing: it is not bought from until that ends.",
    };
  }
  const total = buyerTotal(price);
  const variables = variablesOf(sellable.url);
  const givenValues = under === undefined || variables.length === 0 ? null : pathValues(sellable.url, under);
  return {
    url: `${baseUrl}/v1/via/${cap}${givenValues?.size ? `?${new URLSearchParams([...givenValues])}` : ""}`,
    method: sellable.method,
    seller_price: formatMoney(price),
    fee: formatMoney(total - price),
    total: formatMoney(total),
    asset: "USDC",
    guarantee: guaranteeFor(view.entry(cap)?.listing?.class),
    publish: `${PUBLISH_HEADER}: true`,
    ...(sellable.tool === null ? {} : { tool: sellable.tool }),
    ...(variables.length === 0 ? {} : { variables }),
  };
}

/** Default reason of a service that sells no calls. */
export const NOTHING_SOLD = "Nothing is sold here.";

/** Returns {@link buyTerms} for one service, so that check, search and pages agree about an endpoint. */
export const termsOf =
  ({ baseUrl, sales, whyNotSold }: { baseUrl: string; sales?: SaleContext; whyNotSold?: string }) =>
  (view: View, cap: string, under?: string): Buy | { says: string } =>
    sales ? buyTerms(view, cap, baseUrl, sales, under) : { says: whyNotSold ?? NOTHING_SOLD };
