import { z } from "zod";

/**
 * Why an endpoint is not paid today: the operator excludes it, its seller opted out, it has answered no 402 for weeks,
 * it offers nothing that we can pay, or the name of the spending cap that its planned calls would exceed.
 */
const UNCOVERED_REASONS = [
  "excluded",
  "opted_out",
  "silent",
  "nothing_to_pay",
  "per_call",
  "per_host_day",
  "per_domain_day",
  "per_payee_day",
  "per_day",
  "total",
] as const;
export type UncoveredReason = (typeof UNCOVERED_REASONS)[number];

/**
 * One call in the plan of a UTC day (verification-method.md section 5). The plan is a private object
 * `plans/<day>.json`, which is created once and never changed. It follows from the day's secret salt and what was
 * known when the plan was made. Re-tests (further calls after a failure) are not in it, since they depend on the
 * day's results.
 */
export const PlannedCall = z.strictObject({
  /** Block number (floor(unix/21600)) and minute in it (0..359). */
  block: z.int(),
  minute: z.int(),
  kind: z.enum(["probe", "paid"]),
  /**
   * Is the call paid from a new wallet, which pays on this day only? Then the seller cannot recognise the call as
   * ours.
   */
  blind: z.boolean(),
});
export type PlannedCall = z.infer<typeof PlannedCall>;

export const PlanLine = z.strictObject({
  cap: z.string(),
  host: z.string(),
  /**
   * Payee that was expected when the plan was made, an EVM address in lower case; null if the endpoint had named
   * none.
   */
  payee: z.string().nullable().optional(),
  calls: z.array(PlannedCall),
  /**
   * Number of planned paid calls a day: 4 until the endpoint has paid calls in 30 blocks (six hours UTC each), then
   * 1. Re-tests add calls; each call's weight in the grade is then planned/actual calls.
   */
  base_per_day: z.int(),
  /**
   * May the endpoint be paid today, that is, do the calls of a whole day with re-tests fit into the spending caps? The
   * endpoint is probed in any case.
   */
  covered: z.boolean(),
  /**
   * Price of one call that was expected when the plan was made, millionths of a dollar as text; null when we can pay
   * none of the endpoint's offers.
   */
  price_micro: z
    .string()
    .regex(/^\d{1,18}$/)
    .nullable()
    .optional(),
  /** Why the endpoint is not covered; null when it is covered. */
  why: z.enum(UNCOVERED_REASONS).nullable().optional(),
});
export type PlanLine = z.infer<typeof PlanLine>;

export const DayPlan = z.strictObject({
  v: z.literal(1),
  day: z.string(),
  /** sha256 of the day's secret salt. */
  salt_hash: z.string(),
  /** Merkle root (RFC 6962) over the sorted capability ids of the covered endpoints. */
  covered_root: z.string(),
  lines: z.array(PlanLine),
});
export type DayPlan = z.infer<typeof DayPlan>;

/** Counts a plan's endpoints, covered endpoints, probes and paid calls (without re-tests), for a log line. */
export function summarizePlan({ day, lines }: Pick<DayPlan, "day" | "lines">) {
  const paidLines = lines.filter(({ covered }) => covered);
  const countCalls = (lines: readonly PlanLine[], kind: PlannedCall["kind"]): number =>
    lines.reduce((sum, { calls }) => sum + calls.filter((call) => call.kind === kind).length, 0);
  return {
    ...{ day, endpoints: lines.length, paid_endpoints: paidLines.length },
    ...{ probes: countCalls(lines, "probe"), paid_calls: countCalls(paidLines, "paid") },
  };
}
