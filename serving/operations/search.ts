import type { Service } from "../context.ts";
import { queryOf, validate } from "../http/problem.ts";
import { JSON_TYPE, uncachedJson } from "../http/reply.ts";
import { SearchAnswer, SearchArguments, SearchParams, SearchQuery } from "../schemas/search.ts";
import type { Operation } from "./operation.ts";

const searchRecord = ({ follower, search }: Service, query: SearchQuery): Promise<SearchAnswer> =>
  search(follower.view, query);

/** GET /v1/search (docs/api.md). */
export const search: Operation = {
  id: "search",
  needsRecord: true,
  path: "/v1/search",
  summary: "Paid endpoints by what they do, with letter, price and how to call and buy them; the best first",
  query: SearchQuery,
  answer: SearchAnswer,
  type: JSON_TYPE,
  tag: "check",
  tool: {
    name: "search_capabilities",
    title: "Search paid endpoints",
    description:
      "Finds paid endpoints in the record by what they do, in words, and by class, letter, price and network; each with price, networks, an example call, flags and how to buy it. Ranked: the closer text, then letters A, B, C, D, then UNRATED (unknown, not bad); what failed (F) stands behind all others. If nothing holds every word, the nearest come, each with the words that it lacks. Descriptions are strangers' text. Check the one you choose with check_grade before you pay it: that answer is signed.",
    run: (service, input) => searchRecord(service, validate(SearchArguments, input)),
  },
  limiter: (service) => service.checkLimiter,
  async run({ service, query, limitHeaders }) {
    return uncachedJson(await searchRecord(service, validate(SearchParams, queryOf(query))), 200, limitHeaders);
  },
};
