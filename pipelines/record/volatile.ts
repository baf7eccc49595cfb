import { z } from "zod";
import { PayeeBuyers } from "./bodies.ts";
import type { HistoryNames } from "./history.ts";

/**
 * A row of the volatile table. The table has one row for each capability (one priced endpoint), with the facts that
 * change more often than the endpoint's card (its signed grade). Every few seconds the process that owns a partition
 * writes a further Arrow IPC file (`live/<partition>.<n>.arrow`) with the rows that changed, and the processes that
 * answer clients read the new files. The table is not signed or proven, and mirrors do not copy it.
 */
export interface VolatileRow {
  capability_id: string;
  url: string;
  method: string;
  /** Number of handshakes, of those that got any answer, and of those that got a 402. */
  probes: number;
  answered: number;
  asked_for_payment: number;
  /**
   * State (HANDSHAKE_STATES in bodies.ts) and HTTP status of the newest handshake (an unpaid request that should get
   * a 402). Both are null until a handshake gets anything but readable payment terms.
   */
  last_state: string | null;
  last_status: number | null;
  /** Times of the first and the newest handshake, unix ms; null before the first. */
  first_seen: number | null;
  last_seen: number | null;
  /**
   * Price and asset of the first readable offer in the newest 402, even if our wallets cannot pay it; else the first
   * asset without a price. `networks`: the CAIP-2 networks of all its offers, in their order.
   */
  price: string | null;
  asset: string | null;
  networks: string[];
  /** `USD` if one unit of `asset` is a dollar. */
  unit: string | null;
  /** Payee of the offer whose price is `price`; if there is none, of the first offer that names a payee. */
  asked_pay_to: string | null;
  /** Payee of the offer that our own wallets would pay. */
  pay_to: string | null;
  /** Every payTo (address to pay) of the newest 402, in the order of its offers. */
  pay_tos: string[];
  /**
   * payTos of earlier 402s that the newest 402 does not name, the last seen first. Together with `pay_tos` there are at
   * most {@link MAX_PAY_TOS}.
   */
  pay_tos_before: string[];
  /** payTos that the newest of the seller's own listings names. */
  pay_tos_listed: string[];
  /** Payment protocols (x402, mpp) of the newest 402. */
  protocols: string[];
  /** CAIP-2 networks of the newest listing that names any. */
  networks_listed: string[];
  /** Number of different prices that its 402s have asked so far. */
  distinct_prices: number;
  /** Number of our paid calls (rows of kind 1), including calls that grading leaves out. */
  paid_calls: number;
  /**
   * Number of paid calls that settled, got no answer, were not paid back and are not withdrawn; and the time of the
   * first such call, unix ms.
   */
  unserved: number;
  unserved_since: number | null;
  /**
   * The addresses that received the payments counted in `unserved`, as JSON text of {@link Thefts}; null if there are
   * none, and for an endpoint of our own, which is not graded.
   */
  thefts: string | null;
  /**
   * What the endpoint did when we last sent the proof of an already answered payment a second time (RETRY_OUTCOMES in
   * vocabulary.ts), and when that was; null if we never did.
   */
  retried: string | null;
  retried_at: number | null;
  /**
   * Facts about payments that do not change the grade, as JSON text of {@link PaymentFacts}; null if there are none.
   */
  payments: string | null;
  /**
   * Index of the leaf with the published headline card (the one card that `check` shows of an endpoint) from which the
   * next two members count; null if there was none. Absent in older tables.
   */
  card_leaf?: number | null;
  /** Number of observations newer than that card. */
  observations_since: number;
  /** Number of records behind that card that a later correction withdrew. */
  withdrawn_since: number;
  /** Defects of the newest listing and 402 as JSON text of an array of Defect. */
  defects: string;
  /**
   * Corrections, disputes and reinstatements that are not in the tree yet, as JSON text of an array of {@link
   * CorrectionRecord}.
   */
  corrected: string;
  /**
   * The parts of our unpaid request besides method and url, as JSON text of {@link HandshakeRequest}; null if there
   * are none; "" if the text is longer than {@link MAX_HANDSHAKE_REQUEST_CHARS}.
   */
  request: string | null;
}

const SignedCounts = z.object({ present: z.int(), unread: z.int(), valid: z.int(), authorised: z.int() });

