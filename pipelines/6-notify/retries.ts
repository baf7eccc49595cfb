const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** Pauses after the first, second .. failed attempt, ms (egress.md, Notices); the last one again and again. */
const PAUSES = [5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 10 * HOUR];
/** A receiver that accepted nothing for so long is written to no more, ms. */
export const DISABLED_AFTER = 5 * 24 * HOUR;
/** Longest wait that a receiver may ask for, ms. */
const MAX_ASKED = 24 * HOUR;
/** Up to so much of a pause is added by lot, so that what failed together does not come back together. */
const JITTER = 0.1;

/**
 * When the attempt after the `attempts`-th is due, unix ms: after the schedule's pause, or later where the receiver asked for
 * that; never past the moment at which it is given up, so that the last attempt is at that moment.
 * @param since first failed attempt since one was accepted, unix ms
 * @param asked ms that Retry-After asks for, null for none
 * @param lot in [0, 1)
 */
export function nextAttempt(
  attempts: number,
  times: { now: number; since: number },
  asked: number | null,
  lot: number,
) {
  const pause = PAUSES[Math.min(attempts, PAUSES.length) - 1]! * (1 + JITTER * lot);
  const due = times.now + Math.max(pause, Math.min(asked ?? 0, MAX_ASKED));
  return Math.min(due, times.since + DISABLED_AFTER);
}
