import { z } from "zod";
import { Advertised } from "./check.ts";
import { Band, CapId, Defect, Tier } from "./common.ts";

/** Parameters of search_capabilities. */
export const SearchQuery = z.object({
  q: z
    .string()
    .max(200)
    .default("")
    .describe("Words; each has to stand in the url, the description, the class or the tool's name. Empty: all."),
  class: z.string().max(60).optional().describe("Class of what is sold, as answers name it, such as arithmetic."),
  band: Band.optional().describe("This letter or a better one. UNRATED: only those without a letter."),
  max_price: z
    .string()
    .regex(/^\d{1,12}\.\d{1,6}$/, "must be money such as 0.05")
    .optional()
    .describe("In USDC, such as 0.05. Leaves out what asked more, asked in another asset, or said no price."),
  limit: z.int().min(1).max(50).default(10),
});
export type SearchQuery = z.infer<typeof SearchQuery>;

const FoundCapability = z.strictObject({
  capability_id: CapId,
  url: z.string(),
  method: z.string(),
  tool: z.string().nullable(),
  class: z.string(),
  description: z.string().nullable(),
  band: Band,
  tier: Tier.nullable(),
  composite: z.number().nullable(),
  why: z.string(),
  sample_count: z.int().min(0).nullable().describe("Records behind its card; null: not said by this card."),
  defects: z.array(Defect),
  advertised: Advertised.nullable().describe("What its newest 402 asked for."),
});

/** Endpoints in the order of {@link searchIn}. */
export const SearchAnswer = z.strictObject({
  capabilities: z.array(FoundCapability),
  more: z.boolean().describe("There are more than were asked for."),
});
export type SearchAnswer = z.infer<typeof SearchAnswer>;
