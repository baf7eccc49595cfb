import type { BodyOf, Claims } from "./bodies.ts";
import type { Mapping } from "./classes/mapping.ts";

/**
 * What the record remembers, as the observer and the planner need it. Answered from the lake, which must have loaded
 * everything the log holds before the first question of a start (else a slot could be taken twice).
 */
export interface Memory {
  /** One row per capability that is listed now. */
  listed(): Promise<ListedCap[]>;
  /** What one source said: the newest record of each source id, and every record of that UTC day. */
  listingsOf(source: string, day: string): Promise<StandingListing[]>;
  /** Event ids of handshakes and intents whose planned slot lies on that UTC day. */
  doneOn(day: string): Promise<Set<string>>;
  /** Newest first, at most `most`: inputs that we made up and that passed, as `<cap> <request_sha256>`. */
  passedInputs(most: number): Promise<string[]>;
  /** Intents without a result: a process died between them. */
  openIntents(): Promise<OpenIntent[]>;
  /** Intents with a result whose Transfer was not seen yet and may still come, or was seen and is not final yet. */
  awaitingSettlement(): Promise<AwaitedIntent[]>;
  /** Payments of the last 90 days that settled, brought nothing and were not paid back; and what was paid back. */
  debts(): Promise<DebtsKnown>;
  /** Failures that buyers published and that calls of ours have confirmed, or have not, and nobody has said so yet. */
  verdicts(): Promise<Verdict[]>;
  /** Does a record since then (RFC 3339) say what showing a proof to this endpoint once more brought? */
  retriedSince(cap: string, since: string): Promise<boolean>;
  /** Whom the newest settlement of each endpoint since then (RFC 3339) went to. */
  payees(since: string): Promise<PaidPayee[]>;
  /** Wallets of ours with an intent since then (RFC 3339) to pay this address, lower case. */
  walletsPaying(payTo: string, since: string): Promise<string[]>;
  /**
   * Days from `since` and before `until` (UTC) on which questions of a class were asked of `least` payees and nobody
   * passed.
   */
  failedClasses(since: string, until: string, least: number): Promise<FailedClass[]>;
  /** Calls of a class and UTC day that count and were answered, and that no correction withdraws. */
  callsOfClass(name: string, day: string): Promise<ClassCall[]>;
  /** Every intent of that UTC day, whether it settled or not, summed for each cap and payee. */
  spentOn(day: string): Promise<Spent[]>;
}

/** Of a published failure: whether one of our own blind calls after it failed in the same way (method, section 3). */
export interface Verdict {
  /** Event id of the published call. */
  of: string;
  cap: string;
  kind: "reproduced" | "not_reproduced";
}

/** Where payments of ours for an endpoint arrive, by the chain's word. */
export interface PaidPayee {
  cap: string;
  url: string;
  network: string;
  asset: string;
  payTo: string;
  /** When a record last said who else pays there, RFC 3339, or null. */
  read: string | null;
}

/** A class that nobody passed on a day. */
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

/** What one endpoint was paid to one address. */
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
  /** Newest claims; those of a seller-controlled listing go before a catalogue's. */
  claims: Claims;
  /** Event id of the newest seller-controlled listing, or null: only against that one can a 402 be dishonest. */
  sellerListing: string | null;
  sellerClaims: Claims | null;
  /** Event ids of every listing that stands behind it now, catalogues' too: the same content is not written again. */
  standing: string[];
  /** First handshake ever, RFC 3339, or null. */
  firstSeen: string | null;
  /** Distinct blocks with a paid row that counts (kind 1, no fault of ours), ever. */
  paidBlocks: number;
  /**
   * Re-test state from its paid rows in time order: after a failure, until three pass in a row. A failure that a buyer
   * published and that waits for its verdict is one as well.
   */
  retest: { failing: boolean; passes: number };
  /** Quote of the newest answered 402, money, or null. */
  lastPrice: string | null;
  lastPayTo: string | null;
  /**
   * The mapping of ours that stands for it, and what came of its control inputs; absent or null where there is none.
   */
  mapped?: (Pick<Mapping, "id"> & { dropped: boolean; controls: number; passed: boolean }) | null;
  /** Newest 402 that was seen, RFC 3339, null before the first; where it is not known, nobody counts as silent. */
  lastAsked?: string | null;
  /** Newest paid call that was tried, RFC 3339: an intent, or a first leg that could not be paid through no fault of ours. */
  lastTried: string | null;
}

export interface OpenIntent {
  eventId: string;
  cap: string;
  observedAt: string;
  intent: BodyOf<"paid.intent">;
}

/** One record of a source that lists. */
export interface StandingListing {
  source_id: string;
  cap: string;
  event_id: string;
  /** A delisting. */
  gone: boolean;
  /** Is it the newest of its source id? */
  newest: boolean;
}

/** An intent, and its Transfer as far as the record has seen it. */
export interface AwaitedIntent extends OpenIntent {
  seen: BodyOf<"settlement"> | null;
}

/** Undelivered payments that are told and kept in hand, those paid last. */
export const MAX_UNDELIVERED = 10_000;

export interface DebtsKnown {
  owed: (AwaitedIntent & { seen: BodyOf<"settlement"> })[];
  /** Which Transfer from payee to wallet paid which intent back: it pays no other. */
  refunds: { intent: string; tx: string; payee: string; wallet: string }[];
}
