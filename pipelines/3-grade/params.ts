import { params } from "./params-file.ts";

export { PARAMS_SHA256, params, readParams } from "./params-file.ts";

/** Reads the number out of a rule that the file states as text, such as "floor(m/20)". */
function parseRule(rule: string | undefined, form: RegExp): number {
  const digits = form.exec(rule ?? "")?.[1];
  if (digits === undefined) throw new Error(`grading-params.json: "${rule}" is not of the form ${form}`);
  return Number(digits);
}

const SECOND_MS = 1_000;
const HOUR_MS = 3_600_000;
export const DAY_MS = 86_400_000;
export const BLOCK_MS = params.block_seconds * SECOND_MS;

const [dark, stalePaid, unratedPaid, unseen, pending, freshTheft] = params.publish.due;
/**
 * Delays after which a card changes even without a new observation, ms. Each counts from the time that its rule names
 * first; `dark`, for example, from the last good answer to a probe (`live_last`).
 */
export const CHANGE_DELAYS_MS = {
  dark: parseRule(dark, /^live_last \+ (\d+) h$/) * HOUR_MS,
  stalePaid: parseRule(stalePaid, /^paid_last \+ (\d+) d$/) * DAY_MS,
  unratedPaid: parseRule(unratedPaid, /^paid_last \+ (\d+) d$/) * DAY_MS,
  unseen: parseRule(unseen, /^seen_last \+ (\d+) d$/) * DAY_MS,
  pendingTheft: parseRule(pending, /^pending theft \+ (\d+) h$/) * HOUR_MS,
  freshTheft: parseRule(freshTheft, /^took_the_money \+ (\d+) d$/) * DAY_MS,
} as const;

/**
 * Time after the end of a paid call, ms, in which the answer to a further request with the same payment proof still
 * counts as delivered.
 */
export const REPEATED_PROOF_WINDOW_MS = params.samples.proof_shown_again_within_s * SECOND_MS;
/** One block in this many may be excused for a wall (a bot check, 403 or 429). */
export const BLOCKS_PER_EXCUSED_WALL = parseRule(params.samples.wall_excused_blocks, /^floor\(m\/(\d+)\)$/);
/** Least weight of the outcome checks, in blocks, at which the OUTCOME_VERIFIED card is the headline card. */
export const HEADLINE_OUTCOME_WEIGHT = parseRule(params.headline_tier.OUTCOME_VERIFIED, /^W >= (\d+)$/);
/** Sum at which the CUSUM test (letter.ts) denies a letter. */
export const CUSUM_LIMIT = Math.log(parseRule(params.cusum.h, /^ln (\d+)$/));

/** The percentile that the latency component measures (`latency_p95` in the interface). */
export const PERCENTILE = 0.95;
/** A block with a lower value is bad (verification-method.md section 2). */
export const BAD_BLOCK_BELOW = 0.5;
/** A part whose design effect is at least this is streaky (verification-method.md section 7). */
export const STREAKY_DEFF = 2;
/** An endpoint that asks more different prices than this in one UTC day has a dynamic price. */
export const MAX_PRICES_A_DAY = 3;
/** Largest number of evidence hashes on a card (records.md, card fields). */
export const EVIDENCE_ROWS = 5;

/**
 * Start of the window of samples: Monday 00:00 UTC of the week that contains now - 84 days. So the window has 84 to 91
 * days and moves once a week.
 */
export function windowStart(now: Date): Date {
  const earliest = new Date(now.getTime() - params.window.days_min * DAY_MS);
  const sinceMonday = (earliest.getUTCDay() + 6) % 7;
  return new Date(Date.UTC(earliest.getUTCFullYear(), earliest.getUTCMonth(), earliest.getUTCDate() - sinceMonday));
}

/** The moment at which the window moves next: the first Monday 00:00 UTC after `now`. */
export function nextMonday(now: Date): Date {
  const sinceMonday = (now.getUTCDay() + 6) % 7;
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() - sinceMonday + 7));
}
