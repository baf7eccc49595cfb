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

/** A line of the archive from a probe (records.md, Archive rows), without its newline: RFC 8785. */
export function probeLine({ event_id, cap, t, body }: ProbeRow, isTool: boolean): string {
  const { state, status, latency_ms, price, terms, ...seen } = JSON.parse(body) as BodyOf<"mcp.probe">;
  const offers = terms?.offers ?? [];
  const fault = seen.fault ?? (seen.wall ? "blocked" : null);
  const networks = [...new Set(offers.map((offer) => offer.network))];
  return printed({
    amount: price ?? null,
    asset: offers.find((offer) => offer.payable)?.asset ?? offers[0]?.asset ?? null,
    capability_id: cap,
    counts: fault === null || fault === "blocked",
    fault,
    initialize_ms: isTool ? (seen.initialize_ms ?? null) : undefined,
    latency_ms: latency_ms ?? null,
    networks: networks.length > 1 ? networks.sort(bytewise) : networks,
    observed_at: rfc3339(new Date(t)),
    protocols: terms?.protocols ?? [],
    record_id: event_id,
    state: state ?? null,
    status: status ?? null,
    terms_sha256: terms?.sha256 ?? null,
    tool: isTool ? (seen.tool ?? null) : undefined,
    tool_present: isTool ? (seen.tool_present ?? null) : undefined,
  });
}

/**
 * RFC 8785, in a fifth of the time: of an object whose names are in order already and whose values have nothing in them,
 * JSON.stringify prints the same, but for what RFC 8785 refuses.
 * @throws TypeError as canonicalText does
 */
function printed(line: Record<string, unknown>): string {
  if (!Object.values(line).every((value) => isFlat(value) || (Array.isArray(value) && value.every(isFlat))))
    return canonicalText(line);
  const text = JSON.stringify(line);
  // Half of a surrogate pair may be in it.
  return text.includes("\\ud") ? canonicalText(line) : text;
}

const isFlat = (value: unknown): boolean =>
  typeof value === "number" ? Number.isFinite(value) : typeof value !== "object" || value === null;

const bytewise = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));
