import type { BodyOf, Claims } from "./bodies.ts";
import type { Mapping } from "./classes/mapping.ts";

/**
 * Reads for the observer and the planner from the record, that is, from the lake (the database of the log's rows).
 * After a start the lake must first load everything that the log holds; otherwise a planned call could be made twice.
 */
export interface Memory {
  /** The capabilities (priced endpoints) that are listed now, one row each. */
  listed(): Promise<ListedCap[]>;
  /** Reads the listing records of one source: the newest of each source id, and all of that UTC day. */
  listingsOf(source: string, day: string): Promise<StandingListing[]>;
  /** Reads the event ids of handshakes and intents whose planned slot is on that UTC day. */
  recordedIdsOn(day: string): Promise<Set<string>>;
  /** Reads at most `max` synthetic inputs whose calls passed, as `<cap> <request_sha256>`, newest first. */
  passedInputs(max: number): Promise<string[]>;
  /**
   * Reads the intents (records written before a payment is sent) without a result, because the process that wrote the
   * intent ended too early.
   */
  openIntents(): Promise<OpenIntent[]>;
  /**
   * Reads the intents with a result whose Transfer (the payment on the chain) was not seen yet and may still appear, or
   * was seen and is not final yet.
   */
  awaitingSettlement(): Promise<AwaitedIntent[]>;
  /**
   * Reads the payments of the last 90 days that settled, got no answer and were not paid back; and all refunds so far.
   */
  readDebts(): Promise<Debts>;
  /** Returns verdicts, not recorded yet, on failures that buyers published. */
  findVerdicts(): Promise<Verdict[]>;
  /** Was a payment proof sent to this endpoint a second time after `since` (RFC 3339), with a recorded result? */
  retriedSince(cap: string, since: string): Promise<boolean>;
  /** Reads the payee of each endpoint's newest settlement after `since` (RFC 3339). */
  payees(since: string): Promise<PaidPayee[]>;
  /** Reads our wallets, in lower case, that had an intent to pay this address after `since` (RFC 3339). */
  walletsPaying(payTo: string, since: string): Promise<string[]>;
  /**
   * Reads the classes whose calls all failed on a UTC day from `since` to before `until`, with at least `minPayees`
   * payees called.
   */
  failedClasses(since: string, until: string, minPayees: number): Promise<FailedClass[]>;
  /**
   * Reads the calls of a class on a UTC day that count for grading, were answered, and were not withdrawn by a
   * correction.
   */
  callsOfClass(name: string, day: string): Promise<ClassCall[]>;
  /** Sums the amounts of all intents of that UTC day, settled or not, for each capability and payee. */
  spentOn(day: string): Promise<Spent[]>;
}

/**
 * Whether one of our own calls reproduced a failure that a buyer published. Such a call is blind: its wallet is unknown
 * to the seller (verification-method.md section 3).
 */
export interface Verdict {
  /** Event id of the published call. */
  of: string;
  cap: string;
  kind: "reproduced" | "not_reproduced";
}

/** The payee that received our payments for an endpoint, as read from the chain. */
export interface PaidPayee {
  cap: string;
  url: string;
  network: string;
  asset: string;
  payTo: string;
  /** When the other payers of this payee were last recorded, RFC 3339, or null. */
  lastReadAt: string | null;
}

/** A class whose calls all failed on one day, with the number of payees that were called. */
export interface FailedClass {
  class: string;
  day: string;
  payees: number;
}

/** A paid call with a question of a class. */
export interface ClassCall {
  /** Event id of its intent. */
  intent: string;
  cap: string;
  url: string;
  /** When the call was observed, RFC 3339. */
  t: string;
}

/** The sum of an endpoint's payments to one address. */
export interface Spent {
  cap: string;
  /** Host with its port. */
  host: string;
  payTo: string;
  micro: bigint;
}

export interface ListedCap {
  cap: string;
  url: string;
  method: string;
  tool: string | null;
  /** Newest claims: those of a seller-controlled listing, else those of a catalogue. */
  claims: Claims;
  /** Event id of the newest seller-controlled listing, or null. A 402 can be dishonest only against this listing. */
  sellerListing: string | null;
  sellerClaims: Claims | null;
  /**
   * Event ids of all current listings of the endpoint, also those in catalogues. A listing whose content gives one of
   * these ids is not written again.
   */
  standing: string[];
  /** Time of the first handshake, RFC 3339, or null. */
  firstSeen: string | null;
  /**
   * Number of blocks (six hours UTC) in which the endpoint has a paid row that counts (kind 1, not excused as our own
   * fault).
   */
  paidBlocks: number;
  /**
   * Re-test state from the endpoint's paid rows in time order: `failing` from a failure until three calls in a row
   * pass. A failure that a buyer published counts too, until there is a verdict on it.
   */
  retest: { failing: boolean; passes: number };
  /** Quote of the newest answered 402, as money, or null. */
  lastPrice: string | null;
  lastPayTo: string | null;
  /**
   * The mapping to a class that we made for the endpoint, and the results of its control inputs (trial calls); absent
   * or null if there is none.
   */
  mapped?: (Pick<Mapping, "id"> & { dropped: boolean; controls: number; passed: boolean }) | null;
  /**
   * Time of the newest 402, RFC 3339; null before the first. Absent if it is not known; then the endpoint does not
   * count as silent.
   */
  lastAsked?: string | null;
  /**
   * Time of the newest attempt at a paid call, RFC 3339: an intent, or a first request that could not be paid for a
   * reason that is not our fault.
   */
  lastTried: string | null;
}

export interface OpenIntent {
  eventId: string;
  cap: string;
  observedAt: string;
  intent: BodyOf<"paid.intent">;
}

/** One record of a source of listings. */
export interface StandingListing {
  source_id: string;
  cap: string;
  event_id: string;
  /** Is the record a delisting? */
  gone: boolean;
  /** Is the record the newest of its source id? */
  newest: boolean;
}

/** An intent and its Transfer; `seen` is null until the Transfer was found on the chain. */
export interface AwaitedIntent extends OpenIntent {
  seen: BodyOf<"settlement"> | null;
}

/** Most payments without an answer that are returned: the newest ones. */
export const MAX_UNDELIVERED = 10_000;

export interface Debts {
  owed: (AwaitedIntent & { seen: BodyOf<"settlement"> })[];
  /** For each refunded intent, the Transfer from payee to wallet. One Transfer refunds only one intent. */
  refunds: { intent: string; tx: string; payee: string; wallet: string }[];
}
