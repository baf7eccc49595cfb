import { addressKey, OTHER_DOLLAR_TOKENS, USDC } from "../../pipelines/record/networks.ts";
import { isFullyRead, type Offer, type OfferMember } from "../../pipelines/record/terms/offers.ts";
import type { CheckAnswer } from "./answers.ts";
import type { Policy } from "./policy.ts";

export type Reason =
  | "failing"
  | "below_minimum"
  | "unrated"
  | "flag"
  | "defect"
  | "price"
  | "network"
  | "asset"
  | "scheme"
  | "validity"
  | "unreadable_terms"
  | "too_many_payees"
  | "not_asked";

/** A reason against a payment, or something about it that could not be checked. */
export interface Concern {
  reason: Reason;
  /**
   * What the reason refers to: a flag, defect, band, amount, network, asset, scheme, number of seconds or of payees, a
   * fault code, or the cause why terms cannot be read.
   */
  what: string;
  /** Description, for a person. */
  says: string;
  /** Does the policy refuse the payment for this? If not, it is only a warning. */
  refuses: boolean;
}

const LETTERS = "ABCDF";

/**
 * Returns the reasons against a payment: flags, letter and defects, then the offers.
 * @param now_ms time at which the payment would be signed, unix ms
 */
export function concernsOf(answer: CheckAnswer, offers: readonly Offer[], policy: Policy, now_ms: number): Concern[] {
  return [
    ...flagConcerns(answer, policy),
    ...bandConcerns(answer, policy),
    ...defectConcerns(answer, policy),
    ...offers.flatMap((offer) => offerConcerns(answer, offer, policy, now_ms)),
  ];
}

function flagConcerns({ flags = [], why }: CheckAnswer, policy: Policy): Concern[] {
  return flags.map((flag) => {
    const refuses = policy.flags.includes(flag);
    return { reason: "flag", what: flag, says: `${flag}: ${why}`, refuses };
  });
}

function bandConcerns({ band, why }: CheckAnswer, { atLeast, unrated }: Policy): Concern[] {
  const of = (reason: Reason, refuses: boolean): Concern[] => [{ reason, what: band, says: why, refuses }];
  if (band === "UNRATED") return of("unrated", unrated === "refuse");
  if (band === "F") return of("failing", true);
  // A letter that this version does not know is refused.
  const at = band.length === 1 ? LETTERS.indexOf(band) : -1;
  return at < 0 || at > LETTERS.indexOf(atLeast) ? of("below_minimum", true) : [];
}

const defectConcerns = ({ defects }: CheckAnswer, policy: Policy): Concern[] =>
  defects.map(({ defect, says }) => {
    const refuses = policy.defects.includes(defect);
    return { reason: "defect", what: defect, says: `${defect}: ${says}`, refuses };
  });

type Advertised = NonNullable<NonNullable<CheckAnswer["observed"]>["advertised"]>;

function offerConcerns(answer: CheckAnswer, offer: Offer, policy: Policy, now_ms: number): Concern[] {
  const advertised = answer.observed?.advertised ?? null;
  return [
    schemeConcern(offer, policy),
    networkConcern(offer, advertised, policy),
    assetConcern(offer, advertised, policy),
    validityConcern(offer, policy, now_ms),
    advertised && priceConcern(answer, offer, advertised, policy),
  ].filter((concern) => concern !== null);
}

function schemeConcern(offer: Offer, policy: Policy): Concern | null {
  if (offer.scheme === null || isFullyRead(offer)) return null;
  const says = `more is signed for ${offer.scheme} than network, asset, amount, payee and time`;
  return { reason: "scheme", what: offer.scheme, says, refuses: policy.otherScheme === "refuse" };
}

function networkConcern({ network }: Offer, advertised: Advertised | null, policy: Policy): Concern | null {
  const named = advertised?.networks ?? [];
  if (network === null || named.length === 0 || named.some((one) => sameNetwork(one, network))) return null;
  const says = `the payment is on ${network}; the newest 402 names ${named.slice(0, 8).join(", ")}`;
  return { reason: "network", what: network, says, refuses: policy.otherNetwork === "refuse" };
}

