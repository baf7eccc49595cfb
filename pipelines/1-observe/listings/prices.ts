import { clean, get, isObject, type JsonObject, show } from "../json.ts";

/** A price in the seller's own words. People read and compare it; it is never turned into an amount. */
export interface PriceSaid {
  /** Path of the member that holds it, such as `price/amount`. */
  as: string;
  said: string;
}

const MAX_SAID = 16;
const MAX_DEPTH = 4;
const PRICED = /price|cost|amount|fee$/i;
/** Members of which every part is kept as part of the price. */
const HOLDERS = ["price", "pricing", "payment", "offers"];
/** Parts of those that are not about the price. */
const BESIDE = ["protocols", "protocol", "description"];

function gather(value: unknown, path: string, depth: number, into: PriceSaid[]): void {
  if (into.length >= MAX_SAID || value === null || value === undefined || value === "") return;
  if (typeof value !== "object") {
    into.push({ as: clean(path, 120), said: clean(typeof value === "string" ? value : show(value), 200) });
    return;
  }
  if (depth >= MAX_DEPTH) return;
  for (const [name, inner] of Object.entries(value)) {
    if (!BESIDE.includes(name)) gather(inner, `${path}/${name}`, depth + 1, into);
  }
}

/**
 * The prices that an item states outside of its x402 entries: `"$0.05"`, `"0.10"`, `{mode, currency, amount}`, a range,
 * a number of dollars. They are kept as text: the unit and the decimals are known only from the 402.
 */
export function pricesSaid(item: JsonObject): PriceSaid[] {
  const said: PriceSaid[] = [];
  for (const [name, value] of Object.entries(item)) {
    if (HOLDERS.includes(name)) gather(value, name, 1, said);
    else if (PRICED.test(name) && typeof value !== "object") gather(value, name, 1, said);
  }
  return said;
}

const MODE = /dynamic|range|variable|quote|upto/i;
const RANGE = /\d\s*(?:-|–|to)\s*\$?\d/;

/** Does the item declare that its price varies? Then no quote can contradict it. */
export function movesItsPrice(item: unknown): boolean {
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
    modes.some((mode) => typeof mode === "string" && MODE.test(mode)) ||
    prices.some((price) => typeof price === "string" && RANGE.test(price))
  );
}

const ATOMIC = /^\d{1,78}$/;
/** Offers of one row that are read: as many as the record takes. */
const MAX_FLAT = 64;

/**
 * Names under which a flat row describes its offers. A plural such as `networks` holds a list with one value for each
 * offer.
 */
const OFFER_NAMES = ["network", "asset", "payTo", "scheme", "price", "amount_atomic", "maxTimeoutSeconds"] as const;
const PLURAL: Readonly<Record<string, readonly string[]>> = {
  payTo: ["payTos", "pay_tos"],
  amount_atomic: ["amounts", "amounts_atomic"],
};
const SINGULAR: Readonly<Record<string, readonly string[]>> = { payTo: ["payTo", "pay_to"] };

/** A list as it is, or the words of a text such as "base|solana" (a table's cell). */
function listIn(value: unknown): unknown[] | null {
  if (Array.isArray(value)) return value.slice(0, MAX_FLAT);
  return typeof value === "string" && value.length <= 4096 ? value.split(/[\s,;|]+/).slice(0, MAX_FLAT) : null;
}

/** The values of a row under this name: one for each of its offers, or one for all of them. */
function valuesUnder(row: JsonObject, name: string): { each: unknown[] } | { all: unknown } {
  const alone = (SINGULAR[name] ?? [name]).map((one) => row[one]).find((one) => one !== undefined);
  if (Array.isArray(alone)) return { each: alone.slice(0, MAX_FLAT) };
  if (alone !== undefined) return { all: alone };
  const lists = (PLURAL[name] ?? [`${name}s`]).map((one) => listIn(row[one])).find((one) => one !== null);
  return lists ? { each: lists } : { all: undefined };
}

/** Splits a row with parallel lists (networks, amounts, payees) into one row for each offer. */
function sideBySide(row: JsonObject): JsonObject[] {
  const values = OFFER_NAMES.map((name) => [name, valuesUnder(row, name)] as const);
  const networks = values[0]![1];
  if (!("each" in networks)) return [row];
  const unit = row.price_unit ?? row.unit;
  return networks.each.map((_, i) => {
    const pairs = values.map(([name, of]) => [name, "each" in of ? of.each[i] : of.all]);
    return { ...Object.fromEntries(pairs), price_unit: unit } as JsonObject;
  });
}

/**
 * The x402 entries of a flat row (`network`, `asset`, `payTo`, a price with `price_unit: "atomic"`), of parallel lists
 * of these, or of its list of offers. A single offer without an amount in atomic units is left out; of several offers
 * those that only name payee or asset are kept too.
 */
export function flatEntries(row: JsonObject): JsonObject[] {
  const offers = get(row, "offers");
  const list = Array.isArray(offers) && offers.length > 0 ? offers.filter(isObject) : sideBySide(row);
  return list.slice(0, MAX_FLAT).flatMap((offer) => {
    const unit = get(offer, "price_unit") ?? get(offer, "unit");
    const said = unit === "atomic" ? get(offer, "price") : get(offer, "amount_atomic");
    const amount = typeof said === "string" && ATOMIC.test(said) ? said : undefined;
    const payTo = get(offer, "payTo") ?? get(offer, "pay_to");
    const { network, asset, scheme, maxTimeoutSeconds } = offer;
    const isOffer = amount !== undefined || (list.length > 1 && (payTo || asset));
    return network && isOffer ? [{ scheme: scheme ?? "exact", network, amount, asset, payTo, maxTimeoutSeconds }] : [];
  });
}
