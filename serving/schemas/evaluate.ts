import { z } from "zod";
import { BuyersExpectation } from "../../pipelines/record/expectation.ts";
import { JUDGED_BY } from "../../pipelines/record/order-step.ts";
import { CapId, refusalSchema, requiresAll } from "./common.ts";
import { CallInput } from "./route.ts";

/** Longest answer that is evaluated, bytes. */
export const MAX_ANSWER_BYTES = 262_144;
/** Longest schema, characters of its JSON text. A longer schema is not applied to the answers of orders either. */
const MAX_SCHEMA_LENGTH = 100_000;

/** Body of POST /v1/evaluate: an answer, and what it is compared with. */
export const EvaluateRequest = z
  .strictObject({
    capability_id: CapId.optional().describe("Its class is taken from the record where none is given."),
    class: z.string().max(60).optional().describe("Class whose check is applied, such as arithmetic."),
    schema: z
      .union([z.record(z.string(), z.unknown()), z.boolean()], "must be a JSON Schema: an object, or true or false")
      .refine(
        (schema) => JSON.stringify(schema).length <= MAX_SCHEMA_LENGTH,
        `must be at most ${MAX_SCHEMA_LENGTH} characters long`,
      )
      .optional()
      .describe("JSON Schema that the seller advertises in its 402."),
    mime: z.string().max(200).optional().describe("Media type that the seller declares in its 402."),
    status: z.int().min(100).max(599),
    content_type: z.string().max(300).optional().describe("Content-Type of the answer."),
    body: z.string().optional().describe("The answer as text."),
    base64: z.base64().optional().describe("The same as bytes."),
    input: CallInput.optional().describe(
      "Input of the call that was answered so, as an execution takes it: where it asks a question of the endpoint's class, the answer is judged by the right one. Needs capability_id.",
    ),
    expect: BuyersExpectation.optional().describe("What you yourself expect of the answer, as an order takes it."),
  })
  .refine(({ body, base64 }) => body === undefined || base64 === undefined, {
    path: ["base64"],
    message: "came beside body: send one of them",
  })
  .refine(({ input, capability_id }) => input === undefined || capability_id !== undefined, {
    path: ["input"],
    message: "is the input of an endpoint: send its capability_id",
  })
  .meta(refusalSchema(requiresAll("body", "base64")));
export type EvaluateRequest = z.infer<typeof EvaluateRequest>;

/** The verdict on an answer: whether the buyer of an order would be charged for it. */
export const EvaluateAnswer = z.strictObject({
  schema: z.literal("svc.evaluation.v1"),
  pass: z.boolean().describe("Would its buyer be charged, as far as it could be held against anything?"),
  says: z.string(),
  judged_by: z
    .enum(JUDGED_BY)
    .describe("The check that says most of the answer, as an order of this input would name it."),
  delivered: z.boolean().describe("Bytes of an answer came: no demand to pay, no wall, not nothing."),
  delivery: z
    .number()
    .nullable()
    .describe("What the class's check makes of it, 0 to 1; below one half it does not pass."),
  schema_ok: z.boolean().nullable().describe("null: no schema was given, or it cannot be used."),
  checks: z.array(z.strictObject({ name: z.string(), ok: z.boolean(), says: z.string().optional() })),
  held_against: z.strictObject({
    class: z.string(),
    class_from: z.enum(["request", "record", "none"]),
    schema: z.boolean(),
    mime: z.string().nullable(),
  }),
  sha256: z.string().nullable(),
  bytes: z.int().min(0).describe("Length of the answer."),
});
export type EvaluateAnswer = z.infer<typeof EvaluateAnswer>;