function assetConcern({ asset, network }: Offer, advertised: Advertised | null, policy: Policy): Concern | null {
  if (asset === null) return null;
  if (advertised ? isSameAsset(asset, network, advertised) : isDollar(asset, network)) return null;
  const says = advertised
    ? `the payment is in ${asset}; the newest 402 names ${advertised.asset}`
    : `the payment is in ${asset}, which is no known dollar token on ${network}`;
  return { reason: "asset", what: asset, says, refuses: policy.otherAsset === "refuse" };
}

const isSameAsset = (asset: string, network: string | null, advertised: Advertised): boolean =>
  addressKey(asset) === addressKey(advertised.asset) ||
  (network !== null && isUsdc(asset, [network]) && isUsdc(advertised.asset, advertised.networks));

const isDollar = (asset: string, network: string | null): boolean =>
  network !== null &&
  (isUsdc(asset, [network]) ||
    (Object.hasOwn(OTHER_DOLLAR_TOKENS, network) && OTHER_DOLLAR_TOKENS[network]!.includes(addressKey(asset))));

function validityConcern({ validFor_s, validUntil_s }: Offer, policy: Policy, now_ms: number): Concern | null {
  const seconds = validUntil_s == null ? (validFor_s ?? 0) : Math.ceil(validUntil_s - now_ms / 1000);
  if (seconds <= policy.maxValidity_s) return null;
  const says = `the signature would be valid for ${seconds} s; at most ${policy.maxValidity_s} s are allowed`;
  return { reason: "validity", what: String(seconds), says, refuses: true };
}

/** Shortens a Solana network, which is written with its whole genesis hash or with the first 32 characters of it. */
const networkKey = (id: string): string => (id.startsWith("solana:") ? id.slice(0, 39) : id);
const sameNetwork = (a: string, b: string): boolean => networkKey(a) === networkKey(b);

/** Is this asset USDC on one of the networks? USDC has six decimals on every network of the table. */
export function isUsdc(asset: string, networks: readonly string[]): boolean {
  if (asset === "USDC") return true;
  return networks.some((network) => {
    const usdc = Object.hasOwn(USDC, networkKey(network)) ? USDC[networkKey(network)]! : null;
    return usdc !== null && addressKey(usdc) === addressKey(asset);
  });
}

function priceConcern(answer: CheckAnswer, offer: Offer, advertised: Advertised, policy: Policy): Concern | null {
  const { amount, asset, network } = offer;
  if (amount === null || asset === null || answer.flags?.includes("dynamic_price")) return null;
  // Amounts of two different tokens cannot be compared; the wallet's own limits apply to them.
  if (!isSameAsset(asset, network, advertised)) return null;
  const was = microOf(advertised.amount);
  if (was === null || amount <= was) return null;
  const rise = Math.round(policy.priceRise * 1000);
  const refuses = rise !== Infinity && amount * 1000n > was * BigInt(rise);
  const says = `the payment is ${amount} millionths; the newest 402 asked ${advertised.amount}`;
  return { reason: "price", what: String(amount), says, refuses };
}

/** Parses an amount of money as the service writes it, such as `0.050000`, into millionths; null for any other text. */
export function microOf(money: string): bigint | null {
  const found = /^(\d{1,30})\.(\d{1,6})$/.exec(money);
  return found ? BigInt(found[1]!) * 1_000_000n + BigInt(found[2]!.padEnd(6, "0")) : null;
}

/**
 * Returns the members of an offer that could not be read, for which it is not known what would be signed: the members
 * that `unread` of the offer lists; without `unread`, those of network, asset, amount and payTo that are null.
 */
export function unreadIn({ unread, ...offer }: Offer): readonly OfferMember[] {
  const members = ["network", "asset", "amount", "payTo"] as const;
  return unread ?? members.filter((name) => offer[name] === null);
}
