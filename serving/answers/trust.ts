import { sha256hex } from "../../infra/canonical.ts";
import { Problem } from "../http/problem.ts";
import type { TrustResponse } from "../schemas/trust.ts";
import { cardOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { saidOf } from "./said.ts";

/** GET /v1/trust/{id}. @throws Problem unknown_capability when the record has never met this id. */
export function trustOf(view: View, cap: string): TrustResponse {
  const entry = view.entry(cap);
  if (!entry && !view.has(cap)) throw new Problem("unknown_capability", `${cap} is not in the record`);
  const { corrections, disputes } = saidOf(view, cap);
  return {
    schema: "svc.trust.v1",
    capability_id: cap,
    scorecards: (entry?.cards ?? []).map(cardOf),
    disputes: [...disputes],
    corrections: [...corrections],
  };
}

/** Strong ETag of a text that is made anew for each answer. */
export const etagOfText = (text: string): string => `"${sha256hex(text).slice(0, 32)}"`;
