import { z } from "zod";

/**
 * Longest expectation, in characters of its JSON. The length is bounded because the log keeps the expectation for ever
 * as part of the order.
 */
export const MAX_EXPECTATION_CHARS = 4_096;

/**
 * Conditions that a buyer sets for the answer that it buys, beside our own checks. The buyer is charged only if the
 * answer meets each of them. Conditions that cannot be evaluated are refused before anything is paid.
 */
export const BuyersExpectation = z
  .strictObject({
    schema: z
      .record(z.string(), z.unknown())
      .optional()
      .describe("JSON Schema (draft 7, 2019-09 or 2020-12) that the answer fits."),
    jsonpath: z
      .strictObject({
        path: z
          .string()
          .min(1)
          .max(300)
          .describe("JSONPath of RFC 9535, without match() and search(), with one .. at most."),
        value: z.unknown().optional().describe("What each value that it selects equals; left out: anything."),
      })
      .optional()
      .describe("The path selects something in the answer, and nothing but this value."),
    regex: z
      .string()
      .min(1)
      .max(300)
      .optional()
      .describe("Expression of RE2, found somewhere in the answer's text (its first 500,000 bytes)."),
    min_length: z.int().min(1).max(1_048_576).optional().describe("Least length of the answer, bytes."),
  })
  .refine((one) => Object.values(one).some((value) => value !== undefined), "must have a member")
  .refine(
    (one) => JSON.stringify(one).length <= MAX_EXPECTATION_CHARS,
    `must be at most ${MAX_EXPECTATION_CHARS} characters long`,
  );
export type BuyersExpectation = z.infer<typeof BuyersExpectation>;

/** A fault of an expectation. `pointer` is a JSON pointer into the expectation. */
export interface ExpectationFault {
  pointer: string;
  detail: string;
}

/** Is this a check of the buyer's own expectation, and not one of our checks? */
export const isBuyersCheck = ({ name }: { name: string }): boolean => name.startsWith("expect_");
