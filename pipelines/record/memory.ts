import type { BodyOf, Claims } from "./bodies.ts";
import type { Mapping } from "./classes/mapping.ts";

/**
 * What observer and planner read from the record. It is answered from the lake. Before the first question after a start
 * the lake must have loaded everything that the log holds: otherwise a slot could be called twice.
 */
export interface Memory {
  /** The capabilities that are listed now, one row each. */
  listed(): Promise<ListedCap[]>;
  /** Records of one source: the newest of each source id, and all of that UTC day. */
  listingsOf(source: string, day: string): Promise<StandingListing[]>;
  /** Event ids of handshakes and intents whose planned slot lies on that UTC day. */
  doneOn(day: string): Promise<Set<string>>;
  /** Inputs that we made up and that passed, as `<cap> <request_sha256>`, newest first, at most `most`. */
  passedInputs(most: number): Promise<string[]>;
  /** Intents without a result: the process that wrote the intent ended before the result. */
  openIntents(): Promise<OpenIntent[]>;
  /** Intents with a result whose Transfer was not seen yet and may still come, or was seen and is not final yet. */
  awaitingSettlement(): Promise<AwaitedIntent[]>;
  /** Payments of the last 90 days that settled, got no answer and were not paid back; and all refunds. */
  debts(): Promise<DebtsKnown>;
  /** Verdicts that are not recorded yet on failures that buyers published. */
  verdicts(): Promise<Verdict[]>;
  /** Does the record hold, since then (RFC 3339), the result of showing a proof to this endpoint once more? */
  retriedSince(cap: string, since: string): Promise<boolean>;
  /** The payee of each endpoint's newest settlement since then (RFC 3339). */
  payees(since: string): Promise<PaidPayee[]>;
  /** Our wallets with an intent since then (RFC 3339) to pay this address, lower case. */
  walletsPaying(payTo: string, since: string): Promise<string[]>;
  /**
   * Days from `since` to before `until` (UTC) and classes of which at least `least` payees were asked and none passed.
   */
  failedClasses(since: string, until: string, least: number): Promise<FailedClass[]>;
  /** Calls of a class on a UTC day that count, were answered, and are withdrawn by no correction. */
  callsOfClass(name: string, day: string): Promise<ClassCall[]>;
  /** All intents of that UTC day, settled or not, summed for each capability and payee. */
  spentOn(day: string): Promise<Spent[]>;
}

/**
 * Whether one of our own blind calls after a failure that a buyer published failed in the same way (method, section 3).
 */
export interface Verdict {
  /** Event id of the published call. */
  of: string;
  cap: string;
  kind: "reproduced" | "not_reproduced";
}

/** Where our payments for an endpoint arrive, as read from the chain. */
export interface PaidPayee {
  cap: string;
  url: string;
  network: string;
  asset: string;
  payTo: string;
  /** When the newest record of its other payers was made, RFC 3339, or null. */
  read: string | null;
}

/** A class of which at least some payees were asked on a day, and none passed. */
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
  /** When it was observed, RFC 3339. */
  t: string;
}

/** The sum of an endpoint's payments to one address. */
export interface Spent {
  cap: string;
  /** With port. */
  host: string;
  payTo: string;
  micro: bigint;
}

export interface ListedCap {
  cap: string;
  url: string;
  method: string;
  tool: string | null;
  /** Newest claims: those of a seller-controlled listing, else a catalogue's. */
  claims: Claims;
  /** Event id of the newest seller-controlled listing, or null. A 402 can be dishonest only against this listing. */
  sellerListing: string | null;
  sellerClaims: Claims | null;
  /** Event ids of all its current listings, catalogues' too; content that has one of these ids is not written again. */
  standing: string[];
  /** First handshake ever, RFC 3339, or null. */
  firstSeen: string | null;
  /** Number of blocks in which it has a paid row that counts (kind 1, not excused as ours). */
  paidBlocks: number;
  /**
   * Re-test state from its paid rows in time order: `failing` after a failure until three calls in a row pass. A
   * failure that a buyer published and that has no verdict yet counts as one.
   */
  retest: { failing: boolean; passes: number };
  /** Quote of the newest answered 402, as money, or null. */
  lastPrice: string | null;
  lastPayTo: string | null;
  /** Its current mapping, which we made, and the results of its control inputs; absent or null where there is none. */
  mapped?: (Pick<Mapping, "id"> & { dropped: boolean; controls: number; passed: boolean }) | null;
  /**
   * Time of the newest 402, RFC 3339; null before the first. Absent where it is not known: then it does not count as
   * silent.
   */
  lastAsked?: string | null;
  /**
   * Time of the newest paid call that was tried, RFC 3339: an intent, or a first request that could not be paid, not by
   * our fault.
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
  /** Is it a delisting? */
  gone: boolean;
  /** Is it the newest of its source id? */
  newest: boolean;
}

/** An intent and its Transfer, null while it was not seen. */
export interface AwaitedIntent extends OpenIntent {
  seen: BodyOf<"settlement"> | null;
}

/** Most undelivered payments that are returned and remembered, the newest ones. */
export const MAX_UNDELIVERED = 10_000;

export interface DebtsKnown {
  owed: (AwaitedIntent & { seen: BodyOf<"settlement"> })[];
  /** The Transfer from payee to wallet that refunded an intent; it refunds no other one. */
  refunds: { intent: string; tx: string; payee: string; wallet: string }[];
}
