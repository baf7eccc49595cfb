import { canonicalText } from "../../infra/canonical.ts";
import type { BodyOf } from "../record/bodies.ts";
import { rfc3339 } from "../record/time.ts";

/** One probe as the lake keeps it. */
export interface ProbeRow {
  event_id: string;
  cap: string;
  /** Unix ms. */
  t: number;
  /** JSON. */
  body: string;
}

/**
 * A line of the archive from a probe (records.md, Archive rows): what sql/64 makes of nearly all of them, written a second
 * time for the few whose text the engine prints in another way than RFC 8785.
 */
export function probeLine({ event_id, cap, t, body }: ProbeRow, isTool: boolean): string {
  const { state, status, latency_ms, price, terms, ...seen } = JSON.parse(body) as BodyOf<"mcp.probe">;
  const offers = terms?.offers ?? [];
  const fault = seen.fault ?? (seen.wall ? "blocked" : null);
  const { initialize_ms = null, tool = null, tool_present = null } = seen;
  return canonicalText({
    record_id: event_id,
    capability_id: cap,
    observed_at: rfc3339(new Date(t)),
    state: state ?? null,
    counts: fault === null || fault === "blocked",
    status: status ?? null,
    latency_ms: latency_ms ?? null,
    protocols: terms?.protocols ?? [],
    amount: price ?? null,
    asset: offers.find((offer) => offer.payable)?.asset ?? offers[0]?.asset ?? null,
    networks: [...new Set(offers.map((offer) => offer.network))].sort(bytewise),
    terms_sha256: terms?.sha256 ?? null,
    fault,
    ...(isTool ? { initialize_ms, tool, tool_present } : {}),
  });
}

const bytewise = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));
