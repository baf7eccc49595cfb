import { segmentsOf } from "../../pipelines/record/template.ts";
import type { Matched } from "../../pipelines/record/vocabulary.ts";
import { headlineOf } from "./entry.ts";
import type { Name } from "./names.ts";
import type { View } from "./view.ts";

export interface Match {
  cap: string;
  matched: Exclude<Matched, "none">;
}

/** Without a method asked: the listed one, else GET, else POST, else any other. */
const METHOD_ORDER = ["GET", "POST"];

const methodRank = (method: string): number => {
  const at = METHOD_ORDER.indexOf(method);
  return at < 0 ? METHOD_ORDER.length : at;
};

/** Most paid samples, then most handshakes, then smallest id (records.md, Identity). */
function betterFirst(view: View): (a: Name, b: Name) => number {
  const paid = (name: Name): number => {
    const entry = view.entry(name.cap);
    return view.row(name.cap)?.paid_calls ?? (entry ? (headlineOf(entry)?.paidSamples ?? 0) : 0);
  };
  const probes = (name: Name): number => view.row(name.cap)?.probes ?? 0;
  return (a, b) => paid(b) - paid(a) || probes(b) - probes(a) || (a.cap < b.cap ? -1 : 1);
}

/** The one of several candidates that is meant, or null when the view holds none with that method. */
function choose(view: View, names: readonly Name[], method: string | undefined): Name | null {
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

function underTemplate(view: View, normalised: string, method: string | undefined): Name | null {
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
 */
export function matchUrl(view: View, normalised: string, method?: string): Match | null {
  const exact = choose(view, view.names.withUrl(normalised), method);
  if (exact) return { cap: exact.cap, matched: "exact" };
  const path = choose(view, view.names.withPath(normalised), method) ?? underTemplate(view, normalised, method);
  return path ? { cap: path.cap, matched: "path" } : null;
}
