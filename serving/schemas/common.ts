import { z } from "zod";
import { BANDS, MATCHED, PROTOCOLS, TIERS } from "../../pipelines/record/vocabulary.ts";

/** Vocabularies and small shapes of the interface, shared by the answers. */
export const Band = z.enum([...BANDS, "UNRATED"]);
export const Tier = z.enum(TIERS);
export const Matched = z.enum(MATCHED);
export const Protocol = z.enum(PROTOCOLS);

/** Interface, "money": one or more digits, a dot, one to six digits. */
export const Money = z.string().regex(/^\d+\.\d{1,6}$/);

export const CapId = z
  .string()
  .regex(
    /^cap_[0-9A-HJKMNP-TV-Z]{26}$/,
    "not a capability id: cap_ and 26 characters of 0-9 and A-Z without I, L, O, U",
  );

/** What a listing or its 402 gets wrong. */
export const Defect = z.strictObject({
  defect: z.string(),
  says: z.string(),
  seenAt: z.string().nullable().optional(),
});
export type Defect = z.infer<typeof Defect>;

/** What the service itself got wrong about an endpoint. */
export const Correction = z.strictObject({
  id: z.string(),
  fault: z.string(),
  says: z.string(),
  issuedAt: z.string(),
  recordId: z.string().nullable().optional(),
  gradeAt: z.string().nullable().optional(),
});
export type Correction = z.infer<typeof Correction>;

/** RFC 9457 problem document: the body of every error of this API. */
export const ProblemDocument = z.strictObject({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  detail: z.string(),
  instance: z.string().optional(),
  errors: z.array(z.strictObject({ pointer: z.string(), detail: z.string() })).optional(),
});
export type ProblemDocument = z.infer<typeof ProblemDocument>;
