import type { Egress } from "../../infra/egress/egress.ts";
import type { BodyOf } from "../../pipelines/record/bodies.ts";
import { capId, isId } from "../../pipelines/record/ids.ts";
import { BadUrl, normaliseUrl } from "../../pipelines/record/url.ts";
import { type FieldError, Problem } from "../http/problem.ts";
import { matchUrl } from "../tables/match.ts";
import type { View } from "../tables/view.ts";

type Watched = BodyOf<"watcher.created">["watched"][number];

/**
 * Which endpoints are meant by what somebody wants to watch. A url that the record has not met is watched under the ids that
 * it would be listed with, GET and POST: its first card makes a notice.
 * @throws Problem bad_request with a pointer for each item that can never have a card
 */
export function watchedOf(view: View, watch: readonly string[], judge: Egress["validate"]): Watched[] {
  const errors: FieldError[] = [];
  const watched = watch.flatMap((asked, i) => {
    const one = meant(view, asked, judge);
    if (typeof one !== "string") return [one];
    errors.push({ pointer: `/watch/${i}`, detail: one });
    return [];
  });
  if (errors.length === 0) return watched;
  throw new Problem("bad_request", errors.map(({ pointer, detail }) => `${pointer.slice(1)} ${detail}`).join("; "), {
    errors: errors.slice(0, 20),
  });
}

/** The item, or what is wrong with it. */
function meant(view: View, asked: string, judge: Egress["validate"]): Watched | string {
  if (isId("cap", asked)) {
    return view.has(asked) ? { asked, matched: "exact", capability_ids: [asked] } : "is not in the record";
  }
  let url: string;
  try {
    url = normaliseUrl(asked);
  } catch (error) {
    if (error instanceof BadUrl) return `is no endpoint: ${error.says}`;
    throw error;
  }
  const match = matchUrl(view, url);
  if (match) return { asked, matched: match.matched, capability_ids: [match.cap] };
  const verdict = judge(url);
  if (!verdict.ok) return `is never fetched: ${verdict.says}`;
  return { asked, matched: "none", capability_ids: [capId("GET", url), capId("POST", url)] };
}
