import { addressKey } from "../../pipelines/record/networks.ts";
import type { Offer } from "../../pipelines/record/terms/offers.ts";
import type { CheckAnswer } from "./answers.ts";
import { isPayTo, type Service } from "./ask.ts";
import { type Concern, concernsOf, type Reason, unreadIn } from "./concerns.ts";
import type { Demand } from "./demands.ts";
import { type FaultCode, ServiceFault } from "./http.ts";
import { DEFAULT_POLICY, type Policy, policyOf } from "./policy.ts";

/**
 * Decision of a guard on one payment. `refused`: the policy does not accept the seller or the terms. `not_asked`: there
 * is no valid answer of the service, so nothing is known about the seller, and `allow` follows the policy's `notAsked`.
 */
export interface Decision {
  allow: boolean;
  outcome: "allowed" | "refused" | "not_asked";
  /** Reason of the first concern that refuses the payment; null if none does. */
  reason: Reason | null;
  /** The reason, for a person. */
  says: string;
  concerns: Concern[];
  /** The signed answer, to be stored with the payment; null if there is none. */
  answer: CheckAnswer | null;
  /** Why there is no valid answer of the service; null if there is one, or if the service was not asked. */
  fault: FaultCode | null;
}

/** Decides on a payment before it is signed. */
export type Guard = (demand: Demand) => Promise<Decision>;

/** Thrown when a payment is refused, before it is signed. */
export class PaymentRefused extends Error {
  constructor(readonly decision: Decision) {
    super(decision.says);
    this.name = "PaymentRefused";
  }
}

/** Largest number of payee addresses in one 402. The guard sends one request to the service for each. */
export const MAX_PAYEES = 4;

/**
 * Returns a guard, which asks the service before each payment and decides. The guard refuses without asking if it
 * cannot read everything that would be signed for an offer, or if the offers name more than {@link MAX_PAYEES} payees.
 * @param policy the differences from {@link DEFAULT_POLICY}
 * @param now the wallet's clock, unix ms
 */
export function guard(
  service: Pick<Service, "check">,
  policy: Partial<Policy> = {},
  now: () => number = Date.now,
): Guard {
  const all = policyOf(policy);
  return async (demand) => {
    const unread = demand.offers.find((offer) => unreadIn(offer).length > 0);
    if (unread) return unreadable(`an offer has members that cannot be read: ${unreadIn(unread).join(", ")}`);
    const payees = payeesOf(demand.offers);
    if (payees.length > MAX_PAYEES) return tooMany(payees.length);
    const method = demand.method === "GET" || demand.method === "POST" ? demand.method : undefined;
    const decisions = await Promise.all(
      payees.map(async ({ payTo, offers }) => {
        try {
          const answer = await service.check({ url: demand.url, method, payTo });
          return decide(answer, offers, all, now());
        } catch (error) {
          if (error instanceof ServiceFault) return notAsked(error, all);
          throw error;
        }
      }),
    );
    const first = (outcome: Decision["outcome"]) => decisions.find((one) => one.outcome === outcome);
    return first("refused") ?? first("not_asked") ?? decisions[0]!;
  };
}

interface PayeeOffers {
  payTo: string | undefined;
  offers: Offer[];
}

/** Groups the offers by payee. Offers whose address the service does not accept are one group without an address. */
function payeesOf(offers: readonly Offer[]): PayeeOffers[] {
  const payees = new Map<string, PayeeOffers>();
  for (const offer of offers) {
    const payTo = offer.payTo !== null && isPayTo(offer.payTo) ? offer.payTo : undefined;
    const key = payTo === undefined ? "" : addressKey(payTo);
    const group = payees.get(key);
    if (group) group.offers.push(offer);
    else payees.set(key, { payTo, offers: [offer] });
  }
  return payees.size === 0 ? [{ payTo: undefined, offers: [] }] : [...payees.values()];
}

/**
 * Decides on a payment by a policy, from the service's answer and the offers of a demand. A pure function.
 * @param now_ms time at which the payment would be signed, unix ms; default: the time of the answer
 */
export function decide(
  answer: CheckAnswer,
  offers: readonly Offer[],
  policy: Policy = DEFAULT_POLICY,
  now_ms: number = Date.parse(answer.answered_at),
): Decision {
  const concerns = concernsOf(answer, offers, policy, now_ms);
  const refusing = concerns.find(({ refuses }) => refuses);
  const common = { concerns, answer, fault: null };
  if (refusing) return { allow: false, outcome: "refused", reason: refusing.reason, says: refusing.says, ...common };
  return { allow: true, outcome: "allowed", reason: null, says: answer.why, ...common };
}

const decisionOf = (
  outcome: Decision["outcome"],
  allow: boolean,
  concern: Concern,
  fault: FaultCode | null,
): Decision => ({
  ...{ allow, outcome, fault, answer: null },
  ...{ reason: allow ? null : concern.reason, says: concern.says, concerns: [concern] },
});

function notAsked({ code, says }: ServiceFault, policy: Policy): Decision {
  const refuses = policy.notAsked === "refuse";
  const concern: Concern = { reason: "not_asked", what: code, says: `not checked (${code}): ${says}`, refuses };
  return decisionOf("not_asked", !refuses, concern, code);
}

function tooMany(count: number): Decision {
  const says = `the 402 names ${count} payout addresses, more than the ${MAX_PAYEES} that are checked`;
  return decisionOf("refused", false, { reason: "too_many_payees", what: String(count), says, refuses: true }, null);
}

/** Returns a refusal of terms that cannot be read. @param why the reason, for a person */
export const unreadable = (why: string): Decision => {
  const says = `payee and amount of the payment are not known: ${why}`;
  return decisionOf("refused", false, { reason: "unreadable_terms", what: why, says, refuses: true }, null);
};
