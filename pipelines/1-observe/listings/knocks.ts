import type { Clock } from "../../../infra/clock.ts";
import { asListed, type KnockOnce, knockAsked } from "../asked.ts";
import type { ListedClaim } from "../claims.ts";
import { eachAtOnce } from "../lane.ts";
import { hostOf } from "../places.ts";
import { HostQueue } from "../queue.ts";

/** What one free handshake saw, or why there was none. */
export interface KnockSeen {
  capability_id: string;
  method: string;
  url: string;
  /** State of the handshake, `skipped` for an MCP tool (an HTTP knock says nothing of it). */
  state: string;
  status: number | null;
  latency_ms: number | null;
  protocols: string[];
  /** Money that our rail would pay, or null. */
  price: string | null;
  pay_to: string | null;
  defects: string[];
  /** Event id of the handshake in the log. */
  record_id: string | null;
  says?: string;
}

const skipped = (cap: string, url: string, method: string): KnockSeen => ({
  capability_id: cap,
  method,
  url,
  state: "skipped",
  status: null,
  latency_ms: null,
  protocols: [],
  price: null,
  pay_to: null,
  defects: [],
  record_id: null,
  says: "a tool of an MCP server is knocked at by plan, in a session",
});

/** Knocks in line at once: enough that one big host in front does not keep the others waiting. */
const MAX_WAITING = 5_000;

/**
 * Knocks once at every endpoint of these claims, without a plan and without paying: hosts in parallel, one call at a
 * time for each. Every handshake is durable before it is told.
 * @param tell called as each one ends, in that order
 * @throws NotRecorded when the log does not take a record; nothing is knocked at after that
 */
export async function knockListed(
  tools: KnockOnce,
  claims: readonly ListedClaim[],
  clock: Clock,
  hostsAtOnce: number,
  tell: (seen: KnockSeen) => void,
): Promise<void> {
  const byCap = new Map(claims.map((claim) => [claim.cap, claim]));
  const queue = new HostQueue(hostsAtOnce, MAX_WAITING);
  await eachAtOnce([...byCap.values()], MAX_WAITING, async ({ cap, body }) => {
    const { claims: said, normalised_url: url } = body;
    const method = said.method ?? (said.input_in === "body" ? "POST" : "GET");
    if (said.tool !== null) return tell(skipped(cap, url, method));
    const one = asListed(cap, url, method, said, body.seller_controlled);
    const { body: seen, eventId } = await queue.run(hostOf(url), () => knockAsked(tools, one, clock));
    tell({
      capability_id: cap,
      method,
      url,
      state: seen.state,
      status: seen.status,
      latency_ms: seen.latency_ms,
      protocols: seen.terms?.protocols ?? [],
      price: seen.price,
      pay_to: seen.pay_to,
      defects: (seen.terms?.defects ?? []).map(({ defect }) => defect),
      record_id: eventId,
      ...(seen.says === undefined ? {} : { says: seen.says }),
    });
  });
}
