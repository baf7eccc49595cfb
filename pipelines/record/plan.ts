import { z } from "zod";

/**
 * Why an endpoint is not paid today: the operator or its seller excludes it, it has answered no 402 for weeks, there is
 * nothing that we can pay, or the cap that its whole day does not fit into.
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
 * The plan of one UTC day (verification-method.md section 5), a create-only private object `plans/<day>.json`. It is a
 * pure function of the day's salt and of what was known when the day began. Re-tests are not in it: they depend on the
 * day's rows.
 */
export const PlannedCall = z.strictObject({
  /** Block number (floor(unix/21600)) and minute in it (0..359). */
  block: z.int(),
  minute: z.int(),
  kind: z.enum(["probe", "paid"]),
  /** Is it paid from a fresh wallet, which never pays again after this day? */
  blind: z.boolean(),
});
export type PlannedCall = z.infer<typeof PlannedCall>;

export const PlanLine = z.strictObject({
  cap: z.string(),
  host: z.string(),
  /**
   * Expected payee when the day began, lower-case where it is an EVM address; null where the endpoint had named none.
   */
  payee: z.string().nullable().optional(),
  calls: z.array(PlannedCall),
  /** Planned paid calls a day: 4 until 30 paid blocks, then 1. A re-test weighs base/actual. */
  base_per_day: z.int(),
  /** May it be paid today, that is, does a whole day, re-tests included, fit into the caps? It is probed either way. */
  covered: z.boolean(),
  /** Expected price of one call when the day began, micro-units as text; null when nothing can be paid. */
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

/** Counts of a plan for a log line: endpoints, paid endpoints, and their calls without re-tests. */
export function planInShort({ day, lines }: Pick<DayPlan, "day" | "lines">) {
  const paid = lines.filter(({ covered }) => covered);
  const callsOf = (of: readonly PlanLine[], kind: PlannedCall["kind"]): number =>
    of.reduce((sum, { calls }) => sum + calls.filter((call) => call.kind === kind).length, 0);
  return {
    ...{ day, endpoints: lines.length, paid_endpoints: paid.length },
    ...{ probes: callsOf(lines, "probe"), paid_calls: callsOf(paid, "paid") },
  };
}
