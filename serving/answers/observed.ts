import { DAY_MS, rfc3339 } from "../../pipelines/record/time.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Observed } from "../schemas/check.ts";

const timeOf = (ms: number | null): string | null => (ms === null ? null : rfc3339(new Date(ms)));

/** What free handshakes saw. `spanDays` runs from the first handshake to now, to a hundredth of a day. */
export function observedOf(row: VolatileRow | undefined, now: Date): Observed {
  const span = row?.first_seen == null ? 0 : Math.max(0, now.getTime() - row.first_seen) / DAY_MS;
  return {
    probes: row?.probes ?? 0,
    answered: row?.answered ?? 0,
    askedForPayment: row?.asked_for_payment ?? 0,
    firstSeen: timeOf(row?.first_seen ?? null),
    lastSeen: timeOf(row?.last_seen ?? null),
    spanDays: Math.round(span * 100) / 100,
    advertised:
      row?.price == null || row.asset === null
        ? null
        : { amount: row.price, asset: row.asset, networks: [...row.networks] },
    distinctPrices: row?.distinct_prices ?? 0,
    protocols: row ? [...row.protocols] : [],
  };
}

/** A word of a POSIX shell command line, in single quotes. */
export const shellWord = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Flags of curl that make our handshake: no globbing, no redirect, 20 s in all, status and headers shown. */
const HANDSHAKE = "curl -gsSi -m 20 -H 'Accept: application/json'";
const WITH_BODY = "-H 'Content-Type: application/json' -d '{}'";

/** The same free handshake from anywhere: method and url, without payment; an empty JSON object where a body belongs. */
export function handshakeCommand(method: string, url: string): string {
  if (method === "GET") return `${HANDSHAKE} ${shellWord(url)}`;
  const body = method === "DELETE" ? "" : `${WITH_BODY} `;
  return `${HANDSHAKE} -X ${method} ${body}${shellWord(url)}`;
}
