import { clean, get, isObject, type JsonObject, show } from "../json.ts";

/** A price as the seller wrote it. It is shown to people and never converted to an amount. */
export interface StatedPrice {
  /** Path of the member that holds the price, such as `price/amount`. */
  as: string;
  /** The price as text, such as `$0.05`. */
  said: string;
}

const MAX_STATED_PRICES = 16;
const MAX_DEPTH = 4;
const PRICE_NAME = /price|cost|amount|fee$/i;
/** Members whose whole content is kept as part of the price. */
const PRICE_MEMBERS = ["price", "pricing", "payment", "offers"];
/** Names of members inside {@link PRICE_MEMBERS} that are not about the price. */
const NOT_PRICE_MEMBERS = ["protocols", "protocol", "description"];

function collectPrices(value: unknown, path: string, depth: number, prices: StatedPrice[]): void {
  if (prices.length >= MAX_STATED_PRICES || value === null || value === undefined || value === "") return;
  if (typeof value !== "object") {
    prices.push({ as: clean(path, 120), said: clean(typeof value === "string" ? value : show(value), 200) });
    return;
  }
  if (depth >= MAX_DEPTH) return;
  for (const [name, inner] of Object.entries(value)) {
    if (!NOT_PRICE_MEMBERS.includes(name)) collectPrices(inner, `${path}/${name}`, depth + 1, prices);
  }
}

/**
 * Collects the prices that an item states outside of its x402 entries: `"$0.05"`, `"0.10"`, `{mode, currency, amount}`,
 * a range, a number of dollars. They are kept as text, since only the 402 determines unit and decimals.
 */
export function collectStatedPrices(item: JsonObject): StatedPrice[] {
  const prices: StatedPrice[] = [];
  for (const [name, value] of Object.entries(item)) {
    if (PRICE_MEMBERS.includes(name)) collectPrices(value, name, 1, prices);
    else if (PRICE_NAME.test(name) && typeof value !== "object") collectPrices(value, name, 1, prices);
  }
  return prices;
}

const VARIABLE_MODE = /dynamic|range|variable|quote|upto/i;
const PRICE_RANGE = /\d\s*(?:-|–|to)\s*\$?\d/;

/** Does the item declare that its price varies? Then the price in a 402 cannot contradict it. */
export function hasVariablePrice(item: unknown): boolean {
  const payment = get(item, "payment");
  const modes = [item, payment].flatMap((from) => [
    get(from, "pricingMode"),
    get(from, "pricing"),
    get(from, "price", "mode"),
    get(from, "pricing", "mode"),
  ]);
  const prices = [get(item, "price"), get(payment, "price")];
  return (
    get(item, "dynamic") === true ||
    get(item, "fixed_price") === false ||
    modes.some((mode) => typeof mode === "string" && VARIABLE_MODE.test(mode)) ||
    prices.some((price) => typeof price === "string" && PRICE_RANGE.test(price))
  );
}

const ATOMIC_AMOUNT = /^\d{1,78}$/;
/** Largest number of offers of one row that are read. The record holds no more. */
const MAX_OFFERS = 64;

/**
 * Member names under which a flat row (offer members in the item itself) describes its offers. A plural such as
 * `networks` holds a list with one value for each offer.
 */
const OFFER_NAMES = ["network", "asset", "payTo", "scheme", "price", "amount_atomic", "maxTimeoutSeconds"] as const;
/** Plural names of an offer's members. The plural of a member that is not named here is its name with an `s`. */
const PLURAL_NAMES: Readonly<Record<string, readonly string[]>> = {
  payTo: ["payTos", "pay_tos"],
  amount_atomic: ["amounts", "amounts_atomic"],
};
/** Names of an offer's members that rows write in several ways. */
const SINGULAR_NAMES: Readonly<Record<string, readonly string[]>> = { payTo: ["payTo", "pay_to"] };

/**
 * Returns a list unchanged, and splits a text such as "base|solana" (the cell of a table) into words; null for any
 * other value.
 */
function toList(value: unknown): unknown[] | null {
  if (Array.isArray(value)) return value.slice(0, MAX_OFFERS);
  return typeof value === "string" && value.length <= 4096 ? value.split(/[\s,;|]+/).slice(0, MAX_OFFERS) : null;
}

/** Returns the values of a row under this name: one value for each offer, or one value for all offers. */
function offerValues(row: JsonObject, name: string): { each: unknown[] } | { all: unknown } {
  const value = (SINGULAR_NAMES[name] ?? [name]).map((one) => row[one]).find((one) => one !== undefined);
  if (Array.isArray(value)) return { each: value.slice(0, MAX_OFFERS) };
  if (value !== undefined) return { all: value };
  const list = (PLURAL_NAMES[name] ?? [`${name}s`]).map((one) => toList(row[one])).find((one) => one !== null);
  return list ? { each: list } : { all: undefined };
}

/** Splits a row with parallel lists (networks, amounts, payees) into one row for each offer. */
function splitParallelLists(row: JsonObject): JsonObject[] {
  const values = OFFER_NAMES.map((name) => [name, offerValues(row, name)] as const);
  const networks = values[0]![1];
  if (!("each" in networks)) return [row];
  const unit = row.price_unit ?? row.unit;
  return networks.each.map((_, i) => {
    const pairs = values.map(([name, offerValue]) => [
      name,
      "each" in offerValue ? offerValue.each[i] : offerValue.all,
    ]);
    return { ...Object.fromEntries(pairs), price_unit: unit } as JsonObject;
  });
}

/**
 * Makes x402 entries from a flat row (`network`, `asset`, `payTo`, a price with `price_unit: "atomic"`), from parallel
 * lists of these, or from its list of offers. A single offer without an amount in atomic units is left out; of several
 * offers, those that only name payee or asset are kept too.
 */
export function entriesOfFlatRow(row: JsonObject): JsonObject[] {
  const offers = get(row, "offers");
  const list = Array.isArray(offers) && offers.length > 0 ? offers.filter(isObject) : splitParallelLists(row);
  return list.slice(0, MAX_OFFERS).flatMap((offer) => {
    const unit = get(offer, "price_unit") ?? get(offer, "unit");
    const amountText = unit === "atomic" ? get(offer, "price") : get(offer, "amount_atomic");
    const amount = typeof amountText === "string" && ATOMIC_AMOUNT.test(amountText) ? amountText : undefined;
    const payTo = get(offer, "payTo") ?? get(offer, "pay_to");
    const { network, asset, scheme, maxTimeoutSeconds } = offer;
    const isOffer = amount !== undefined || (list.length > 1 && (payTo || asset));
    return network && isOffer ? [{ scheme: scheme ?? "exact", network, amount, asset, payTo, maxTimeoutSeconds }] : [];
  });
}
