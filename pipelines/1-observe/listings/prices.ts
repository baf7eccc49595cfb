import { clean, get, isObject, type JsonObject, show } from "../json.ts";

/** A price in the seller's own words. It is shown and compared by people, and never turned into an amount. */
export interface PriceSaid {
  /** Member it stood in, as a path: `price/amount`. */
  as: string;
  said: string;
}

const MAX_SAID = 16;
const MAX_DEPTH = 4;
const PRICED = /price|cost|amount|fee$/i;
/** Members whose whole content is about the price, whatever its parts are called. */
const HOLDERS = ["price", "pricing", "payment", "offers"];
/** What stands among them and says nothing of a price. */
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
 * What an item says of its price beside the x402 entries: `"$0.05"`, `"0.10"`, `{mode, currency, amount}`, a range, a
 * number of dollars. Text as written: 0.05 of what, and to how many decimals, is only for the 402 to say.
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

/** Does the item itself say that its price moves? Then no quote can differ from it. */
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

/**
 * Entries of a flat row (`network`, `asset`, `payTo`, a price with `price_unit: "atomic"`), or of its list of offers;
 * none where no amount in atomic units is named.
 */
export function flatEntries(row: JsonObject): JsonObject[] {
  const offers = get(row, "offers");
  const list = Array.isArray(offers) && offers.length > 0 ? offers.filter(isObject) : [row];
  return list.slice(0, 64).flatMap((offer) => {
    const unit = get(offer, "price_unit") ?? get(offer, "unit");
    const amount = unit === "atomic" ? get(offer, "price") : get(offer, "amount_atomic");
    const network = get(offer, "network");
    if (typeof amount !== "string" || !ATOMIC.test(amount) || !network) return [];
    const { asset, scheme } = offer;
    return [{ scheme: scheme ?? "exact", network, amount, asset, payTo: get(offer, "payTo") ?? get(offer, "pay_to") }];
  });
}
