import { z } from "zod";

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