/**
 * Facts that payments showed and that do not change the grade: signed offers of the newest 402; signed receipts of
 * all paid calls; the addresses that sent the most settlements (payments on the chain), with the seconds from the
 * answer to the settlement's block (0: the block is not later than the answer; null: not known); the number of calls
 * that were answered and never settled; and the newest counts of who else pays the payee.
 */
const PaymentFacts = z.object({
  offers: SignedCounts.nullable(),
  receipts: SignedCounts.nullable(),
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

/** Parses payment facts; returns null for null and for text of another version. */
export function readPaymentFacts(text: string | null | undefined): PaymentFacts | null {
  try {
    return text ? (PaymentFacts.safeParse(JSON.parse(text)).data ?? null) : null;
  } catch {
    return null;
  }
}

/**
 * Our payments that settled on the chain, got no answer, were not paid back and are not withdrawn, grouped by the
 * address that received them. Grading counts them as thefts (money taken without an answer). `days`: for each of the
 * newest three UTC days with such a payment, the time of the day's first one, unix ms, newest day first. Whether a
 * payment counts depends on its age, so it is decided when a client asks, by the rule that grading uses.
 */
const Thefts = z.array(z.object({ pay_to: z.string().nullable(), days: z.array(z.number()) }));
export type Thefts = z.infer<typeof Thefts>;

/** Parses thefts; returns an empty list for null and for text of another version. */
export function readThefts(text: string | null | undefined): Thefts {
  try {
    return text ? (Thefts.safeParse(JSON.parse(text)).data ?? []) : [];
  } catch {
    return [];
  }
}

/**
 * Our unpaid request to an endpoint, where it has more than a method, a url and an empty object as body; and the
 * input schema that the listing declares.
 */
const HandshakeRequest = z.strictObject({
  /** The url with the query of the declared example; for a url template, with its placeholders filled. */
  url: z.string().optional(),
  body: z.string().optional(),
  /** Name of the tool, for an endpoint of an MCP server. */
  tool: z.string().optional(),
  arguments: z.record(z.string(), z.unknown()).optional(),
  /** JSON Schema of the input as the listing declares it, shortened. */
  schema: z.record(z.string(), z.unknown()).optional(),
});
export type HandshakeRequest = z.infer<typeof HandshakeRequest>;

/**
 * Longest JSON text of a {@link HandshakeRequest}, characters. A serving process has one for every endpoint in
 * memory.
 */
export const MAX_HANDSHAKE_REQUEST_CHARS = 8_192;

/** Parses a handshake request; null for text of another version. */
export function readHandshakeRequest(text: string): HandshakeRequest | null {
  try {
    return HandshakeRequest.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/**
 * Largest number of payout addresses that are stored for one endpoint: those that its 402s named last
 * (sql/samples/seen).
 */
export const MAX_PAY_TOS = 64;

/** A record of the topic `corrections`. */
export interface CorrectionRecord {
  kind: "correction" | "dispute" | "reinstated";
  body: Record<string, unknown>;
}

/** {topic: {partition: next offset}}. */
export type Positions = Record<string, Record<string, number>>;

/**
 * Is any position in `after` lower than in `before`? Then `after` belongs to another log, since positions in one log
 * only grow. A partition that is missing in `after` counts as lower.
 */
export const isAnyPositionLower = (before: Positions, after: Positions): boolean =>
  Object.entries(before).some(([topic, parts]) =>
    Object.entries(parts).some(([part, next]) => (after[topic]?.[part] ?? -1) < next),
  );

/**
 * `live/view.json`, the file that the processes that answer clients poll. It is replaced as a whole, so that market
 * index, volatile tables and positions change together.
 */
export interface View {
  v: 1;
  /** When the file was written, RFC 3339. */
  at: string;
  /** Key of the newest signed list of the market index's files; null before the first index. */
  index: string | null;
  tree_size: number;
  /** Files of the volatile tables. If several files have a row of an endpoint, the row in the last file counts. */
  live: string[];
  /** Offsets below which all records are in the volatile tables: {topic: {partition: next offset}}. */
  positions: Positions;
  /** The files of the charts on endpoints' pages; absent in older views. */
  history?: HistoryNames;
}
