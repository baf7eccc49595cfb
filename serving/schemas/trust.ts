import { z } from "zod";
import { SignedCard } from "../../pipelines/record/card.ts";
import { CapId, Correction } from "./common.ts";

/** Path parameter of GET /v1/trust/{id}. */
export const TrustParams = z.object({ id: CapId });

/** Interface, "Trust response". Scorecards are deepest tier first. */
export const TrustResponse = z.strictObject({
  schema: z.literal("svc.trust.v1"),
  capability_id: CapId,
  scorecards: z.array(SignedCard),
  disputes: z.array(z.looseObject({})),
  corrections: z.array(Correction),
});
export type TrustResponse = z.infer<typeof TrustResponse>;
