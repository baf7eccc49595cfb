import { DAY_MS, dayOf } from "../../pipelines/record/time.ts";
import { registrableDomain } from "../../pipelines/record/url.ts";
import type { Flag } from "../../pipelines/record/vocabulary.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { TheftSummary } from "../tables/thefts.ts";
import type { View } from "../tables/view.ts";

/**
 * The endpoint and the addresses for which an answer reports related endpoints, those that share a payee or a domain.
 */
export interface RelatedSubject {
  /** Capability id; null for a url that is not in the record. */
  cap: string | null;
  /** Null when the url is unknown, as for an id that is not in the record. */
  url: string | null;
  /** Addresses to which a payment would go: the client's pay_to, and those that the endpoint names now. */
  payTos: readonly string[];
  /** Flags of the endpoint's card. If `took_the_money` is among them, the card's own sentence already tells it. */
  cardFlags: readonly string[];
}

/**
 * Flags for money that the endpoint, its payee or its domain took without a delivery, and sentences about them. An
 * endpoint without a card can have them too.
 */
export interface RelatedVerdict {
  flags: Extract<Flag, "took_the_money" | "payee_took_the_money" | "domain_took_the_money">[];
  says: string[];
}

/**
 * Largest number of endpoints that one sentence names, and most payees for which {@link relatedVerdict} makes a
 * sentence each; the others are only counted.
 */
const MAX_NAMED = 2;

const joinSome = (names: readonly string[]): string => {
  const more = names.length - MAX_NAMED;
  return names.slice(0, MAX_NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
};

const TOOK_MONEY = "settled on the chain, brought nothing and were not paid back";

const whereOf = ({ caps, lastTheftMs }: TheftSummary): string =>
  `at ${joinSome(caps)}; last on ${dayOf(new Date(lastTheftMs))}`;

/**
 * Returns the verdict of a replica without volatile tables (the facts that change faster than cards), from the table
 * of related parties that is published in the log. That table has no dates, and holds only the newest address of each
 * endpoint. The flag `took_the_money` is left to the endpoint's card.
 */
function publishedVerdict({ related }: View, { cap, url, payTos }: RelatedSubject): RelatedVerdict {
  const verdict: RelatedVerdict = { flags: [], says: [] };
  for (const address of payTos) {
    const caps = related.nonDeliveringCaps({ cap, pay_to: address, domain: null });
    if (caps.length === 0) continue;
    verdict.flags.push("payee_took_the_money");
    verdict.says.push(`payments to endpoints that name ${address} ${TOOK_MONEY} (at ${joinSome(caps)})`);
  }
  const domain = url === null ? null : registrableDomain(url);
  const caps = related.nonDeliveringCaps({ cap, pay_to: null, domain });
  if (caps.length > 0) {
    verdict.flags.push("domain_took_the_money");
    verdict.says.push(`payments to endpoints of ${domain} ${TOOK_MONEY} (at ${joinSome(caps)})`);
  }
  return verdict;
}

const RELATED_FLAGS: readonly string[] = ["payee_took_the_money", "domain_took_the_money"];

/**
 * Age from which a payment that settled without an answer counts as money taken. Until then the seller may pay it
 * back (verification-method.md section 5).
 */
const REPAYMENT_MS = DAY_MS;

/**
 * Reports whether the endpoint of a volatile row kept the money of a call without an answer for a day. Payments that
 * were paid back, or that a correction withdrew, do not count.
 */
export const keptTheMoney = (row: VolatileRow | undefined, now: Date): boolean =>
  row?.unserved_since != null && row.unserved_since <= now.getTime() - REPAYMENT_MS;

/**
 * Returns a card's flags without those about taken money that do not hold any more: a card's flags are as old as the
 * card, and the payments behind them may since have been withdrawn or paid back. The flags about related parties are
 * all left out, since {@link relatedVerdict} computes them anew; a card's payee flag may also rest on an address that
 * an endpoint only names, which may belong to anybody. All flags are kept when there are no volatile tables, or only
 * tables older than the card.
 * @param leaf index of the card's leaf in the log
 */
export function ownFlags(
  view: View,
  cap: string,
  flags: readonly string[],
  leaf: number,
  now: Date,
): readonly string[] {
  if (view.volatile.madeAt === null || !view.hasRowSince(cap, leaf)) return flags;
  const isTaker = keptTheMoney(view.row(cap), now);
  return flags.filter((flag) => !RELATED_FLAGS.includes(flag) && (isTaker || flag !== "took_the_money"));
}

/**
 * Computes the flags for money that the endpoint, the payee or the domain took, from the record as of now. An
 * endpoint without a card, and a url that was never seen, can have them too. An address is flagged only for payments
 * of ours that went to it and that the chain shows as settled. Payee and domain count endpoints other than this one,
 * as in grading (verification-method.md section 7).
 */
export function relatedVerdict(view: View, subject: RelatedSubject, now: Date): RelatedVerdict {
  const { thefts, madeAt } = view.volatile;
  if (madeAt === null) return publishedVerdict(view, subject);
  const { cap, url, payTos, cardFlags } = subject;
  const verdict: RelatedVerdict = { flags: [], says: [] };
  const ownThefts = cap === null ? null : thefts.ofEndpoint(cap, now);
  if (ownThefts && !cardFlags.includes("took_the_money")) {
    verdict.flags.push("took_the_money");
    verdict.says.push(`payments to this endpoint ${TOOK_MONEY} (last on ${dayOf(new Date(ownThefts.lastTheftMs))})`);
  }
  const payees = payTos.flatMap((address) => {
    const theftSummary = thefts.ofPayee(address, cap, now);
    return theftSummary ? [{ address, taken: theftSummary }] : [];
  });
  if (payees.length > 0) {
    verdict.flags.push("payee_took_the_money");
    verdict.says.push(
      ...payees
        .slice(0, MAX_NAMED)
        .map(({ address, taken }) => `payments to ${address} ${TOOK_MONEY} (${whereOf(taken)})`),
    );
    if (payees.length > MAX_NAMED)
      verdict.says.push(`and so did those to ${payees.length - MAX_NAMED} more of its addresses`);
  }
  const domain = url === null ? null : registrableDomain(url);
  const theftSummary = domain === null ? null : thefts.ofDomain(domain, cap, now);
  if (theftSummary) {
    verdict.flags.push("domain_took_the_money");
    verdict.says.push(`payments to endpoints of ${domain} ${TOOK_MONEY} (${whereOf(theftSummary)})`);
  }
  return verdict;
}
