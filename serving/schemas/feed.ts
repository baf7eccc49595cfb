import { z } from "zod";

/** Query of GET /v1/trust/feed: `<first 16 hex of sha256(origin)>:<log position>`. */
export const FeedQuery = z.object({
  cursor: z
    .string({ error: "must be given at most once" })
    .regex(
      /^[0-9a-f]{16}:(?:0|[1-9]\d{0,14})$/,
      "must be <log id>:<position>, as the Link header of an answer names it",
    )
    .optional(),
});
