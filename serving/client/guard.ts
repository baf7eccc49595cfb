import { addressKey, USDC } from "../../pipelines/record/networks.ts";
import type { Letter } from "../../pipelines/record/vocabulary.ts";
import type { CheckAnswer } from "../schemas/check.ts";
import { isPayTo, type Service } from "./ask.ts";
import { type FaultCode, ServiceFault } from "./http.ts";
import type { Demand, Offer } from "./terms.ts";

/** What a buyer refuses to pay. All that is left out is as in {@link DEFAULT_POLICY}. */
export interface Policy {
  /** The lowest letter that is paid. */
  atLeast: Exclude<Letter, "F">;
  /** UNRATED means unknown, not bad. */
  unrated: "pay" | "refuse";
  /**
   * What to do where the service could not be asked, or its answer not be believed. `refuse`: whoever can keep the answer
   * away, or spoil it, must not thereby have the guard open; it costs the payments of the time in which the service is down,
   * and the caller is told apart, so that it can try again. `pay`: where a missed payment costs more than a bad one.
   */
  notAsked: "pay" | "refuse";
  /** Flags of the answer that are refused. */
  flags: readonly string[];
  /** Defects of the listing that are refused: those with which money goes astray, or buys something else. */
  defects: readonly string[];
  /** How many times what its newest 402 asked a payment may be; not held against prices that are known to be dynamic. */
  priceRise: number;
  /** An offer on a network that its newest 402 does not name. */
  otherNetwork: "pay" | "refuse";
}

/** Refuses what is shown failing, and what another than the seller that is known would be paid; pays what is unknown. */
export const DEFAULT_POLICY: Readonly<Policy> = {
  atLeast: "D",
  unrated: "pay",
  notAsked: "refuse",
  flags: ["pay_to_unknown", "pay_to_differs", "took_the_money", "payee_took_the_money", "listing_mismatch"],
  defects: [
    "malformed_terms",
    "no_terms",
    "no_payable_entry",
    "bad_amount",
    "bad_pay_to",
    "bad_asset",
    "resource_differs",
    "both_amounts",
    "price_differs",
    "pay_to_differs",
    "network_differs",
    "asset_differs",
  ],
  priceRise: 2,
  otherNetwork: "refuse",
};

export type Reason =
  | "failing"
  | "below_minimum"
  | "unrated"
  | "flag"
  | "defect"
  | "price"
  | "network"
  | "unreadable_terms"
  | "too_many_payees"
  | "not_asked";

/** Something that speaks against a payment, or was not held against the record. */
export interface Concern {
  reason: Reason;
  /** The flag, defect, band, amount or network. */
  what: string;
  says: string;
  refuses: boolean;
}

/**
 * May this payment be signed? `refused` is said of the seller, `not_asked` of nobody: what then happens is the policy's
 * `notAsked`, and stands in `allow`.
 */
export interface Decision {
  allow: boolean;
  outcome: "allowed" | "refused" | "not_asked";
  /** The first of the concerns that refuses; null where none does. */
  reason: Reason | null;
  /** For a person. */
  says: string;
  concerns: Concern[];
  /** Signed: worth keeping beside the payment. Null where there is none. */
  answer: CheckAnswer | null;
  /** Why the service was not asked. */
  fault: FaultCode | null;
}

export type Guard = (demand: Demand) => Promise<Decision>;

/** A payment was not signed. */
export class PaymentRefused extends Error {
  constructor(readonly decision: Decision) {
    super(decision.says);
    this.name = "PaymentRefused";
  }
}

const LETTERS = "ABCDF";
/** Addresses of one 402 that are asked about. */
const MAX_PAYEES = 4;

/** The guard: asks the service before each payment, and decides. @param policy what differs from {@link DEFAULT_POLICY} */
export function guard(service: Pick<Service, "check">, policy: Partial<Policy> = {}): Guard {
  const all = policyOf(policy);
  return async (demand) => {
    const payees = payeesOf(demand.offers);
    if (payees.length > MAX_PAYEES) return tooMany(payees.length);
    const method = demand.method === "GET" || demand.method === "POST" ? demand.method : undefined;
    const decisions = await Promise.all(
      payees.map(async ({ payTo, offers }) => {
        try {
          const answer = await service.check({ url: demand.url, method, payTo });
          return decide(answer, offers, all);
        } catch (error) {
          if (error instanceof ServiceFault) return notAsked(error, all);
          throw error;
        }
      }),
    );
    const worst = (outcome: Decision["outcome"]) => decisions.find((one) => one.outcome === outcome);
    return worst("refused") ?? worst("not_asked") ?? decisions[0]!;
  };
}

/** @throws TypeError for a policy that says nothing, or the opposite of what is meant */
function policyOf(policy: Partial<Policy>): Policy {
  const given = Object.fromEntries(Object.entries(policy).filter(([, value]) => value !== undefined));
  const unknown = Object.keys(given).filter((name) => !Object.hasOwn(DEFAULT_POLICY, name));
  if (unknown.length > 0) throw new TypeError(`no such part of a policy: ${unknown.join(", ")}`);
  const all: Policy = { ...DEFAULT_POLICY, ...given };
  const words = [all.unrated, all.notAsked, all.otherNetwork];
  if (!words.every((word) => word === "pay" || word === "refuse"))
    throw new TypeError('a policy says "pay" or "refuse"');
  if (!/^[A-D]$/.test(all.atLeast)) throw new TypeError("atLeast is A, B, C or D");
  if (!(all.priceRise >= 1)) throw new TypeError("priceRise is 1 or more");
  return all;
}

interface PayeeOffers {
  payTo: string | undefined;
  offers: Offer[];
}

