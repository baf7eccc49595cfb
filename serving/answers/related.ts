import { dayOf } from "../../pipelines/record/time.ts";
import { registrableDomain } from "../../pipelines/record/url.ts";
import type { Flag } from "../../pipelines/record/vocabulary.ts";
import type { TheftSummary } from "../tables/thefts.ts";
import type { View } from "../tables/view.ts";

/** The endpoint and addresses that an answer is about. */
export interface Related {
  /** null for a url that is not in the record. */
  cap: string | null;
  /** null where none is known: an id that is not in the record. */
  url: string | null;
  /** Addresses to which a payment would go: the client's pay_to, and those that the endpoint names now. */
  payTos: readonly string[];
  /** Flags of its card; the card's sentence tells what the endpoint itself did. */
  card: readonly string[];
}

/** Flags about money taken by the endpoint, its payee or its domain, which need no card; and sentences about them. */
export interface RelatedVerdict {
  flags: Extract<Flag, "took_the_money" | "payee_took_the_money" | "domain_took_the_money">[];
  says: string[];
}

/** Most endpoints, and most addresses, that one sentence names. */
const NAMED = 2;

const someOf = (names: readonly string[]): string => {
  const more = names.length - NAMED;
  return names.slice(0, NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
};

const NOTHING = "settled on the chain, brought nothing and were not paid back";

const whereOf = ({ caps, last }: TheftSummary): string => `at ${someOf(caps)}; last on ${dayOf(new Date(last))}`;

/**
 * The verdict of a replica that has no live tables, from the table in the leaves, which has no days and holds the
 * address that each endpoint named last. The card tells what the endpoint itself did.
 */
function publishedVerdict({ related }: View, { cap, url, payTos }: Related): RelatedVerdict {
  const verdict: RelatedVerdict = { flags: [], says: [] };
  for (const address of payTos) {
    const caps = related.thieves({ cap, pay_to: address, domain: null });
    if (caps.length === 0) continue;
    verdict.flags.push("payee_took_the_money");
    verdict.says.push(`payments to endpoints that name ${address} ${NOTHING} (at ${someOf(caps)})`);
  }
  const domain = url === null ? null : registrableDomain(url);
  const caps = related.thieves({ cap, pay_to: null, domain });
  if (caps.length > 0) {
    verdict.flags.push("domain_took_the_money");
    verdict.says.push(`payments to endpoints of ${domain} ${NOTHING} (at ${someOf(caps)})`);
  }
  return verdict;
}

const OF_OTHERS: readonly string[] = ["payee_took_the_money", "domain_took_the_money"];

/**
 * A card's flags without those of related parties, where {@link relatedVerdict} computes these anew: a card's flags are
 * as old as the card, and the payments behind them may have been withdrawn or paid back since. A card's payee flag may
 * also come from an address that another endpoint names now, which may be anybody's. They stay where there are no live
 * tables, or older ones than the card.
 * @param leaf log position of the card
 */
export function ownFlags(view: View, cap: string, flags: readonly string[], leaf: number): readonly string[] {
  const { madeAt, treeSize } = view.volatile;
  const isTold = view.row(cap) !== undefined && madeAt !== null && leaf < treeSize;
  return isTold ? flags.filter((flag) => !OF_OTHERS.includes(flag)) : flags;
}

/**
 * Flags of money taken by the endpoint, the payee or the domain, computed from the record as of now. They need no card,
 * so every url can have them, also one that was never seen. An address is flagged only for what it did itself: payments
 * of ours that went to it and that the chain shows as settled. Payee and domain count other endpoints than this one, as
 * in grading (verification-method.md section 7).
 */
export function relatedVerdict(view: View, about: Related, now: Date): RelatedVerdict {
  const { thefts, madeAt } = view.volatile;
  if (madeAt === null) return publishedVerdict(view, about);
  const { cap, url, payTos, card } = about;
  const verdict: RelatedVerdict = { flags: [], says: [] };
  const own = cap === null ? null : thefts.own(cap, now);
  if (own && !card.includes("took_the_money")) {
    verdict.flags.push("took_the_money");
    verdict.says.push(`payments to this endpoint ${NOTHING} (last on ${dayOf(new Date(own.last))})`);
  }
  const payees = payTos.flatMap((address) => {
    const taken = thefts.ofPayee(address, cap, now);
    return taken ? [{ address, taken }] : [];
  });
  if (payees.length > 0) {
    verdict.flags.push("payee_took_the_money");
    verdict.says.push(
      ...payees.slice(0, NAMED).map(({ address, taken }) => `payments to ${address} ${NOTHING} (${whereOf(taken)})`),
    );
    if (payees.length > NAMED) verdict.says.push(`and so did those to ${payees.length - NAMED} more of its addresses`);
  }
  const domain = url === null ? null : registrableDomain(url);
  const taken = domain === null ? null : thefts.ofDomain(domain, cap, now);
  if (taken) {
    verdict.flags.push("domain_took_the_money");
    verdict.says.push(`payments to endpoints of ${domain} ${NOTHING} (${whereOf(taken)})`);
  }
  return verdict;
}
