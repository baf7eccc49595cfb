import { type SpelledWord, splitWords } from "../../infra/text-index.ts";
import { formatMoney, parseMoney } from "../../pipelines/record/money.ts";
import { NETWORK_NAMES } from "../../pipelines/record/networks.ts";
import type { SortOrder } from "../schemas/search.ts";

/** A search query, split into its conditions and its words. */
export interface Question {
  /** Words that an endpoint should hold. */
  words: readonly SpelledWord[];
  /** Order of the results that the query asks for; null: none. */
  order: SortOrder | null;
  /** Highest price, in dollars. */
  maxPrice: string | null;
  /** Name of a blockchain network, in lower case with hyphens (`base-sepolia`). */
  network: string | null;
}

/** Largest number of words of a query that are read. */
const MAX_WORDS_READ = 40;

/** Words that do not describe what is sought, in English and German. */
const STOP_WORDS: ReadonlySet<string> = new Set(
  [
    "a an the this that these those some any all one of to in on at by for from with without into as is are be was were it its",
    "under below least lowest and or not no but if then than so do does did done can could will would should may might must has have had",
    "i me my we us our you your he she they them their who what which where when why how there here",
    "anything something everything thing things please just only also more most much many way ways",
    "find get give gets gives need needs want wants look looking search show list tell let make buy buying pay paying paid sell sells offer offers",
    "call use using endpoint endpoints api apis service services seller sellers provider providers capability capabilities",
    "der die das den dem des ein eine einen einem einer eines und oder nicht für von zu zum zur im am mit ohne auf aus bei nach ist sind",
    "ich mir mich wir uns du sie es was wer wie wo wann kann können soll will möchte brauche suche finde bitte kaufen",
  ].flatMap((line) => line.split(" ")),
);

/** Words that ask for an order of the results. */
const ORDER_WORDS: Readonly<Record<string, SortOrder>> = {
  ...{ cheap: "price", cheaper: "price", cheapest: "price", günstig: "price", günstigste: "price", billigste: "price" },
  ...{
    fast: "latency",
    faster: "latency",
    fastest: "latency",
    quick: "latency",
    quickest: "latency",
    schnellste: "latency",
  },
  ...{
    best: "best",
    good: "best",
    reliable: "best",
    trusted: "best",
    trustworthy: "best",
    safe: "best",
    beste: "best",
  },
};
/** Matches a wish for the lowest price or latency. */
const LOWEST = /\b(?:lowest|least|minimal|minimum)\s+(?:price|cost|costs|latency)\b/iu;

const AMOUNT = String.raw`(\$?)\s*(\d{1,9}(?:\.\d{1,6})?|an?|one|half\s+an?|two|five|ten)\s*(cents?|¢|usdc|usd|dollars?|\$)?`;
/** Matches a highest price, such as `under one cent`, `at most 0.006 USDC` or `<= $0.01`. */
const MAX_PRICE = new RegExp(
  String.raw`(?:\b(under|below|less\s+than|cheaper\s+than|unter|at\s+most|no\s+more\s+than|not\s+more\s+than|up\s+to|max(?:imum)?|within|höchstens)|(<=?|≤))\s*(?:of\s+)?${AMOUNT}(?=$|[\s,;.?!])`,
  "iu",
);
/** Matches the words before a limit that is itself too high, such as `under`. */
const IS_BELOW = /^(?:under|below|less|cheaper|unter|<$)/iu;
const NUMBERS: Readonly<Record<string, string>> = { a: "1", an: "1", one: "1", two: "2", five: "5", ten: "10" };

/** Names of networks, the longest first, so that `base-sepolia` is not read as `base`. */
const NETWORKS = Object.keys(NETWORK_NAMES).sort((a, b) => b.length - a.length);
const ON_NETWORK = new RegExp(
  String.raw`\b(?:on|over|via|auf|through)\s+(?:the\s+)?(${NETWORKS.map((name) => name.replaceAll("-", "[- ]")).join("|")})\b(?:\s+(?:network|chain|mainnet))?`,
  "iu",
);

/** Reads a query as people write it: the conditions on price, network and order in it, and the remaining words. */
export function readQuestion(q: string): Question {
  let rest = q;
  const takeMatch = (pattern: RegExp): RegExpExecArray | null => {
    const found = pattern.exec(rest);
    if (found) rest = `${rest.slice(0, found.index)} , ${rest.slice(found.index + found[0].length)}`;
    return found;
  };
  const price = MAX_PRICE.exec(rest);
  const maxPrice = price && priceOf(price);
  if (maxPrice) takeMatch(MAX_PRICE);
  const network = takeMatch(ON_NETWORK)?.[1]?.toLowerCase().replaceAll(" ", "-") ?? null;
  const lowestPhrase = takeMatch(LOWEST)?.[0];
  let order: SortOrder | null = lowestPhrase === undefined ? null : /latency/i.test(lowestPhrase) ? "latency" : "price";
  const words: SpelledWord[] = [];
  for (const one of splitWords(rest, MAX_WORDS_READ)) {
    if (Object.hasOwn(ORDER_WORDS, one.word)) order ??= ORDER_WORDS[one.word]!;
    else if (!STOP_WORDS.has(one.word)) words.push(one);
  }
  return { words, order, maxPrice, network };
}

/**
 * Returns the highest price that a match of {@link MAX_PRICE} allows, in dollars; null for a number without a currency,
 * which could mean anything, and for a limit below which there is no price (`under $0`).
 */
function priceOf([, words, sign, dollar, number, unit]: RegExpExecArray): string | null {
  if (!dollar && !unit) return null;
  const isHalf = /^half/i.test(number!);
  const digits = isHalf ? "0.5" : (NUMBERS[number!.toLowerCase()] ?? number!);
  const [whole, fraction = ""] = digits.split(".");
  const micro = parseMoney(`${whole}.${fraction.padEnd(1, "0")}`);
  const limit = unit !== undefined && /^(?:cent|¢)/i.test(unit) ? micro / 100n : micro;
  const isExclusive = IS_BELOW.test(words ?? sign ?? "");
  const highestMicro = isExclusive ? limit - 1n : limit;
  return highestMicro < 0n ? null : formatMoney(highestMicro);
}

/**
 * Returns the networks that a CAIP-2 id or a name means; a name includes its test networks. Empty for an unknown name.
 */
export function networksOf(network: string): ReadonlySet<string> {
  if (network.includes(":")) return new Set([network]);
  const name = network.toLowerCase();
  const matching = Object.entries(NETWORK_NAMES).filter(([one]) => one === name || one.startsWith(`${name}-`));
  return new Set(matching.map(([, id]) => id));
}
