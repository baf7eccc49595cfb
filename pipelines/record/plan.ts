import { z } from "zod";

/**
 * Why an endpoint is not paid today: the operator or its seller says so, it has shown no 402 for weeks, there is nothing
 * that we can pay, or which cap its whole day does not fit into.
 */
const UNCOVERED = [
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
export type Uncovered = (typeof UNCOVERED)[number];

/**
 * The plan of one UTC day (verification-method.md section 5), a create-only private object `plans/<day>.json`. It is a pure
 * function of the day's salt and of what was known when the day began; re-tests follow from the rows of the day.
 */
export const PlannedCall = z.strictObject({
  /** Block number (floor(unix/21600)) and minute in it (0..359). */
  block: z.int(),
  minute: z.int(),
  kind: z.enum(["probe", "paid"]),
  /** Paid by a fresh wallet that never pays again after this day. */
  blind: z.boolean(),
});
export type PlannedCall = z.infer<typeof PlannedCall>;

export const PlanLine = z.strictObject({
  cap: z.string(),
  host: z.string(),
  /** To whom it asked the money to go when the day began, lower-case where it is an address; null when it said nothing. */
  payee: z.string().nullable().optional(),
  calls: z.array(PlannedCall),
  /** Base paid calls a day when the day began: 4 until 30 paid blocks, then 1. A re-test weighs base/actual. */
  base_per_day: z.int(),
  /** May it be paid today (a whole day, re-tests included, fits the caps)? Probes happen either way. */
  covered: z.boolean(),
  /** What one call was expected to cost when the day began, micro-units as text; null when nothing can be paid. */
  price_micro: z
    .string()
    .regex(/^\d{1,18}$/)
    .nullable()
    .optional(),
  /** Why it is not covered; null when it is. */
  why: z.enum(UNCOVERED).nullable().optional(),
});
export type PlanLine = z.infer<typeof PlanLine>;

export const DayPlan = z.strictObject({
  v: z.literal(1),
  day: z.string(),
  salt_hash: z.string(),
  covered_root: z.string(),
  lines: z.array(PlanLine),
});
export type DayPlan = z.infer<typeof DayPlan>;

/** What a plan comes to, for a line of a log: endpoints, those that are paid, and their calls, re-tests not among them. */
export function planInShort({ day, lines }: Pick<DayPlan, "day" | "lines">) {
  const paid = lines.filter(({ covered }) => covered);
  const callsOf = (of: readonly PlanLine[], kind: PlannedCall["kind"]): number =>
    of.reduce((sum, { calls }) => sum + calls.filter((call) => call.kind === kind).length, 0);
  return {
    ...{ day, endpoints: lines.length, paid_endpoints: paid.length },
    ...{ probes: callsOf(lines, "probe"), paid_calls: callsOf(paid, "paid") },
  };
}
