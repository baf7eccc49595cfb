import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

type ParamsFile = typeof import("./grading-params.json");

/** sha256 of the published grading-params.json. A run names it, so nobody can grade under other numbers unseen. */
export const PARAMS_SHA256 = "355f7eec67c4c0574da6e4c19e864f5ce34d51c97f63ef9e74c8dafde8814500";

/**
 * The parameters of svc-grade-1, from the bytes of the published file.
 * @throws Error when they are not those bytes: better no grade than one under unknown numbers.
 */
export function readParams(json: string): ParamsFile {
  const found = createHash("sha256").update(json).digest("hex");
  if (found !== PARAMS_SHA256) throw new Error(`grading-params.json is ${found}, the method needs ${PARAMS_SHA256}`);
  return JSON.parse(json) as ParamsFile;
}

/** Every number of the method. Nothing else in this folder or in sql/ writes one of them a second time. */
export const params = readParams(readFileSync(new URL("./grading-params.json", import.meta.url), "utf8"));

/** The number in a rule that the file writes as text, such as "floor(m/20)". */
function inRule(rule: string | undefined, form: RegExp): number {
  const found = form.exec(rule ?? "")?.[1];
  if (found === undefined) throw new Error(`grading-params.json: "${rule}" is not of the form ${form}`);
  return Number(found);
}

const SECOND_MS = 1_000;
const HOUR_MS = 3_600_000;
export const DAY_MS = 86_400_000;
export const BLOCK_MS = params.block_seconds * SECOND_MS;

const [dark, stalePaid, unratedPaid, unseen, pending, freshTheft] = params.publish.due;
/** How long after a fact the card changes by time alone, in ms. */
export const AFTER = {
  dark: inRule(dark, /^live_last \+ (\d+) h$/) * HOUR_MS,
  stalePaid: inRule(stalePaid, /^paid_last \+ (\d+) d$/) * DAY_MS,
  unratedPaid: inRule(unratedPaid, /^paid_last \+ (\d+) d$/) * DAY_MS,
  unseen: inRule(unseen, /^seen_last \+ (\d+) d$/) * DAY_MS,
  pendingTheft: inRule(pending, /^pending theft \+ (\d+) h$/) * HOUR_MS,
  freshTheft: inRule(freshTheft, /^took_the_money \+ (\d+) d$/) * DAY_MS,
} as const;

/** What came of a proof that was shown again counts this long after the first try ended, ms. */
export const SHOWN_AGAIN_MS = params.samples.proof_shown_again_within_s * SECOND_MS;
/** One block in so many may be excused for a wall. */
export const WALL_ONE_IN = inRule(params.samples.wall_excused_blocks, /^floor\(m\/(\d+)\)$/);
/** Weight from which on the OUTCOME card is the headline. */
export const HEADLINE_OUTCOME_W = inRule(params.headline_tier.OUTCOME_VERIFIED, /^W >= (\d+)$/);
/** Level at which the CUSUM takes a letter away. */
export const CUSUM_H = Math.log(inRule(params.cusum.h, /^ln (\d+)$/));

/** The percentile that the latency part is about (its name in the interface is latency_p95). */
export const PERCENTILE = 0.95;
/** A block is bad below this (method, section 2); a deff from this on is streaky (section 7). */
export const BAD_BELOW = 0.5;
export const STREAKY_DEFF = 2;
/** More different quotes in one UTC day make a dynamic price; evidence hashes on a card (records.md, card fields). */
export const QUOTES_A_DAY = 3;
export const EVIDENCE_ROWS = 5;

/** Monday 00:00 UTC of the week that holds now - 84 d: a window of 84 to 91 days that moves once a week. */
export function windowStart(now: Date): Date {
  const back = new Date(now.getTime() - params.window.days_min * DAY_MS);
  const sinceMonday = (back.getUTCDay() + 6) % 7;
  return new Date(Date.UTC(back.getUTCFullYear(), back.getUTCMonth(), back.getUTCDate() - sinceMonday));
}

/** The moment at which the window moves next: the coming Monday 00:00 UTC, strictly ahead. */
export function nextMonday(now: Date): Date {
  const sinceMonday = (now.getUTCDay() + 6) % 7;
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() - sinceMonday + 7));
}
