import { segmentsOf } from "../../pipelines/record/template.ts";
import type { Matched } from "../../pipelines/record/vocabulary.ts";
import { headlineOf, isListed } from "./entry.ts";
import type { NamedEndpoint } from "./url-index.ts";
import type { View } from "./view.ts";

/** The endpoint that a url means. */
export interface Match {
  cap: string;
  matched: Exclude<Matched, "none">;
  /** Only present when the url is that of an MCP server with several tools, or with an unknown tool. */
  tools?: ToolChoice;
}

/** The tool of an MCP server that an answer is about, when the query did not name a known one. */
export interface ToolChoice {
  /** Name of the tool that the answer is about. */
  answeredTool: string;
  /** Names of the server's other tools in the record, sorted. */
  others: readonly string[];
  /** Name of the requested tool that is not in the record, or null. */
  unknownTool: string | null;
}

const toolOf = (view: View, { cap }: NamedEndpoint): string | null => view.entry(cap)?.listing?.tool ?? null;

/** Returns the ids of the listed tools of the MCP server with this url; none for any other url. */
export const toolsOf = (view: View, normalised: string): string[] =>
  view.urlIndex
    .withUrl(normalised)
    .filter((endpoint) => toolOf(view, endpoint) !== null && isListed(view.entry(endpoint.cap)))
    .map(({ cap }) => cap);

/**
 * Returns true for the url of an MCP server with tools in the record, listed or not; only there a fragment names a
 * tool. Returns false for any other url.
 */
export const hasTools = (view: View, normalised: string): boolean =>
  view.urlIndex.withUrl(normalised).some((endpoint) => toolOf(view, endpoint) !== null);

function toolChoiceOf(
  view: View,
  endpoints: readonly NamedEndpoint[],
  chosen: NamedEndpoint,
  unknownTool: string | null,
): ToolChoice | null {
  const answeredTool = toolOf(view, chosen);
  if (answeredTool === null) return null;
  const tools = new Set(endpoints.flatMap((endpoint) => toolOf(view, endpoint) ?? []));
  tools.delete(answeredTool);
  return tools.size === 0 && unknownTool === null ? null : { answeredTool, others: [...tools].sort(), unknownTool };
}

/**
 * Order of preference of methods when the query names none. Listed endpoints are preferred to others before this
 * order applies.
 */
const METHOD_ORDER = ["GET", "POST"];

const methodRank = (method: string): number => {
  const rank = METHOD_ORDER.indexOf(method);
  return rank < 0 ? METHOD_ORDER.length : rank;
};

/** Orders candidates by paid samples, then probes, both descending, then id (docs/design/records.md, Identity). */
function candidateOrder(view: View): (a: NamedEndpoint, b: NamedEndpoint) => number {
  const paidCallsOf = (endpoint: NamedEndpoint): number => {
    const entry = view.entry(endpoint.cap);
    return view.row(endpoint.cap)?.paid_calls ?? (entry ? (headlineOf(entry)?.paidSamples ?? 0) : 0);
  };
  const probesOf = (endpoint: NamedEndpoint): number => view.row(endpoint.cap)?.probes ?? 0;
  return (a, b) => paidCallsOf(b) - paidCallsOf(a) || probesOf(b) - probesOf(a) || (a.cap < b.cap ? -1 : 1);
}

/**
 * Chooses one of several endpoints: listed ones before others, then by {@link METHOD_ORDER}, then by
 * {@link candidateOrder}. Returns null when the view holds none of them with this method.
 * @param method undefined: any
 */
function choose(view: View, endpoints: readonly NamedEndpoint[], method: string | undefined): NamedEndpoint | null {
  let candidates = endpoints.filter(
    (endpoint) => view.has(endpoint.cap) && (method === undefined || endpoint.method === method),
  );
  if (candidates.length > 1) {
    const listed = candidates.filter((endpoint) => view.entry(endpoint.cap)?.listed);
    if (listed.length > 0) candidates = listed;
    const bestRank = Math.min(...candidates.map((endpoint) => methodRank(endpoint.method)));
    candidates = candidates.filter((endpoint) => methodRank(endpoint.method) === bestRank);
  }
  return candidates.length > 1 ? candidates.sort(candidateOrder(view))[0]! : (candidates[0] ?? null);
}

/**
 * Largest number of templates that are compared with one url. Among templates with one prefix, those added earlier are
 * compared first, so that a flood of later ones cannot hide them.
 */
const MAX_TEMPLATES = 500;

function findByTemplate(view: View, normalised: string, method: string | undefined): NamedEndpoint | null {
  const segments = segmentsOf(normalised);
  let templatesLeft = MAX_TEMPLATES;
  for (const templates of view.urlIndex.templatesFor(normalised)) {
    const chosen = choose(
      view,
      templates.slice(0, templatesLeft).filter((template) => template.matches(segments)),
      method,
    );
    if (chosen) return chosen;
    templatesLeft -= templates.length;
    if (templatesLeft <= 0) return null;
  }
  return null;
}

/**
 * Finds the endpoint that a normalised url means: `exact` when the record has the method and the url; else `path`,
 * when it has the same origin and path with another query, or a template that matches (longest literal prefix first).
 * Null otherwise.
 * @param tool name of a tool of an MCP server, which may have several tools at one url
 */
export function matchUrl(view: View, normalised: string, method?: string, tool: string | null = null): Match | null {
  const endpoints = view.urlIndex.withUrl(normalised);
  const endpointsOfTool = tool === null ? [] : endpoints.filter((endpoint) => toolOf(view, endpoint) === tool);
  const toolMatch = choose(view, endpointsOfTool, method);
  if (toolMatch) return { cap: toolMatch.cap, matched: "exact" };
  const exactMatch = choose(view, endpoints, method);
  if (exactMatch) {
    const tools = toolChoiceOf(view, endpoints, exactMatch, tool);
    return { cap: exactMatch.cap, matched: "exact", ...(tools ? { tools } : {}) };
  }
  const pathMatch =
    choose(view, view.urlIndex.withPath(normalised), method) ?? findByTemplate(view, normalised, method);
  return pathMatch ? { cap: pathMatch.cap, matched: "path" } : null;
}
