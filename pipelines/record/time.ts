/**
 * Length of a block, ms. A UTC day has four blocks of six hours; calls are planned and samples are weighed by block
 * (grading-params.json, block_seconds).
 */
export const BLOCK_MS = 21_600_000;
export const DAY_MS = 86_400_000;
/** Least time between two probes of one url at clients' request, ms. */
export const MIN_PROBE_INTERVAL_MS = DAY_MS;
/** Time after which an ask (a client's request to probe a url) is dropped if its url was not probed, ms. */
export const ASK_LIFETIME_MS = 30 * DAY_MS;

/** Returns the number of the block that contains a time: floor(unix seconds / 21,600). */
export const blockOf = (at: Date): number => Math.floor(at.getTime() / BLOCK_MS);

/** Returns the first moment of a block. */
export const blockStart = (block: number): Date => new Date(block * BLOCK_MS);

/** Returns the UTC date, YYYY-MM-DD. */
export const dayOf = (at: Date): string => at.toISOString().slice(0, 10);

/** Returns the first moment of a UTC date. */
export const dayStart = (day: string): Date => new Date(`${day}T00:00:00.000Z`);

export const addDays = (day: string, n: number): string => dayOf(new Date(dayStart(day).getTime() + n * DAY_MS));

/** Formats a time as RFC 3339 in UTC with milliseconds, the only form of times in the record. */
export const rfc3339 = (at: Date): string => at.toISOString();

/** Matches the form that {@link rfc3339} prints. It does not check that the day exists. */
export const RFC3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;

/** Returns whether {@link rfc3339} prints this text: its form, and a time that exists. */
export function isRfc3339(text: string): boolean {
  const at = RFC3339.test(text) ? new Date(text) : null;
  return at !== null && !Number.isNaN(at.getTime()) && at.toISOString() === text;
}

/** Returns whether a text is a UTC date that exists, in the form of {@link dayOf}. */
export const isDay = (text: string): boolean => isRfc3339(`${text}T00:00:00.000Z`);
