import { z } from "zod";
import { BANDS, MATCHED, PROTOCOLS, TIERS } from "../../pipelines/record/vocabulary.ts";

/** What is wrong with a parameter that has to be one text. */
export const ONE_TEXT = {
  error: ({ input }: { input?: unknown }) =>
    input === undefined ? "must be given" : Array.isArray(input) ? "must be given only once" : "must be a text",
};

/** What is wrong with a parameter that has to be one of a few texts. */
export const oneOf = (values: readonly string[]) => ({
  error: ({ input }: { input?: unknown }) =>
    `must be ${values.join(" or ")}${Array.isArray(input) ? ", and given only once" : ""}`,
});

/** A whole number as a query has it: in digits, once. @param unless what stands for none */
export const wholeNumber = (least: number, most: number, unless: number) => {
  const error = `must be a whole number from ${least} to ${most}, given once`;
  const read = (text: unknown) => (typeof text === "string" && /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN);
  const number = z.preprocess(read, z.int({ error }).min(least, error).max(most, error));
  return number.default(unless).meta({ default: unless });
};

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
