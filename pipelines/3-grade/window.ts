import { DAY_MS, params } from "./params.ts";

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
