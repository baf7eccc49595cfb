import { z } from "zod";
import { BuyersExpectation } from "../../pipelines/record/expectation.ts";
import { cannotBeSent, findInexact } from "../../pipelines/record/faults.ts";
import {
  Band,
  CapId,
  Defect,
  forbidsAll,
  isWholeText,
  Money,
  refusalSchema,
  requiresAll,
  Tier,
  WHOLE_TEXT_MESSAGE,
} from "./common.ts";

/** An amount of money in a request. */
const MoneySent = z.string().regex(/^\d{1,12}\.\d{1,6}$/, "must be money such as 0.05");

/** What a client needs from an endpoint, and the client's limits on price, grade and latency. */
const NEED_FIELDS = {
  need: z
    .string()
    .regex(/\S/, "must hold a word")
    .max(200)
    .describe(
      "What you need, in words, read as a search reads them. Candidates hold every word; in a plan, if none does, the nearest.",
    ),
  class: z.string().max(60).optional().describe("Class of what is sold, as answers name it, such as arithmetic."),
  max_price: MoneySent.optional().describe("Most that a seller may ask for one call, in USDC, without our fee."),
  min_band: z
    .enum(["A", "B", "C", "D"])
    .optional()
    .describe("This letter or a better one. Without it those without a letter stand behind D."),
  max_latency_ms: z
    .int()
    .min(1)
    .max(120_000)
    .optional()
    .describe("Most that the 95th percentile of its answers may take; one of which it is not known is passed over."),
  method: z.enum(["GET", "POST"]).optional(),
};

/** Body of POST /v1/route/plan. */
export const PlanQuery = z.strictObject({ ...NEED_FIELDS, limit: z.int().min(1).max(20).default(5) });
export type PlanQuery = z.infer<typeof PlanQuery>;

/**
 * Whether a payment whose answer was lost can be sent again without paying twice, as the service's own paid calls
 * showed it.
 */
const RETRY_VERDICTS = ["safe", "unsafe", "unknown"] as const;
export type RetryVerdict = (typeof RETRY_VERDICTS)[number];

const Candidate = z.strictObject({
  capability_id: CapId,
  url: z.string(),
  method: z.enum(["GET", "POST"]),
  tool: z.string().nullable().describe("The tool of the MCP server at the url that is called; null: none."),
  variables: z.array(z.string()).describe("Variables of the url, which a call has to give."),
  class: z.string(),
  description: z.string().nullable(),
  lacks: z
    .array(z.string())
    .describe("Words of the need that it does not hold; nobody is paid for an order that lacks any."),
  band: Band,
  /** How deep the verification of the endpoint went; null without a grade. */
  tier: Tier.nullable(),
  composite: z.number().nullable().describe("Weighted sum of the lower bounds; null: nothing was measured."),
  latency_p95_ms: z.int().min(0).nullable().describe("As its card measured it; null: not known."),
  price: Money.describe("Seller's price as its own 402 last asked, in USDC."),
  fee: Money,
  total: Money,
  buy: z.string().describe("Where to buy a call of it: the price is asked anew there."),
  guarantee: z.string().describe("When you are charged; the 402 of a call says it for your input."),
  defects: z.array(Defect),
  retry: z
    .enum(RETRY_VERDICTS)
    .describe("Does the same payment, shown again, give the answer again? As our own paid calls saw it last."),
  reasons: z.array(z.string()).describe("Why it stands where it stands."),
});

/** Reasons why an endpoint that matches the words of a need is no candidate, in the order in which they are tested. */
export const PASSED_OVER_TEXTS = {
  below_band: "their letter is below the one that was asked for, or they have none",
  other_method: "they are called with another method",
  not_sold: "calls of them are not bought through this service now",
  too_dear: "they ask for more",
  latency_unknown: "how long they take is not known",
  too_slow: "they take longer",
} as const;
export type PassedOver = keyof typeof PASSED_OVER_TEXTS;

/** Which endpoints to call for a need, from the record. No endpoint is called to find them. */
export const PlanAnswer = z.strictObject({
  schema: z.literal("svc.route-plan.v1"),
  need: z.string(),
  rule: z.string().describe("How candidates are ranked."),
  candidates: z.array(Candidate),
  passed_over: z.array(
    z.strictObject({
      reason: z.enum(Object.keys(PASSED_OVER_TEXTS) as [PassedOver, ...PassedOver[]]),
      says: z.string(),
      count: z.int().min(1),
    }),
  ),
  looked_at: z.int().min(0).describe("Listed endpoints that were found by the words and looked at."),
  more: z.boolean().describe("More fit than are named, or more were found by the words than were looked at."),
});
export type PlanAnswer = z.infer<typeof PlanAnswer>;

/** Largest number of endpoints that are tried for one order, one after the other. */
export const MAX_CANDIDATES = 5;

const TextRecord = z
  .record(z.string().max(200), z.string().max(2000).refine(isWholeText, WHOLE_TEXT_MESSAGE))
  .refine((texts) => Object.keys(texts).length <= 50, "must have at most 50 members")
  .meta({ maxProperties: 50 });

/** Input of one call. */
export const CallInput = z.strictObject({
  path: TextRecord.optional().describe(
    "Variables of the seller's url, such as city of https://seller.example/{city}; those left out are taken from query.",
  ),
  query: TextRecord.optional().describe("Query of the call; put on the seller's address."),
  body: z
    .unknown()
    .superRefine((body, context) => {
      // The body is written anew for the seller, and must arrive as it was sent.
      const fault = body === undefined ? null : findInexact(body);
      if (fault) context.addIssue({ code: "custom", path: fault.path, message: cannotBeSent(fault) });
    })
    .optional()
    .describe(
      "JSON body of the call; only endpoints that are called with POST take one. Of a tool of an MCP server, its arguments.",
    ),
});

/** Body of POST /v1/route/execute: a need, or the buyer's own candidates. */
export const ExecuteRequest = z
  .strictObject({
    ...NEED_FIELDS,
    need: NEED_FIELDS.need.optional(),
    capability_ids: z
      .array(CapId)
      .min(1)
      .max(MAX_CANDIDATES)
      .meta({ uniqueItems: true })
      .optional()
      .describe("Whom to ask, in this order, in place of a need."),
    input: CallInput.optional(),
    expect: BuyersExpectation.optional().describe(
      "What you yourself expect of the answer, beside our own checks; you are charged only if that holds too.",
    ),
    max_total: MoneySent.describe("Most that you would be charged, in USDC, our fee in it."),
    deadline_s: z
      .int()
      .min(1)
      .max(60)
      .default(30)
      .describe("Seconds from the paid request after which no further candidate is begun with."),
  })
  .superRefine(({ need, capability_ids, class: kind, min_band, max_latency_ms }, context) => {
    const addIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    if (need === undefined && !capability_ids) addIssue("need", "must be given, or capability_ids in its place");
    if (!capability_ids) return;
    const needFields = { need, class: kind, min_band, max_latency_ms };
    for (const [name, value] of Object.entries(needFields))
      if (value !== undefined) addIssue(name, "cannot stand beside capability_ids");
    if (new Set(capability_ids).size < capability_ids.length) addIssue("capability_ids", "names one of them twice");
  })
  .meta(
    refusalSchema(
      forbidsAll("need", "capability_ids"),
      ...["need", "class", "min_band", "max_latency_ms"].map((name) => requiresAll("capability_ids", name)),
    ),
  );
export type ExecuteRequest = z.infer<typeof ExecuteRequest>;
