import type { BodyOf } from "../../record/bodies.ts";
import type { ListedClaim } from "../claims.ts";
import { hashOf } from "../json.ts";
import { type Draft, draft, Recorder } from "../recorder.ts";
import type { SourceRows, Stands } from "./standing.ts";

/** Attempts of one content that are recognised as the same content again. */
const MAX_KNOWN = 8;
/** A content that comes back more often within a day is dropped as a copy: a source that flaps is no news. */
const MAX_ATTEMPTS = 1_000;

/** The first attempt whose id no copy would be dropped for. */
function unused(of: Pick<Draft, "type" | "cap" | "slot">, used: ReadonlySet<string>): number {
  let attempt = 0;
  while (attempt < MAX_ATTEMPTS && used.has(Recorder.idOf({ ...of, attempt }))) attempt++;
  return attempt;
}

/**
 * The record of a listing, or the id of the one that says the same already. A reader drops a second record with one id
 * on one day, so content that went away and comes back wears the next attempt; across a restart the record tells
 * which ids were used today.
 * @param standing ids of listings that stand, for sources whose rows are not read
 */
export function listingDraft(
  claim: ListedClaim,
  content: string,
  state: SourceRows,
  standing: ReadonlySet<string>,
  at: Date,
): Draft | { standing: string } {
  const { cap, body } = claim;
  const slot = [body.source, body.source_id, content].join("\n");
  const of = { type: "listing" as const, cap, slot };
  const stands = state.rows.get(body.source_id);
  if (stands === undefined) {
    const base = Recorder.idOf(of);
    if (standing.has(base)) return { standing: base };
  } else if (!stands.gone && stands.cap === cap) {
    for (let attempt = 0; attempt < MAX_KNOWN; attempt++) {
      if (Recorder.idOf({ ...of, attempt }) === stands.eventId) return { standing: stands.eventId };
    }
  }
  return draft({ ...of, attempt: unused(of, state.used), at, body });
}

/** The record that a source no longer names a row. */
export function delistingDraft(source: string, sourceId: string, stands: Stands, state: SourceRows, at: Date): Draft {
  const body: BodyOf<"delisting"> = {
    source,
    source_id: sourceId,
    reason: "the source, read whole, names it no longer",
  };
  const of = { type: "delisting" as const, cap: stands.cap, slot: hashOf(body) ?? "" };
  return draft({ ...of, attempt: unused(of, state.used), at, body });
}
