import { dayOf } from "../../pipelines/record/time.ts";
import { registrableDomain } from "../../pipelines/record/url.ts";
import type { Flag } from "../../pipelines/record/vocabulary.ts";
import type { Taken } from "../tables/thefts.ts";
import type { View } from "../tables/view.ts";

/** Of whom an answer is. */
export interface Related {
  /** null for a url that is not in the record. */
  cap: string | null;
  /** null where none is known: an id that is not in the record. */
  url: string | null;
  /** Addresses that a payment would go to, as far as anybody says: the one in hand, and those that the endpoint names now. */
  payTos: readonly string[];
  /** Flags of its card, whose sentence says what the endpoint itself did. */
  card: readonly string[];
}

/** What is known of an endpoint, its payee and its domain beside any card, and the same in words. */
export interface RelatedVerdict {
  flags: Extract<Flag, "took_the_money" | "payee_took_the_money" | "domain_took_the_money">[];
  says: string[];
}

/** Endpoints, and addresses, that are named in one sentence. */
const NAMED = 2;

const someOf = (names: readonly string[]): string => {
  const more = names.length - NAMED;
  return names.slice(0, NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
};

const NOTHING = "settled on the chain, brought nothing and were not paid back";

const whereOf = ({ caps, last }: Taken): string => `at ${someOf(caps)}; last on ${dayOf(new Date(last))}`;

const OF_OTHERS: readonly string[] = ["payee_took_the_money", "domain_took_the_money"];

/**
 * Flags of a card without those of related parties, wherever {@link relatedVerdict} says them anew: a card's are as old as it
 * is, and what they stand on may have been withdrawn or paid back since. A card's payee flag also speaks of the address that
 * another endpoint names now, which may be anybody's. Without live tables, or with ones older than the card, they stay.
 * @param leaf log position of the card
 */
export function ownFlags(view: View, cap: string, flags: readonly string[], leaf: number): readonly string[] {
  const { madeAt, treeSize } = view.volatile;
  const isTold = view.row(cap) !== undefined && madeAt !== null && leaf < treeSize;
  return isTold ? flags.filter((flag) => !OF_OTHERS.includes(flag)) : flags;
}

/**
 * Flags of money taken by the endpoint, the payee or the domain, from the record of this moment: they need no card, so they
 * are said of every url alike, also of one that was never seen. Of an address only what that address did is said: payments
 * of ours that it had, and that the chain shows as settled. Another endpoint is meant by payee and domain, as in grading
 * (verification-method.md section 7).
 */
export function relatedVerdict(view: View, { cap, url, payTos, card }: Related, now: Date): RelatedVerdict {
  const { thefts } = view.volatile;
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
