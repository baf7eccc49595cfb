import { z } from "zod";
import { SignedCard } from "../../pipelines/record/card.ts";
import { CapId, Correction, ONE_TEXT } from "./common.ts";

/** Path parameter of GET /v1/trust/{id}. */
export const TrustParams = z.object({ id: CapId });

/** Interface, "Trust response". Scorecards are in the order of their tiers, the deepest first. */
export const TrustResponse = z.strictObject({
  schema: z.literal("svc.trust.v1"),
  capability_id: CapId,
  scorecards: z.array(SignedCard),
  disputes: z.array(z.looseObject({})),
  corrections: z.array(Correction),
});
export type TrustResponse = z.infer<typeof TrustResponse>;

/** Query of GET /v1/trust/feed: `<first 16 hex of sha256(origin)>:<log position>`. */
export const FeedQuery = z.object({
  cursor: z
    .string(ONE_TEXT)
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
