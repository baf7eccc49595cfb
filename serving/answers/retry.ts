import { DAY_MS } from "../../pipelines/record/time.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { RetryVerdict } from "../schemas/route.ts";

/** Age up to which a measurement is shown, ms. Each endpoint is measured once a week. */
const MAX_AGE_MS = 35 * DAY_MS;

const DESCRIPTIONS: Readonly<Record<string, string>> = {
  answered: "the same payment, shown again, gave the answer again",
  asked_again: "the same payment, shown again, got a 402: a client that pays it pays twice",
  refused: "the same payment, shown again, was refused",
  failed: "the same payment, shown again, gave no answer",
};

/**
 * Returns the newest measurement of how the endpoint treats a repeated payment, as a verdict and in words, and when it
 * was made (`at`, unix ms). It is never part of a grade.
 * @param row the endpoint's volatile row (the facts that change faster than a card); undefined when it has none
 */
export function retryVerdictOf(
  row: Pick<VolatileRow, "retried" | "retried_at"> | undefined,
  now: Date,
): { verdict: RetryVerdict; says: string; at: number | null } {
  const { retried = null, retried_at: at = null } = row ?? {};
  const says = retried === null ? undefined : DESCRIPTIONS[retried];
  if (!says || at === null || at < now.getTime() - MAX_AGE_MS) {
    return { verdict: "unknown", says: "no recent paid call showed it", at: null };
  }
  return { verdict: retried === "answered" ? "safe" : "unsafe", says, at };
}
