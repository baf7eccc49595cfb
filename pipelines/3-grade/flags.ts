import { FLAGS, type Flag } from "../record/vocabulary.ts";
import { CAP_NAMES } from "./caps.ts";
import type { Figures } from "./components.ts";
import type { KinFlags } from "./kin.ts";
import { type Grade, longAgo } from "./letter.ts";
import { AFTER, STREAKY_DEFF } from "./params.ts";
import type { Sums } from "./sums.ts";

/**
 * Conditions of one card (method, section 7), in the order in which flags are published. `held_14d` comes with the
 * hold, `records_withdrawn` and `stands_on_nothing` with an answer, so they are not decided here.
 */
export function flagsOf(grade: Grade, sums: Sums, figures: Figures, kin: KinFlags, now: number): Flag[] {
  const { caps, shown, tier } = grade;
  const bestButForTier = CAP_NAMES.every((name) => name === "by_tier" || caps[name] === 0);
  const raised: Partial<Record<Flag, boolean>> = {
    took_the_money: sums.theft !== null,
    money_pending: sums.pendingFirst !== null,
    refunded: sums.refunds > 0,
    refuses_payment: sums.signed > 0 && sums.settled === 0,
    early_fail: grade.early,
    capped_by_tier: tier === "DELIVERY_VERIFIED" && bestButForTier,
    deeper_tier_worse: caps.by_deeper > 0,
    recent_failures: caps.cusum_cap > 0,
    stale_paid: caps.by_stale > 0,
    stale: longAgo(sums.seenLast, AFTER.unseen, now) || longAgo(sums.paidLast, AFTER.unratedPaid, now),
    dark: caps.by_dark > 0,
    listing_mismatch: caps.by_mismatch > 0,
    pay_to_changed: sums.payToChanged,
    price_untested: caps.by_price > 0,
    dynamic_price: sums.dynamicPrice,
    no_schema_advertised: sums.served > 0 && !sums.parts.schema_conformance,
    no_example: sums.signed > 0 && sums.examples === 0,
    latency_unbounded: shown.latency_p95 === null,
    streaky: Object.values(shown).some((figure) => figure !== null && figure.deff >= STREAKY_DEFF),
    buyers_report_worse: sums.unconfirmed || Object.values(figures).some((figure) => figure?.below),
    blocks_prober: sums.walled,
    ...standing(sums, kin),
  };
  return FLAGS.filter((flag) => raised[flag]);
}

/** What holds of an endpoint whether or not a row of it counts. */
function standing(sums: Sums, kin: KinFlags): Partial<Record<Flag, boolean>> {
  return {
    disputed: sums.disputed,
    payee_took_the_money: kin.payee,
    domain_took_the_money: kin.domain,
  };
}

/** Flags of the card of an endpoint without a row that counts. */
export function emptyFlags(sums: Sums, kin: KinFlags): Flag[] {
  const raised = standing(sums, kin);
  return FLAGS.filter((flag) => raised[flag]);
}
