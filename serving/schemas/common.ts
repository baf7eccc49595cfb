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

/** The beginning of an address that can be asked or fetched; what follows is looked at by a URL parser. */
export const HTTP_URL = /^\s*[hH][tT][tT][pP][sS]?:/;

/** How the record is asked about an endpoint: by its url, or by its id. */
export const URL_OR_ID = /^(?:\s*[hH][tT][tT][pP][sS]?:|cap_[0-9A-HJKMNP-TV-Z]{26}$)/;
export const SAY_URL_OR_ID = "must be an http or https url, or a capability id";

/**
 * For the description of a schema: values that its refinements refuse, as JSON Schemas of which none may hold. Under `not`,
 * since generators of clients make a type of their own of every other word for a choice.
 */
export const refusing = (first: object, ...more: object[]) => ({
  not: more.length === 0 ? first : { anyOf: [first, ...more] },
});
/** All of these members are given. */
export const given = (...names: string[]) => ({
  required: names,
  properties: Object.fromEntries(names.map((name) => [name, {}])),
});
/** None of these members is given. */
export const noneOf = (...names: string[]) => ({
  not: names.length === 1 ? given(...names) : { anyOf: names.map((name) => given(name)) },
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
