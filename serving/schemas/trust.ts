import { z } from "zod";
import { CardBundle } from "../../pipelines/published/card-bundle.ts";
import { SignedCard } from "../../pipelines/record/card.ts";
import { CapId, Correction, Money, ONE_TEXT_ERROR, wholeNumber } from "./common.ts";

/** Path parameter of GET /v1/trust/{id}. */
export const TrustParams = z.object({ id: CapId });

/**
 * Answer of GET /v1/trust/{id}. The scorecards (signed grades) are in the order of their tiers (depths of
 * verification), the deepest first.
 */
export const TrustResponse = z.strictObject({
  schema: z.literal("svc.trust.v1"),
  capability_id: CapId,
  scorecards: z.array(SignedCard),
  disputes: z.array(z.looseObject({})),
  corrections: z.array(Correction),
});
export type TrustResponse = z.infer<typeof TrustResponse>;

/** Answer of GET /v1/trust/{id}/proof (docs/card-bundle.md), from which a browser proves a card (signed grade). */
export const CardProof = z.strictObject({
  schema: z.literal("svc.card.proof.v1"),
  capability_id: CapId,
  bundle: CardBundle.describe("The headline card."),
  graded: CardBundle.nullable().describe("The newest headline card whose evidence is published; null: there is none."),
  evidence: z
    .array(
      z.strictObject({ day: z.string(), key: z.string(), bytes: z.int().nonnegative(), rows: z.int().nonnegative() }),
    )
    .describe("Evidence files of the endpoint's bucket, newest first; each key is a path of this host."),
});
export type CardProof = z.infer<typeof CardProof>;

/** Query of GET /v1/trust/{id}/failures: where the previous page ended, and the most calls on a page. */
export const FailuresQuery = z.object({
  cursor: z
    .string(ONE_TEXT_ERROR)
    .regex(/^\d{1,15}-(?:rec_[0-9A-HJKMNP-TV-Z]{26})?$/, "must be `next` of an earlier page")
    .optional()
    .describe("`next` of a page: calls before its last one in time are answered."),
  limit: wholeNumber(1, 100, 20),
});

/** One paid call that failed, as the published evidence has it. */
export const FailedCall = z.strictObject({
  id: z.string().describe("Record id of the call: `obs_id` of its line in the evidence."),
  at: z.string(),
  paid_by: z.enum(["us", "a_buyer"]),
  says: z.string().describe("What happened to the money and the answer, in words."),
  failed: z.array(z.string()).describe("Names of the checks that failed."),
  expected: z.string(),
  came: z.string().describe("What came instead. Text of a seller in it is shortened."),
  status: z.int().nullable(),
  latency_ms: z.number().nullable(),
  price: Money.nullable(),
  ...{ network: z.string().nullable(), asset: z.string().nullable(), pay_to: z.string().nullable() },
  tx: z.string().nullable().describe("Transaction that settled it; null: none was seen."),
  refunded: z.boolean(),
  request_sha256: z.string().nullable(),
  response_sha256: z.string().nullable(),
  evidence: z.array(z.string()).describe("Evidence files: the one with the call's line, then those with later facts."),
  reproduce: z.string().describe("Command that prints these lines."),
});
export type FailedCall = z.infer<typeof FailedCall>;

/** Answer of GET /v1/trust/{id}/failures. */
export const FailuresAnswer = z.strictObject({
  schema: z.literal("svc.trust.failures.v1"),
  capability_id: CapId,
  evidence_until: z.string().nullable().describe("Newest UTC day whose evidence is published; null: none yet."),
  failures: z.array(FailedCall).describe("Newest first."),
  left_out: z.array(z.string()).describe("Evidence files that are too long to be read for an answer."),
  next: z
    .string()
    .nullable()
    .describe("Cursor of the next page, null on the last. A page may have fewer calls than asked."),
});
export type FailuresAnswer = z.infer<typeof FailuresAnswer>;

/** Query of GET /v1/trust/feed. The cursor is `<first 16 hex digits of sha256(name of the log)>:<log position>`. */
export const FeedQuery = z.object({
  cursor: z
    .string(ONE_TEXT_ERROR)
    .regex(
      /^[0-9a-f]{16}:(?:0|[1-9]\d{0,14})$/,
      "must be <log id>:<position>, as the Link header of an answer names it",
    )
    .optional(),
});

/** A seller's receipt for a dispute: the dispute and the position of its record in the log. */
export const DisputeReceipt = z.strictObject({
  dispute: z.looseObject({}),
  event_id: z.string(),
  partition: z.int(),
  offset: z.int(),
});
