import { z } from "zod";
import { BANDS, MATCHED, PROTOCOLS, TIERS } from "../../pipelines/record/vocabulary.ts";

/** Error option of a zod schema, for a parameter that must be given exactly once. */
export const ONE_TEXT_ERROR = {
  error: ({ input }: { input?: unknown }) =>
    input === undefined ? "must be given" : Array.isArray(input) ? "must be given only once" : "must be a text",
};

/** Returns the error option of a zod schema, for a parameter that must be one of a few texts. */
export const oneOfError = (values: readonly string[]) => ({
  error: ({ input }: { input?: unknown }) =>
    `must be ${values.join(" or ")}${Array.isArray(input) ? ", and given only once" : ""}`,
});

/** Matches the beginning of an address that can be checked or fetched; a URL parser examines the rest. */
export const HTTP_URL_START = /^\s*[hH][tT][tT][pP][sS]?:/;

/** Matches how a client may name an endpoint: by its url, or by its id. */
export const URL_OR_ID = /^(?:\s*[hH][tT][tT][pP][sS]?:|cap_[0-9A-HJKMNP-TV-Z]{26}$)/;
export const URL_OR_ID_MESSAGE = "must be an http or https url, or a capability id";

const LONE_SURROGATE = /\p{Surrogate}/u;
/**
 * Returns true if a text has no lone surrogate, and false if it has one. RFC 8785 cannot print one, so no signed answer
 * and no record can repeat a text that has one.
 */
export const isWholeText = (text: string): boolean => !LONE_SURROGATE.test(text);
export const WHOLE_TEXT_MESSAGE = "must be whole Unicode text";

/**
 * Returns a JSON Schema that states which values the refinements of a zod schema refuse: a value must match none of the
 * given schemas. It uses `not`, because client generators make additional types from the other keywords for a choice.
 */
export const refusalSchema = (first: object, ...more: object[]) => ({
  not: more.length === 0 ? first : { anyOf: [first, ...more] },
});
/** Returns a JSON Schema that requires all of these members. */
export const requiresAll = (...names: string[]) => ({
  required: names,
  properties: Object.fromEntries(names.map((name) => [name, {}])),
});
/** Returns a JSON Schema that forbids each of these members. */
export const forbidsAll = (...names: string[]) => ({
  not: names.length === 1 ? requiresAll(...names) : { anyOf: names.map((name) => requiresAll(name)) },
});

/**
 * Creates the schema of a query parameter that is a whole number, in digits, and given once.
 * @param max null: no limit; a number above 2^53 - 1 is read as 2^53 - 1
 * @param defaultValue value when it is absent
 */
export const wholeNumber = (min: number, max: number | null, defaultValue: number) => {
  const error = `must be a whole number from ${min}${max === null ? "" : ` to ${max}`}, given once`;
  const parseDigits = (text: unknown) =>
    typeof text === "string" && /^\d{1,100}$/.test(text) ? Math.min(Number(text), Number.MAX_SAFE_INTEGER) : Number.NaN;
  const number = z.number({ error }).min(min, error);
  // The metadata is set on the inner schema, since only that one appears in the JSON Schema of the input.
  const described = (max === null ? number : number.max(max, error)).meta({ type: "integer", default: defaultValue });
  return z.preprocess(parseDigits, described).default(defaultValue);
};

/** Letter (grade) of an endpoint, best first; UNRATED means unknown. */
export const Band = z.enum([...BANDS, "UNRATED"]);
/** How deep the verification of an endpoint went: liveness, delivery or outcome. */
export const Tier = z.enum(TIERS);
/** How a url was found in the record. */
export const Matched = z.enum(MATCHED);
export const Protocol = z.enum(PROTOCOLS);

/** An amount of money: one or more digits, a dot, one to six digits. */
export const Money = z.string().regex(/^\d+\.\d{1,6}$/);

/** Capability id: the id of an endpoint. */
export const CapId = z
  .string()
  .regex(
    /^cap_[0-9A-HJKMNP-TV-Z]{26}$/,
    "not a capability id: cap_ and 26 characters of 0-9 and A-Z without I, L, O, U",
  );

/** An error in an endpoint's listing or 402. */
export const Defect = z.strictObject({
  /** Code of the defect. */
  defect: z.string(),
  /** The defect in words. */
  says: z.string(),
  /** When it was last seen, RFC 3339. */
  seenAt: z.string().nullable().optional(),
});
export type Defect = z.infer<typeof Defect>;

/** An error that this service itself made about an endpoint. */
export const Correction = z.strictObject({
  id: z.string(),
  fault: z.string(),
  says: z.string(),
  issuedAt: z.string(),
  /** Id of the withdrawn record; null: all earlier records of the endpoint are withdrawn. */
  recordId: z.string().nullable().optional(),
  /** `computed_at` of the wrong grade; null if none is named. */
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