/** Offers by the address that they pay; those whose address the service does not take stand under none. */
function payeesOf(offers: readonly Offer[]): PayeeOffers[] {
  const payees = new Map<string, PayeeOffers>();
  for (const offer of offers) {
    const payTo = offer.payTo !== null && isPayTo(offer.payTo) ? offer.payTo : undefined;
    const key = payTo === undefined ? "" : addressKey(payTo);
    const known = payees.get(key);
    if (known) known.offers.push(offer);
    else payees.set(key, { payTo, offers: [offer] });
  }
  return payees.size === 0 ? [{ payTo: undefined, offers: [] }] : [...payees.values()];
}

/** Hold an answer, and the offers in hand, against a policy: pure, and the same wherever it runs. */
export function decide(answer: CheckAnswer, offers: readonly Offer[], policy: Policy = DEFAULT_POLICY): Decision {
  const concerns = [
    ...flagConcerns(answer, policy),
    ...bandConcerns(answer, policy),
    ...defectConcerns(answer, policy),
    ...offers.flatMap((offer) => offerConcerns(answer, offer, policy)),
  ];
  const refusing = concerns.find(({ refuses }) => refuses);
  const common = { concerns, answer, fault: null };
  if (refusing) return { allow: false, outcome: "refused", reason: refusing.reason, says: refusing.says, ...common };
  return { allow: true, outcome: "allowed", reason: null, says: answer.why, ...common };
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
  // A letter that we do not know is none that is good enough.
  const at = LETTERS.indexOf(band);
  return at < 0 || at > LETTERS.indexOf(atLeast) ? of("below_minimum", true) : [];
}

const defectConcerns = ({ defects }: CheckAnswer, policy: Policy): Concern[] =>
  defects.map(({ defect, says }) => {
    const refuses = policy.defects.includes(defect);
    return { reason: "defect", what: defect, says: `${defect}: ${says}`, refuses };
  });

function offerConcerns(answer: CheckAnswer, offer: Offer, policy: Policy): Concern[] {
  const advertised = answer.observed?.advertised;
  if (!advertised) return [];
  const concerns: Concern[] = [];
  const { network } = offer;
  if (
    network !== null &&
    advertised.networks.length > 0 &&
    !advertised.networks.some((one) => sameNetwork(one, network))
  ) {
    const says = `the payment is on ${network}; its newest 402 names ${advertised.networks.slice(0, 8).join(", ")}`;
    concerns.push({ reason: "network", what: network, says, refuses: policy.otherNetwork === "refuse" });
  }
  const price = priceConcern(answer, offer, advertised, policy);
  return price ? [...concerns, price] : concerns;
}

/** A network of Solana may be written with its whole genesis hash or the first 32 characters of it. */
const networkKey = (id: string): string => (id.startsWith("solana:") ? id.slice(0, 39) : id);
const sameNetwork = (a: string, b: string): boolean => networkKey(a) === networkKey(b);

/** USDC, which has six decimals wherever its contract is known to us. */
export function isUsdc(asset: string, networks: readonly string[]): boolean {
  if (asset === "USDC") return true;
  return networks.some((network) => {
    const usdc = Object.hasOwn(USDC, networkKey(network)) ? USDC[networkKey(network)]! : null;
    return usdc !== null && addressKey(usdc) === addressKey(asset);
  });
}

type Advertised = NonNullable<NonNullable<CheckAnswer["observed"]>["advertised"]>;

function priceConcern(answer: CheckAnswer, offer: Offer, advertised: Advertised, policy: Policy): Concern | null {
  const { amount, asset, network } = offer;
  if (amount === null || asset === null || answer.flags?.includes("dynamic_price")) return null;
  const isSame = addressKey(asset) === addressKey(advertised.asset);
  const bothUsdc = network !== null && isUsdc(asset, [network]) && isUsdc(advertised.asset, advertised.networks);
  // Amounts of tokens whose worth is not known are not held against each other: the wallet's own limits are for that.
  if (!isSame && !bothUsdc) return null;
  const was = microOf(advertised.amount);
  if (was === null || amount <= was) return null;
  const refuses = amount * 1000n > was * BigInt(Math.round(policy.priceRise * 1000));
  const says = `the payment is ${amount} millionths; its newest 402 asked ${advertised.amount}`;
  return { reason: "price", what: String(amount), says, refuses };
}

/** Millionths of a money string (interface, "money"); null for what is none. */
export function microOf(money: string): bigint | null {
  const found = /^(\d{1,30})\.(\d{1,6})$/.exec(money);
  return found ? BigInt(found[1]!) * 1_000_000n + BigInt(found[2]!.padEnd(6, "0")) : null;
}

const alone = (outcome: Decision["outcome"], allow: boolean, concern: Concern, fault: FaultCode | null): Decision => ({
  ...{ allow, outcome, fault, answer: null },
  ...{ reason: allow ? null : concern.reason, says: concern.says, concerns: [concern] },
});

function notAsked({ code, says }: ServiceFault, policy: Policy): Decision {
  const refuses = policy.notAsked === "refuse";
  const concern: Concern = { reason: "not_asked", what: code, says: `not checked (${code}): ${says}`, refuses };
  return alone("not_asked", !refuses, concern, code);
}

function tooMany(count: number): Decision {
  const says = `the 402 names ${count} payout addresses: more than ${MAX_PAYEES} are not asked about`;
  return alone("refused", false, { reason: "too_many_payees", what: String(count), says, refuses: true }, null);
}

/** Terms that a guard cannot read are none that it can speak for. */
export const unreadable = (): Decision => {
  const says = "the 402 carries terms that cannot be read, so whom it pays is not known";
  return alone("refused", false, { reason: "unreadable_terms", what: "402", says, refuses: true }, null);
};
