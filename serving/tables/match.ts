import { segmentsOf } from "../../pipelines/record/template.ts";
import type { Matched } from "../../pipelines/record/vocabulary.ts";
import { headlineOf } from "./entry.ts";
import type { NamedEndpoint } from "./names.ts";
import type { View } from "./view.ts";

export interface Match {
  cap: string;
  matched: Exclude<Matched, "none">;
  /** Only where the url is that of an MCP server, and more could be meant by it. */
  tools?: ToolChoice;
}

/** Which tool of a server an answer is about, where the question did not name it. */
export interface ToolChoice {
  about: string;
  /** The other tools of this server in the record, in the order of their names. */
  others: readonly string[];
  /** The tool that was asked for; the record has none of this name there. */
  missing: string | null;
}

/** The tool that a url names in its fragment, or null. Whether the record has it is another question. */
export function toolAsked(url: string): string | null {
  const { hash } = new URL(url);
  try {
    return hash.length > 1 ? decodeURIComponent(hash.slice(1)) : null;
  } catch {
    return null;
  }
}

const toolOf = (view: View, { cap }: NamedEndpoint): string | null => view.entry(cap)?.listing?.tool ?? null;

/** Is this the url of an MCP server with tools in the record? Only there a fragment means something. */
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

/** Without a method asked: the listed one, else GET, else POST, else any other. */
const METHOD_ORDER = ["GET", "POST"];

const methodRank = (method: string): number => {
  const at = METHOD_ORDER.indexOf(method);
  return at < 0 ? METHOD_ORDER.length : at;
};

/** Most paid samples, then most handshakes, then smallest id (records.md, Identity). */
function betterFirst(view: View): (a: NamedEndpoint, b: NamedEndpoint) => number {
  const paid = (name: NamedEndpoint): number => {
    const entry = view.entry(name.cap);
    return view.row(name.cap)?.paid_calls ?? (entry ? (headlineOf(entry)?.paidSamples ?? 0) : 0);
  };
  const probes = (name: NamedEndpoint): number => view.row(name.cap)?.probes ?? 0;
  return (a, b) => paid(b) - paid(a) || probes(b) - probes(a) || (a.cap < b.cap ? -1 : 1);
}

/** The one of several candidates that is meant, or null when the view holds none with that method. */
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

/** Templates that are looked at for one question: those met first, so a flood of later ones hides none of them. */
const MAX_TEMPLATES = 500;

function underTemplate(view: View, normalised: string, method: string | undefined): NamedEndpoint | null {
  const segments = segmentsOf(normalised);
  let left = MAX_TEMPLATES;
  for (const templates of view.names.templatesFor(normalised)) {
    const meant = choose(
      view,
      templates.slice(0, left).filter((template) => template.takes(segments)),
      method,
    );
    if (meant) return meant;
    left -= templates.length;
    if (left <= 0) return null;
  }
  return null;
}

/**
 * Which endpoint a normalised url means: `exact` when method and url are in the record; else `path`, the same origin
 * and path whatever the query; else, also `path`, a listed template, the longest literal prefix first.
 * @param tool of an MCP server, which may have several at one url
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
