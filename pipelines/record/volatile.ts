import { z } from "zod";
import { PayeeBuyers } from "./bodies.ts";
import type { HistoryNames } from "./history.ts";

/**
 * The volatile table: what changes faster than a card, one row a capability. The lake's owner brings it on every few
 * seconds by a further Arrow IPC file (`live/<partition>.<n>.arrow`) with the rows of what was touched, and serving folds
 * what is new. Unproven, never mirrored.
 */
export interface VolatileRow {
  capability_id: string;
  url: string;
  method: string;
  probes: number;
  answered: number;
  asked_for_payment: number;
  /** Unix ms, or null. */
  first_seen: number | null;
  last_seen: number | null;
  /**
   * What the newest 402 asked, whoever could pay it: money and asset of its first offer that can be read, else its first
   * asset without an amount; every CAIP-2 network in the order of the offers.
   */
  price: string | null;
  asset: string | null;
  networks: string[];
  /** `USD` where a unit of that asset is a dollar. */
  unit: string | null;
  /** Who that first offer pays. */
  asked_pay_to: string | null;
  /** Who our own rail would pay. */
  pay_to: string | null;
  /** Every payTo of the newest 402 in the order of its offers. */
  pay_tos: string[];
  /** Those of earlier 402s that it does not name, seen last first; with `pay_tos` at most {@link MAX_PAY_TOS}. */
  pay_tos_before: string[];
  /** Those that the seller's own listing names. */
  pay_tos_listed: string[];
  protocols: string[];
  /** CAIP-2 networks of the newest listing that names any. */
  networks_listed: string[];
  distinct_prices: number;
  /** Paid calls of ours (kind 1 rows), counted or not. */
  paid_calls: number;
  /** Of those: settled, nothing came, not paid back, not withdrawn; and Unix ms of the first one. */
  unserved: number;
  unserved_since: number | null;
  /** Who had that money, as JSON text of {@link Thefts}; null: nobody, or an endpoint of our own, which is not graded. */
  thefts: string | null;
  /** What showing the proof of a paid call once more brought last (vocabulary, RETRIES), and when; null: it was not tried. */
  retried: string | null;
  retried_at: number | null;
  /** Facts of payments beside the grade, as JSON text of {@link PaymentFacts}; null: none. */
  payments: string | null;
  /** Observations newer than `computed_at` of the published headline card. */
  observations_since: number;
  /** Records of that card that a later correction withdrew. */
  withdrawn_since: number;
  /** Defects of the newest listing and 402 as JSON text of an array of Defect. */
  defects: string;
  /** Corrections, disputes and reinstatements that are not in the tree yet, as JSON text of an array of {@link CorrectionRecord}. */
  corrected: string;
  /**
   * What our free handshake has beside method and url, as JSON text of {@link HandshakeRequest}; null: nothing, "": it cannot
   * be given.
   */
  request: string | null;
}

const Signed = z.object({ present: z.int(), unread: z.int(), valid: z.int(), authorised: z.int() });

/**
 * What payments showed beside the grade: signed offers of the newest 402, signed receipts of all paid calls, who settled
 * (sender of the transaction, those of most calls), seconds from the answer to the block (0: not after it; null: not known),
 * calls that were answered and never settled, and who else pays there, as read last.
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
  /** Absent in tables from before it was read. */
  buyers: PayeeBuyers.nullish(),
});
export type PaymentFacts = z.infer<typeof PaymentFacts>;

/** Null for none, and for text of another version. */
export function readPaymentFacts(text: string | null | undefined): PaymentFacts | null {
  try {
    return text ? (PaymentFacts.safeParse(JSON.parse(text)).data ?? null) : null;
  } catch {
    return null;
  }
}

/**
 * Payments of ours that settled on the chain, brought nothing, were not paid back and are not withdrawn, by the address
 * that had them: what grading counts as money taken. `days`: the first one of each of the newest three UTC days, unix ms,
 * newest first. Whether one of them counts depends on the moment of an answer too, as it does for grading.
 */
const Thefts = z.array(z.object({ pay_to: z.string().nullable(), days: z.array(z.number()) }));
export type Thefts = z.infer<typeof Thefts>;

/** Empty for none, and for text of another version. */
export function readThefts(text: string | null | undefined): Thefts {
  try {
    return text ? (Thefts.safeParse(JSON.parse(text)).data ?? []) : [];
  } catch {
    return [];
  }
}

/** A handshake as it is sent, where it is more than its method and url with an empty object as its body. */
const HandshakeRequest = z.strictObject({
  /** With the query of the example; of a template, with its placeholders filled. */
  url: z.string().optional(),
  body: z.string().optional(),
  /** Of a tool of an MCP server. */
  tool: z.string().optional(),
  arguments: z.record(z.string(), z.unknown()).optional(),
});
export type HandshakeRequest = z.infer<typeof HandshakeRequest>;

/** Longest JSON text of one, characters: serving holds it for every endpoint. */
export const HANDSHAKE_REQUEST_MAX = 8_192;

/** Null for text of another version. */
export function readHandshakeRequest(text: string): HandshakeRequest | null {
  try {
    return HandshakeRequest.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/** Payout addresses that are kept of one endpoint, those seen last (sql/samples/seen). */
export const MAX_PAY_TOS = 64;

/** A record of the topic `corrections`: what was withdrawn, disputed or taken back. */
export interface CorrectionRecord {
  kind: "correction" | "dispute" | "reinstated";
  body: Record<string, unknown>;
}

/** {topic: {partition: next offset}}. */
export type Positions = Record<string, Record<string, number>>;

/** Did any position go back? Then the log is another one. A partition that is not named any more counts as going back. */
export const wentBack = (before: Positions, after: Positions): boolean =>
  Object.entries(before).some(([topic, parts]) =>
    Object.entries(parts).some(([part, next]) => (after[topic]?.[part] ?? -1) < next),
  );

/** `live/view.json`: what serving follows. One swap moves index, delta, volatile tables and positions together. */
export interface View {
  v: 1;
  at: string;
  /** Key of the newest signed shard list, or null before the first index. */
  index: string | null;
  tree_size: number;
  /** Files of the volatile tables; of the rows of one endpoint the one in the last file that has any counts. */
  live: string[];
  /** {topic: {partition: next offset}} behind the volatile tables. */
  positions: Positions;
  /** The charts' files; views from before there were any have none. */
  history?: HistoryNames;
}
