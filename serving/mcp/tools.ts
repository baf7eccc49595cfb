import type { z } from "zod";
import { searchIn } from "../answers/search.ts";
import type { Service } from "../context.ts";
import type { Limiter } from "../http/limits.ts";
import { validated } from "../http/problem.ts";
import type { Operation } from "../operations/operation.ts";
import { SearchAnswer, SearchQuery } from "../schemas/search.ts";

/** One tool of the MCP server. */
export interface Tool {
  name: string;
  title: string;
  description: string;
  input: z.ZodType;
  output: z.ZodType;
  /** Beside the limit that every message counts against; null: none. */
  limiter: (service: Service) => Limiter | null;
  /** @throws Problem, also by rejecting */
  run(service: Service, input: unknown, client: string): object | Promise<object>;
}

/** The one tool that is no operation of the API: for programs the whole market is `/v1/trust/index`. */
const search: Tool = {
  name: "search_capabilities",
  title: "Search paid endpoints",
  description:
    "Finds paid endpoints in the record by words, class, letter and price. Ranked: letters A, B, C, D, then UNRATED (unknown, not bad), then F (failed); within a letter the higher composite first. Check the one you choose with check_grade before you pay it: that answer is signed.",
  input: SearchQuery,
  output: SearchAnswer,
  limiter: () => null,
  run: ({ follower, clock }, input) => searchIn(follower.view, validated(SearchQuery, input), clock.now()),
};

/** The tools: operations that are one, in the order of the table and limited as these are, and the search. */
export function toolsOf(operations: readonly Operation[]): Tool[] {
  const ofTable = operations.flatMap(({ tool, query, body, answer, summary, limiter }) => {
    const input = query ?? body;
    return tool && input && answer ? [{ description: summary, ...tool, input, output: answer, limiter }] : [];
  });
  return [...ofTable, search];
}
