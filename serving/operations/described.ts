import type { z } from "zod";
import type { Service } from "../context.ts";
import { PROBLEMS, type ProblemCode } from "../http/problem.ts";
import { isShed, type Operation, type Tag } from "./operation.ts";

/** A row that stands in the description: one whose answer has a schema. */
export type Described = Operation & { answer: z.ZodType };

export const isDescribed = (operation: Operation): operation is Described => operation.answer !== undefined;

export const methodOf = ({ method }: Pick<Operation, "method">): "GET" | "POST" => method ?? "GET";

/** Path with its parameters as RFC 6570 writes them: `/v1/trust/:id` -> `/v1/trust/{id}`. */
export const templateOf = ({ path }: Pick<Operation, "path">): string => path.replace(/:(\w+)/g, "{$1}");

export const tagOf = ({ tag }: Pick<Operation, "tag">): Tag => tag ?? "service";

/** Everything an operation may refuse with: what follows from its row, and what the row adds, in the order of the table. */
export function errorsOf(operation: Operation, service: Service): ProblemCode[] {
  const { query, params, body, ofRecord, errors = [] } = operation;
  const codes = new Set<ProblemCode>(errors);
  if (query || params || body) codes.add("bad_request");
  if (body) codes.add("too_large");
  if (operation.limiter(service)) codes.add("too_many_requests");
  if (ofRecord) codes.add("not_ready");
  if (isShed(operation)) codes.add("unavailable");
  codes.add("internal");
  return (Object.keys(PROBLEMS) as ProblemCode[]).filter((code) => codes.has(code));
}

/** `max-age` of a Cache-Control, seconds; 0 for what may not be kept, or only after asking again. */
export const maxAgeOf = (cache: string | undefined): number => Number(/max-age=(\d+)/.exec(cache ?? "")?.[1] ?? 0);
