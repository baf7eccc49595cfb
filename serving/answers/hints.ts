import { isTemplate } from "../../pipelines/record/template.ts";
import { normaliseUrl, pathKey } from "../../pipelines/record/url.ts";
import { readHandshakeRequest, type VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Match } from "../tables/match.ts";
import type { NamedEndpoint } from "../tables/url-index.ts";
import type { View } from "../tables/view.ts";

/** Describes what the newest probe saw; null when it saw payment terms, or nothing is known of it. */
function describeNewestProbe({ last_state: state, last_status: status }: VolatileRow): string | null {
  switch (state) {
    case "status":
    case "free":
      return `answers ${status ?? "something else"} and asks for no payment`;
    case "malformed":
      return "answers 402 with terms that cannot be read";
    case "wall":
      return `turns our handshakes away${status === null ? "" : ` with ${status}`}`;
    case "silent":
      return "does not answer";
    default:
      return null;
  }
}

/**
 * Brings the sentence `why`, which explains a grade, up to date with the endpoint's newest probe. For an endpoint that
 * never asked for payment, returns what it answers instead. For others, appends what the newest probe saw if it saw no
 * payment terms.
 * @param isCardSentence whether `why` is a card's sentence
 */
export function withNewestProbe(why: string, row: VolatileRow | undefined, isCardSentence: boolean): string {
  const words = row ? describeNewestProbe(row) : null;
  // A card's sentence already tells how long an endpoint has been silent.
  if (!row || words === null || (isCardSentence && row.last_state === "silent")) return why;
  const neverAskedOrPaid = why.startsWith("UNRATED:") && row.asked_for_payment === 0 && row.paid_calls === 0;
  return neverAskedOrPaid ? `UNRATED: it ${words}, so nobody has paid it.` : `${why} Newest handshake: it ${words}.`;
}

const formatEndpoint = ({ method, url }: NamedEndpoint): string => `${method} ${url}`;

/** Describes how two urls of one origin and path differ. */
const differenceOf = (asked: string, recorded: string): string =>
  asked.split("?", 1)[0] === recorded.split("?", 1)[0] ? "query" : "trailing slash";

/**
 * Tells which url we called for a template, with its placeholders filled; null when the endpoint is not a template or
 * our request is not known.
 */
function describeTemplateCalls(view: View, cap: string, url: string): string | null {
  const request = view.row(cap)?.request;
  const called = request ? readHandshakeRequest(request)?.url : undefined;
  return called === undefined || !isTemplate(url) ? null : `Our calls of this template went to ${called}.`;
}

/** Explains which endpoint an answer is about when its url differs from the requested url. */
export function explainMatch(view: View, asked: string, { cap, matched }: Match, recorded: NamedEndpoint): string[] {
  const called = describeTemplateCalls(view, cap, recorded.url);
  const templateHint = called === null ? [] : [called];
  if (matched === "exact") return templateHint;
  const url = normaliseUrl(asked);
  if (pathKey(url) !== pathKey(recorded.url))
    return [`This is about ${formatEndpoint(recorded)}, a template that the url falls under.`, ...templateHint];
  return [
    `This is about ${formatEndpoint(recorded)}: the url asked differs from it by its ${differenceOf(url, recorded.url)}.`,
    ...templateHint,
  ];
}

/** Largest number of endpoints with the same url, path or origin that are looked up in the view. */
const MAX_COMPARED = 200;
/** Largest number of endpoints of one host that a hint names. */
const MAX_NAMED = 5;

/** Describes what the record holds near an unknown url: other methods of the url, its path, other paths of its host. */
export function describeNearby(view: View, normalised: string): string | null {
  const keepRecorded = (names: readonly NamedEndpoint[]) =>
    names.slice(0, MAX_COMPARED).filter(({ cap }) => view.has(cap));
  const sameUrl = keepRecorded(view.urlIndex.withUrl(normalised));
  if (sameUrl.length > 0) {
    const methods = [...new Set(sameUrl.map(({ method }) => method))].sort();
    return `The record holds this url with ${methods.join(" and ")}: ask with method=${methods[0]}.`;
  }
  const [samePath] = keepRecorded(view.urlIndex.withPath(normalised));
  if (samePath)
    return `The record holds ${formatEndpoint(samePath)}, which differs by its method and its ${differenceOf(normalised, samePath.url)}.`;
  const sameOrigin = view.urlIndex.withOrigin(normalised);
  const otherPaths = keepRecorded(sameOrigin);
  if (otherPaths.length === 0) return null;
  const shown = otherPaths.slice(0, MAX_NAMED).map(formatEndpoint).join(", ");
  const more =
    otherPaths.length > MAX_NAMED
      ? `, and ${sameOrigin.length > MAX_COMPARED ? "others" : `${otherPaths.length - MAX_NAMED} more`}`
      : "";
  return `The record holds other paths of this host: ${shown}${more}.`;
}
