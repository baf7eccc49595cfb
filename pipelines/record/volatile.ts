import { z } from "zod";
import { PayeeBuyers } from "./bodies.ts";
import type { HistoryNames } from "./history.ts";

/**
 * A row of the volatile table, which holds what changes faster than a card: one row for each capability. Every few
 * seconds the lake's owner writes a further Arrow IPC file (`live/<partition>.<n>.arrow`) with the rows that changed,
 * and serving reads the new files. Unproven, and never mirrored.
 */
export interface VolatileRow {
  capability_id: string;
  url: string;
  method: string;
  probes: number;
  answered: number;
  asked_for_payment: number;
  /**
   * State of the newest handshake (bodies, HANDSHAKE_STATES) and the status that came; null where each one saw terms, and
   * before the first.
   */
  last_state: string | null;
  last_status: number | null;
  /** Unix ms, or null. */
  first_seen: number | null;
  last_seen: number | null;
  /**
   * What the newest 402 asked, whoever could pay it: price and asset of its first offer that can be read, else its
   * first asset without an amount; and every CAIP-2 network in the order of the offers.
   */
  price: string | null;
  asset: string | null;
  networks: string[];
  /** `USD` where one unit of that asset is a dollar. */
  unit: string | null;
  /** Payee of that first offer. */
  asked_pay_to: string | null;
  /** Payee of the offer that our own rail would pay. */
  pay_to: string | null;
  /** Every payTo of the newest 402 in the order of its offers. */
  pay_tos: string[];
  /**
   * payTos of earlier 402s that the newest does not name, the last seen first; with `pay_tos` at most {@link
   * MAX_PAY_TOS}.
   */
  pay_tos_before: string[];
  /** payTos that the seller's own listing names. */
  pay_tos_listed: string[];
  protocols: string[];
  /** CAIP-2 networks of the newest listing that names any. */
  networks_listed: string[];
  distinct_prices: number;
  /** Our paid calls (kind 1 rows), whether they count or not. */
  paid_calls: number;
  /**
   * How many of them settled, got no answer, were not paid back and are not withdrawn; and the time of the first, unix
   * ms.
   */
  unserved: number;
  unserved_since: number | null;
  /**
   * The addresses that got that money, as JSON text of {@link Thefts}; null: none, or an endpoint of our own, which is
   * not graded.
   */
  thefts: string | null;
  /** What the last showing of a proof once more brought (vocabulary, RETRIES), and when; null: it was not tried. */
  retried: string | null;
  retried_at: number | null;
  /** Facts of payments beside the grade, as JSON text of {@link PaymentFacts}; null: none. */
  payments: string | null;
  /** Observations newer than `computed_at` of the published headline card. */
  observations_since: number;
  /** Records behind that card that a later correction withdrew. */
  withdrawn_since: number;
  /** Defects of the newest listing and 402 as JSON text of an array of Defect. */
  defects: string;
  /** Corrections, disputes and reinstatements that are not in the tree yet, as JSON text of an array of {@link CorrectionRecord}. */
  corrected: string;
  /**
   * What our free handshake sends beside method and url, as JSON text of {@link HandshakeRequest}; null: nothing; "":
   * it is too long to be given.
   */
  request: string | null;
}

const Signed = z.object({ present: z.int(), unread: z.int(), valid: z.int(), authorised: z.int() });

/**
 * What payments showed beside the grade: signed offers of the newest 402, signed receipts of all paid calls, the
 * senders of most settlements with the seconds from answer to block (0: the block was not later; null: not known), the
 * number of calls that were answered and never settled, and who else pays there, as read last.
 */
const PaymentFacts = z.object({
  offers: Signed.nullable(),
  receipts: Signed.nullable(),
  settlers: z.array(
    z.object({
      network: z.string(),
      sender: z.string(),
      calls: z.int(),
      median_s: z.int().nullable(),
      max_s: z.int().nullable(),
    }),
  ),
  unsettled: z.int(),
  /** Absent in older tables. */
  buyers: PayeeBuyers.nullish(),
});
export type PaymentFacts = z.infer<typeof PaymentFacts>;

/** Parses payment facts; null for none and for text of another version. */
export function readPaymentFacts(text: string | null | undefined): PaymentFacts | null {
  try {
    return text ? (PaymentFacts.safeParse(JSON.parse(text)).data ?? null) : null;
  } catch {
    return null;
  }
}

/**
 * Our payments that settled on the chain, got no answer, were not paid back and are not withdrawn, by the address that
 * got them: what grading counts as money taken. `days`: time of the first one of each of the newest three UTC days,
 * unix ms, newest first. Whether one of them counts also depends on the time of an answer, as it does for grading.
 */
const Thefts = z.array(z.object({ pay_to: z.string().nullable(), days: z.array(z.number()) }));
export type Thefts = z.infer<typeof Thefts>;

/** Parses thefts; empty for none and for text of another version. */
export function readThefts(text: string | null | undefined): Thefts {
  try {
    return text ? (Thefts.safeParse(JSON.parse(text)).data ?? []) : [];
  } catch {
    return [];
  }
}

/**
 * A handshake as it is sent, where it has more than its method, its url and an empty object as its body; and what is
 * declared of the input.
 */
const HandshakeRequest = z.strictObject({
  /** With the query of the example; for a template, with the placeholders filled. */
  url: z.string().optional(),
  body: z.string().optional(),
  /** For a tool of an MCP server. */
  tool: z.string().optional(),
  arguments: z.record(z.string(), z.unknown()).optional(),
  /** JSON Schema of the input as the listing declares it, shortened. */
  schema: z.record(z.string(), z.unknown()).optional(),
});
export type HandshakeRequest = z.infer<typeof HandshakeRequest>;

/** Longest JSON text of a {@link HandshakeRequest}, characters: serving holds one for every endpoint. */
export const HANDSHAKE_REQUEST_MAX = 8_192;

/** Parses a handshake request; null for text of another version. */
export function readHandshakeRequest(text: string): HandshakeRequest | null {
  try {
    return HandshakeRequest.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/** Most payout addresses that are kept of one endpoint, the last seen ones (sql/samples/seen). */
export const MAX_PAY_TOS = 64;

/** A record of the topic `corrections`. */
export interface CorrectionRecord {
  kind: "correction" | "dispute" | "reinstated";
  body: Record<string, unknown>;
}

/** {topic: {partition: next offset}}. */
export type Positions = Record<string, Record<string, number>>;

/** Did any position go back? Then this is another log. A partition that is missing afterwards counts as going back. */
export const wentBack = (before: Positions, after: Positions): boolean =>
  Object.entries(before).some(([topic, parts]) =>
    Object.entries(parts).some(([part, next]) => (after[topic]?.[part] ?? -1) < next),
  );

/**
 * `live/view.json`, which serving follows. It is replaced as a whole, so index, delta, volatile tables and positions
 * change together.
 */
export interface View {
  v: 1;
  at: string;
  /** Key of the newest signed shard list, or null before the first index. */
  index: string | null;
  tree_size: number;
  /** Files of the volatile tables. If several have rows of an endpoint, the one in the last file counts. */
  live: string[];
  /** The volatile tables were made from the records below these offsets: {topic: {partition: next offset}}. */
  positions: Positions;
  /** The charts' files; absent in older views. */
  history?: HistoryNames;
}
