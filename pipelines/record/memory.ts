import type { BodyOf, Claims } from "./bodies.ts";
import type { Mapping } from "./classes/mapping.ts";

/**
 * Queries of the observer (which probes and pays endpoints) and the planner on what was recorded so far. They read
 * the lake (the database of the log's rows). After a start the lake must first load everything that the log holds;
 * otherwise a planned call could be made twice.
 */
export interface Memory {
  /** Reads the capabilities (priced endpoints) that a catalogue or their seller lists now. */
  listed(): Promise<ListedCap[]>;
  /** Reads the urls of endpoints that their seller listed itself, and that were delisted after `since` (unix ms). */
  readLeftSellerUrls(since: number): Promise<string[]>;
  /**
   * Reads the listing records of one source (a catalogue, or a seller's own list): the newest record of each source
   * id (the source's name for an endpoint), and all records of that UTC day.
   */
  listingsOf(source: string, day: string): Promise<StandingListing[]>;
  /**
   * Reads the event ids of the records of that UTC day's planned calls: unpaid requests (handshakes) and intents to
   * pay.
   */
  recordedIdsOn(day: string): Promise<Set<string>>;
  /**
   * Reads at most `max` inputs that we made from a schema and whose paid calls passed, as `<cap> <request_sha256>`,
   * newest first.
   */
  passedInputs(max: number): Promise<string[]>;
  /**
   * Reads the intents (records written before a payment is sent) that have no result, because the process that wrote
   * them ended before the call did.
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
  /** Returns the verdicts on failures that buyers published, as far as they are not recorded yet. */
  findVerdicts(): Promise<Verdict[]>;
  /**
   * Is there a record after `since` (RFC 3339) of what this endpoint did when a payment proof was sent to it a second
   * time?
   */
  wasRetriedSince(cap: string, since: string): Promise<boolean>;
  /** Reads the payee of each endpoint's newest settlement (payment on the chain) after `since` (RFC 3339). */
  payees(since: string): Promise<PaidPayee[]>;
  /**
   * Reads the addresses, in lower case, of our wallets that signed a payment to this address after `since` (RFC
   * 3339).
   */
  walletsPaying(payTo: string, since: string): Promise<string[]>;
  /**
   * Reads the classes (kinds of endpoints with questions that we can check) and UTC days from `since` to before
   * `until` on which all calls of the class failed and at least `minPayees` payees were called.
   */
  failedClasses(since: string, until: string, minPayees: number): Promise<FailedClass[]>;
  /**
   * Reads the calls of a class on a UTC day that count for grading, got an answer, and were not withdrawn by a
   * correction.
   */
  callsOfClass(name: string, day: string): Promise<ClassCall[]>;
  /**
   * Sums the amounts of all payments that were signed on that UTC day, settled or not, for each capability and payee.
   */
  spentOn(day: string): Promise<SpentSum[]>;
}

/**
 * Whether one of our own calls reproduced a failure that a buyer published. Such a call is blind: it is paid from a
 * wallet that the seller does not know as ours (verification-method.md section 3).
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
  /** When counts of this payee's other payers were last recorded, RFC 3339, or null. */
  lastReadAt: string | null;
}

/** A class (a kind of endpoints) whose calls all failed on one UTC day, with the number of payees that were called. */
export interface FailedClass {
  class: string;
  day: string;
  payees: number;
}

/** A paid call whose input was a question of the endpoint's class. */
export interface ClassCall {
  /** Event id of its intent. */
  intent: string;
  cap: string;
  url: string;
  /** When the call was observed, RFC 3339. */
  t: string;
}

/** The sum of the payments for one endpoint to one address. */
export interface SpentSum {
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
  /**
   * What the newest listing states about the endpoint. A listing that the seller controls takes precedence over a
   * catalogue's.
   */
  claims: Claims;
  /**
   * Event id of the newest seller-controlled listing, or null. A 402 counts as dishonest only if it differs from this
   * listing.
   */
  sellerListing: string | null;
  sellerClaims: Claims | null;
  /**
   * Event ids of all current listings of the endpoint, also those in catalogues. An id follows from the listing's
   * content, so a listing with one of these ids is not written again.
   */
  standing: string[];
  /** Time of the first handshake, RFC 3339, or null. */
  firstSeen: string | null;
  /**
   * Number of blocks (six hours UTC each) in which at least one of our paid calls of the endpoint counts for its
   * grade.
   */
  paidBlocks: number;
  /**
   * State of re-tests (further calls after a failure): `failing` from a failed paid call until three calls in a row
   * pass; `passes`: how many have passed since. A failure that a buyer published counts too, and while there is no
   * verdict on it (`unconfirmed`), no pass is counted.
   */
  retest: { failing: boolean; passes: number; unconfirmed?: boolean };
  /** Price that the newest 402 asked, in dollars; null if it is not known. */
  lastPrice: string | null;
  lastPayTo: string | null;
  /**
   * The mapping by which we ask the endpoint questions of a class, and the results of its control inputs (trial calls
   * with known answers); absent or null if there is none. `dropped`: the mapping is no longer used.
   */
  mapped?: (Pick<Mapping, "id"> & { dropped: boolean; controls: number; passed: boolean }) | null;
  /**
   * Time of the newest 402, RFC 3339; null before the first. Absent if it is not known; then the planner does not
   * regard the endpoint as silent.
   */
  lastAsked?: string | null;
  /**
   * Time of the newest attempt at a paid call, RFC 3339: a signed payment, or a first request that was not followed
   * by a payment for a reason that is not our fault; null before the first.
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
  /** The source's own name for the endpoint. */
  source_id: string;
  cap: string;
  event_id: string;
  /** Is the record a delisting? */
  gone: boolean;
  /** Is the record the newest that the source has of this name? */
  newest: boolean;
  /** Normalised url of the endpoint; null if it is not known, as in a delisting that is read from the log. */
  url: string | null;
  /** Time of the record, unix ms. */
  at: number;
}

/** An intent and its Transfer (the payment on the chain); `seen` is null until the Transfer was found. */
export interface AwaitedIntent extends OpenIntent {
  seen: BodyOf<"settlement"> | null;
}

/** Largest number of unanswered payments that {@link Memory.readDebts} returns; older ones are left out. */
export const MAX_UNDELIVERED = 10_000;

export interface Debts {
  /** Payments that settled, got no answer and were not paid back. */
  owed: (AwaitedIntent & { seen: BodyOf<"settlement"> })[];
  /**
   * For each refunded intent, the Transfer by which the payee paid our wallet back. One Transfer refunds only one
   * intent.
   */
  refunds: { intent: string; tx: string; payee: string; wallet: string }[];
}
