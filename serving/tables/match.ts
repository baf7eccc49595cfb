import { segmentsOf } from "../../pipelines/record/template.ts";
import type { Matched } from "../../pipelines/record/vocabulary.ts";
import { headlineOf } from "./entry.ts";
import type { NamedEndpoint } from "./url-index.ts";
import type { View } from "./view.ts";

/** The endpoint that a url means. */
export interface Match {
  cap: string;
  matched: Exclude<Matched, "none">;
  /** Only present when the url is that of an MCP server with several tools, or with an unknown tool. */
  tools?: ToolChoice;
}

/** The tool of an MCP server that an answer is about, when the question did not name a known one. */
export interface ToolChoice {
  /** Name of the tool that the answer is about. */
  about: string;
  /** Names of the server's other tools in the record, sorted. */
  others: readonly string[];
  /** Name of the tool that was asked for and is not in the record, or null. */
  missing: string | null;
}

/** Returns the tool that a url names in its fragment, or null. The record may not have it. */
export function toolInUrl(url: string): string | null {
  const { hash } = new URL(url);
  try {
    return hash.length > 1 ? decodeURIComponent(hash.slice(1)) : null;
  } catch {
    return null;
  }
}

const toolOf = (view: View, { cap }: NamedEndpoint): string | null => view.entry(cap)?.listing?.tool ?? null;

/** Reports whether a url is that of an MCP server with tools in the record; only there a fragment names a tool. */
export const hasTools = (view: View, normalised: string): boolean =>
  view.names.withUrl(normalised).some((name) => toolOf(view, name) !== null);

function toolsMeant(
  view: View,
  names: readonly NamedEndpoint[],
  meant: NamedEndpoint,
  missing: string | null,
): ToolChoice | null {
  const about = toolOf(view, meant);
  if (about === null) return null;
  const tools = new Set(names.flatMap((name) => toolOf(view, name) ?? []));
  tools.delete(about);
  return tools.size === 0 && missing === null ? null : { about, others: [...tools].sort(), missing };
}

/** Preferred methods when the question names none; listed endpoints come before them. */
const METHOD_ORDER = ["GET", "POST"];

const methodRank = (method: string): number => {
  const at = METHOD_ORDER.indexOf(method);
  return at < 0 ? METHOD_ORDER.length : at;
};

/** Orders candidates by paid samples, then probes, both descending, then id (docs/design/records.md, Identity). */
function betterFirst(view: View): (a: NamedEndpoint, b: NamedEndpoint) => number {
  const paid = (name: NamedEndpoint): number => {
    const entry = view.entry(name.cap);
    return view.row(name.cap)?.paid_calls ?? (entry ? (headlineOf(entry)?.paidSamples ?? 0) : 0);
  };
  const probes = (name: NamedEndpoint): number => view.row(name.cap)?.probes ?? 0;
  return (a, b) => paid(b) - paid(a) || probes(b) - probes(a) || (a.cap < b.cap ? -1 : 1);
}

/** Chooses one of several candidates, or null when the view holds none with that method. */
function choose(view: View, names: readonly NamedEndpoint[], method: string | undefined): NamedEndpoint | null {
  let left = names.filter((name) => view.has(name.cap) && (method === undefined || name.method === method));
  if (left.length > 1) {
    const listed = left.filter((name) => view.entry(name.cap)?.listed);
    if (listed.length > 0) left = listed;
    const first = Math.min(...left.map((name) => methodRank(name.method)));
    left = left.filter((name) => methodRank(name.method) === first);
  }
  return left.length > 1 ? left.sort(betterFirst(view))[0]! : (left[0] ?? null);
}

/** Most templates that are compared with one url. Earlier ones come first, so a flood of later ones cannot hide them. */
const MAX_TEMPLATES = 500;

function underTemplate(view: View, normalised: string, method: string | undefined): NamedEndpoint | null {
  const segments = segmentsOf(normalised);
  let left = MAX_TEMPLATES;
  for (const templates of view.names.templatesFor(normalised)) {
    const meant = choose(
      view,
      templates.slice(0, left).filter((template) => template.matches(segments)),
      method,
    );
    if (meant) return meant;
    left -= templates.length;
    if (left <= 0) return null;
  }
  return null;
}

/**
 * Finds the endpoint that a normalised url means: `exact` when the record has the method and the url; else `path`, when it
 * has the same origin and path with another query, or a template that matches (longest literal prefix first). Null
 * otherwise.
 * @param tool name of a tool of an MCP server, which may have several tools at one url
 */
export function matchUrl(view: View, normalised: string, method?: string, tool: string | null = null): Match | null {
  const names = view.names.withUrl(normalised);
  const ofTool = tool === null ? [] : names.filter((name) => toolOf(view, name) === tool);
  const named = choose(view, ofTool, method);
  if (named) return { cap: named.cap, matched: "exact" };
  const exact = choose(view, names, method);
  if (exact) {
    const tools = toolsMeant(view, names, exact, tool);
    return { cap: exact.cap, matched: "exact", ...(tools ? { tools } : {}) };
  }
  const path = choose(view, view.names.withPath(normalised), method) ?? underTemplate(view, normalised, method);
  return path ? { cap: path.cap, matched: "path" } : null;
}
