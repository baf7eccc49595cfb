import { FLAGS, type Flag } from "../../pipelines/record/vocabulary.ts";

/** Each flag of grading-method.md section 7 in one sentence for people. */
export const FLAG_WORDS: Record<Flag, string> = {
  took_the_money:
    "A paid call of ours settled on the chain and nothing came back, also not when the proof was shown again.",
  money_pending: "A paid call settled and nothing came yet; it counts as taken money once a day has passed.",
  refunded: "A paid call that delivered nothing was paid back.",
  refuses_payment: "Payments were offered and none of ours ever settled here in the window, so no letter can be given.",
  early_fail: "So few paid calls succeeded that the failing letter is given before 30 of them were made.",
  capped_by_tier:
    "Answers were delivered but could not be checked against a known truth, which keeps the letter at B or below.",
  deeper_tier_worse: "Of the answers that could be checked against a truth, too few were right for a better letter.",
  recent_failures: "The newest paid calls failed in a row more often than such a letter allows.",
  held_14d: "The calls of today would earn a better letter, but a letter rises only after 14 clean days.",
  stale_paid: "The newest paid call is more than 30 days old.",
  stale: "The newest paid call is too old for a letter, or nothing was seen for 30 days.",
  dark: "It has not answered for 72 hours.",
  listing_mismatch: "Its newest 402 asks for something else than the seller's own listing says.",
  pay_to_changed: "The address that is to be paid changed within the window.",
  price_untested: "It asks more than twice what we ever paid here, so the price of today is untested.",
  dynamic_price: "It named more than three different prices on one day.",
  no_schema_advertised: "It advertises no schema for its answers, so that part adds nothing and an A is out of reach.",
  no_example: "It publishes no example and no known-answer input fits: its inputs were made up from its schema.",
  latency_unbounded: "There are too few timed calls yet to bound how slow it can be.",
  streaky: "Bad spells come in runs, so each sample counts for less than one.",
  buyers_report_worse: "Buyers published calls that went worse than ours; we look again with fresh wallets.",
  blocks_prober: "It turned our knocks away (403, 429 or a bot wall) more often than is excused.",
  disputed: "The seller disputes a record; the figures stay until a correction names a fault of ours.",
  records_withdrawn: "A fifth or more of the records behind the grade were withdrawn since, so no letter is shown.",
  stands_on_nothing: "Every record behind the grade was withdrawn.",
  payee_took_the_money: "Another endpoint that pays the same address took money and delivered nothing.",
  domain_took_the_money: "Another endpoint of the same registrable domain took money and delivered nothing.",
};

/** A flag in words; one of a later version stays a name. */
export const flagWords = (flag: string): string =>
  (FLAGS as readonly string[]).includes(flag)
    ? FLAG_WORDS[flag as Flag]
    : "A condition on the grade that this page has no words for yet.";
