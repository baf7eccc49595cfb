import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { Mapping } from "./classes/mapping.ts";
import { OrderStep, PaymentForms } from "./order-step.ts";
import { RFC3339 } from "./time.ts";
import type { Topic } from "./topics.ts";
import { BANDS, FAULTS, MATCHED, METHODS, NOTICE_CHANGES, PROTOCOLS, RETRY_OUTCOMES, TIERS } from "./vocabulary.ts";

/** Bodies of the log's records, version 1. Almost all schemas are loose: they keep members that they do not know. */
const Money = z.string().regex(/^\d{1,12}\.\d{6}$/);
/** A sum of money. It may have more than twelve digits before the dot, unlike a single amount. */
const SumOfMoney = z.string().regex(/^\d{1,40}\.\d{6}$/);
const Atomic = z.string().regex(/^\d{1,78}$/);
const Time = z.string().regex(RFC3339);
const Id = z.string().max(64);
const Explanation = z.string().max(2000);

/** When a call was planned: its block (six hours UTC, counted since 1970) and the minute within the block. */
const Slot = z.looseObject({ block: z.int(), minute: z.int().min(0).max(359) });

/**
 * The result of control calls: requests, made just after a failed call, to addresses that we know to be up. `ok` is
 * false if most of them failed too; then the fault is ours and not the seller's. `url` is one of the addresses.
 */
const Control = z.looseObject({ url: z.string(), ok: z.boolean(), at: Time });

const DefectSeen = z.looseObject({ defect: z.string().max(60), says: Explanation });

/**
 * One offer (way to pay) of a 402 or a listing. Parts that we understand are normalised; `network_raw` is the network
 * as the seller wrote it.
 */
export const Offer = z.looseObject({
  scheme: z.string().max(60),
  /** CAIP-2 id if we know the network, else the text that the seller wrote. */
  network: z.string().max(120),
  network_raw: z.string().max(120),
  asset: z.string().max(200).nullable(),
  pay_to: z.string().max(200).nullable(),
  amount_atomic: Atomic.nullable(),
  decimals: z.int().min(0).max(36).nullable(),
  /** The amount in dollars; null if we cannot convert amounts of the asset. */
  price: Money.nullable(),
  max_timeout_s: z.int().nullable(),
  /** Can our wallets pay this offer? */
  payable: z.boolean(),
});
export type Offer = z.infer<typeof Offer>;

/** The payment terms of a 402 (x402 or mpp). */
export const Terms = z.looseObject({
  sha256: Sha256Hex,
  protocols: z.array(z.enum(PROTOCOLS)),
  x402_version: z.int().nullable(),
  offers: z.array(Offer).max(64),
  defects: z.array(DefectSeen).max(64),
  /** sha256 of the RFC 8785 bytes of the output schema advertised in the 402, if any. */
  schema_sha256: Sha256Hex.nullable(),
});
export type Terms = z.infer<typeof Terms>;

export const HANDSHAKE_STATES = [
  "asked", // a parseable 402
  "free", // an answer without asking for payment
  "malformed", // a 402 whose payment terms cannot be read
  "wall", // 403, 429 or a bot wall
  "status", // any other status
  "silent", // timeout, transport error, cut, too large
  "unfetchable", // our egress rules refused the address, so no request was sent
] as const;

/** An unpaid request to an endpoint (a handshake), which should be answered with a 402, and what came of it. */
const Handshake = z.looseObject({
  slot: Slot,
  /**
   * Why this unpaid request was made: as a free probe, as the first request of a paid call that was then not paid, or
   * for an ask (a client's request to probe a url).
   */
  planned: z.enum(["free", "paid", "asked"]),
  state: z.enum(HANDSHAKE_STATES),
  /** Only for an ask: the probed url and HTTP method. */
  url: z.string().max(4096).optional(),
  method: z.enum(METHODS).optional(),
  /** Was the answer a readable 402, or a 2xx without asking for payment, and in time (ten seconds)? */
  live: z.boolean(),
  /** Does the 402 agree with the seller's listing? null when there was nothing to compare. */
  honest: z.boolean().nullable(),
  /** Was the request answered by a wall against robots, or with 403 or 429? */
  wall: z.boolean(),
  /** Why the request may not count as a sample; null for no such reason. */
  fault: z.enum(FAULTS).nullable(),
  status: z.int().nullable(),
  latency_ms: z.number().min(0).nullable(),
  /** Price of the offer that our wallets would pay, in dollars; null when there is no such offer. */
  price: Money.nullable(),
  pay_to: z.string().max(200).nullable(),
  terms: Terms.nullable(),
  /** Differences from the seller-controlled listing, with the texts of `DEFECTS`. */
  differs: z.array(DefectSeen).max(32),
  control: Control.optional(),
  /** Counts of the signed offers in the 402 (x402 extension `offer-receipt`). No grade depends on them. */
  signed_offers: z
    .looseObject({
      present: z.int().min(1),
      /** Offers that were not checked, because they are not in EIP-712 form or the 402 has too many. */
      unread: z.int().min(0),
      /** Offers whose signature is valid and covers an offer of this 402. */
      valid: z.int().min(0),
      /** Valid offers that the payee's own key signed. */
      authorised: z.int().min(0),
    })
    .optional(),
  says: Explanation.optional(),
});

/** What a listing states about an endpoint. Only the url is always stated. */
export const Claims = z.looseObject({
  url: z.string().max(4096),
  method: z.enum(METHODS).nullable(),
  tool: z.string().max(200).nullable(),
  description: z.string().max(2000).nullable(),
  /**
   * Class of the endpoint, which determines how answers are checked (`record/classes.ts`); `any` when no class fits.
   */
  class: z.string().max(60),
  offers: z.array(Offer).max(64),
  /** True when the listing names a fixed price. Only then is the price of a 402 compared with the listing's. */
  fixed_price: z.boolean(),
  /** An input that the seller declares valid: query parameters or JSON body. */
  example: z
    .looseObject({ query: z.record(z.string(), z.string()).optional(), body: z.unknown().optional() })
    .nullable(),
  input_schema: z.unknown().optional(),
  output_schema: z.unknown().optional(),
  output_mime: z.string().max(120).nullable(),
});
export type Claims = z.infer<typeof Claims>;

/**
 * A source (a catalogue, or a seller's own list) lists an endpoint, or has changed what it states about it. `source`:
 * the source's address or name. `source_id`: identifies the endpoint within the source.
 */
const Listing = z.looseObject({
  source: z.string().max(300),
  source_id: z.string().max(4096),
  seller_controlled: z.boolean(),
  normalised_url: z.string().max(4096),
  claims: Claims,
  defects: z.array(DefectSeen).max(64),
});

/** A source no longer lists an endpoint. */
const Delisting = z.looseObject({ source: z.string().max(300), source_id: z.string().max(4096), reason: Explanation });

/**
 * Our mapping of an endpoint to a class (a kind of endpoints with questions to which we know the answers): the class,
 * the question, and where the answer is; null if the endpoint no longer has a mapping. An endpoint whose seller names
 * the class has no such record. `dropped`: the mapping is not used, because no control input (a trial call with a
 * known answer) passed.
 */
const ClassMapped = z.looseObject({ mapping: Mapping.nullable(), dropped: z.boolean() });

/**
 * The question of a paid call, to which we know the right answer. With this record and the bytes of the seller's
 * answer anybody can compute the score again.
 */
const KnownAnswer = z.looseObject({
  class: z.string().max(60),
  variant: z.string().max(60),
  /** JSON pointer to the value that is scored; null if the whole answer is scored as text. */
  answer: z.string().max(500).nullable(),
  /** The right answer, as we knew it when we made the question. */
  truth: z.unknown(),
  /** Id of the mapping by which the question was made; null if the seller names the class itself. */
  mapping: Sha256Hex.nullable(),
  /**
   * True if this call only tests our mapping of the endpoint to the class, so that it never counts as a sample. That
   * is decided and recorded before the call.
   */
  control: z.boolean(),
});

/** A paid call that is about to be made. It is written to the log before the signed payment is sent. */
const PaidIntent = z.looseObject({
  slot: Slot,
  attempt: z.int().min(0),
  planned_at: Time,
  /**
   * Weight of the call in the grade, fixed before its outcome is known: 1 if only the planned calls of the day are
   * made; planned/actual number of calls if re-tests (further calls after a failure) are added.
   */
  w: z.number().gt(0).max(1),
  /** Is this a re-test, that is, a further call because an earlier one failed? */
  retest: z.boolean(),
  /** Is the call paid from a wallet that the seller does not know as ours? */
  blind: z.boolean(),
  wallet: z.string().max(120),
  input: z.enum(["example", "known_answer", "synthetic"]),
  /** Set only if `input` is `known_answer`; older records lack it. */
  known_answer: KnownAnswer.optional(),
  url: z.string().max(4096),
  method: z.enum(METHODS),
  request_sha256: Sha256Hex,
  /** Headers that the seller declares, and the type of a body that is not JSON, as sent; absent if there are none. */
  request_headers: z.record(z.string(), z.string()).optional(),
  schema_sha256: Sha256Hex.nullable(),
  /** Event id of the seller-controlled listing with which the 402 is compared, or null. */
  listing_record: Id.nullable(),
  quote: z.looseObject({
    price: Money,
    amount_atomic: Atomic,
    asset: z.string(),
    network: z.string(),
    pay_to: z.string(),
    max_timeout_s: z.int(),
    /** null if the payment used mpp. */
    x402_version: z.int().nullable(),
    /** The protocol of the payment; absent in older records, which all used x402. */
    protocol: z.enum(PROTOCOLS).optional(),
  }),
  /** The result of this call's first, unpaid request: the 402 whose terms are then paid. */
  first_leg: z.looseObject({
    honest: z.boolean().nullable(),
    /** null if our own process was stalled during the request, so that the measured time would not be the seller's. */
    latency_ms: z.number().min(0).nullable(),
    terms: Terms,
    differs: z.array(DefectSeen).max(32),
  }),
  header_name: z.string().max(60),
  /**
   * The complete signed payment. These bytes may be sent again, since their nonce moves money only once. No other
   * nonce is ever signed for this intent.
   */
  signed_bytes: z.string().max(65_536),
  nonce: z.string().max(120),
  valid_before: z.int(),
  /**
   * Number of the chain's newest block before the payment was sent. The search for the payment's Transfer event
   * begins at this block.
   */
  since_block: z.int().min(0),
  /** Moment by which the last byte of the answer must have arrived. */
  deadline: Time,
});

const Check = z.looseObject({ name: z.string().max(60), ok: z.boolean(), says: z.string().max(500).optional() });

/**
 * The evaluation of an answer to a paid request: the first request, or a later one with the same payment proof.
 * `delivered`: an answer arrived that was no refusal. `delivery`, `outcome`: scores from 0 to 1, for the form of the
 * answer and for its truth.
 */
const DELIVERY_MEMBERS = {
  status: z.int().nullable(),
  delivered: z.boolean(),
  delivery: z.number().min(0).max(1).nullable(),
  outcome: z.number().min(0).max(1).nullable(),
  schema_ok: z.boolean().nullable(),
  latency_ms: z.number().min(0).nullable(),
  checks: z.array(Check).max(32),
  response_sha256: Sha256Hex.nullable(),
  response_bytes: z.int().min(0),
};

/** The result of a paid call. `intent`: event id of the call's PaidIntent. */
const PaidResult = z.looseObject({
  intent: Id,
  /**
   * True only if the process that made the call was running when the connection ended or the deadline passed.
   * Otherwise the missing answer is no evidence against the seller.
   */
  watched: z.boolean(),
  ended: z.enum(["closed", "deadline", "cut", "transport", "unknown"]),
  fault: z.enum(FAULTS).nullable(),
  live: z.boolean(),
  honest: z.boolean().nullable(),
  wall: z.boolean(),
  ...DELIVERY_MEMBERS,
  differs: z.array(DefectSeen).max(32),
  control: Control.nullable(),
  /**
   * The signed receipt in the answer, if any: can it be read, is it for this call, and did the payee sign it? No grade
   * depends on it.
   */
  signed_receipt: z.looseObject({ read: z.boolean(), valid: z.boolean(), authorised: z.boolean() }).optional(),
  /**
   * When the whole answer had arrived, unix seconds of real time, even if the record's other times are simulated, so
   * that it can be compared with block times.
   */
  answered_time: z.int().min(0).optional(),
  says: Explanation.optional(),
});

/**
 * A payment as read from the Transfer event on the chain. What a seller's response header states about it is never
 * used.
 */
const SettlementSeen = z.looseObject({
  intent: Id,
  tx: z.string().max(120),
  block_number: z.int(),
  block_time: z.int(),
  from: z.string(),
  to: z.string(),
  /** Sender of the transaction, usually a facilitator. Absent if no node returned it. */
  sender: z.string().max(120).optional(),
  amount_atomic: Atomic,
  price: Money,
  asset: z.string(),
  network: z.string(),
  nonce: z.string(),
  /** Is the block so deep that it cannot vanish from the chain? */
  final: z.boolean(),
  /** false when the Transfer differs from the quote in amount, payee, asset or network. */
  as_quoted: z.boolean(),
});

/**
 * Counts of who else pays a payee that we pay, from the chain's Transfer events of one asset to the payee's address.
 * They are published beside the grade and do not change it. They cover only days whose published evidence already
 * names our wallets; otherwise they could help somebody to identify our wallets.
 */
export const PayeeBuyers = z.looseObject({
  /** CAIP-2 id. */
  network: z.string().max(120),
  asset: z.string().max(200),
  pay_to: z.string().max(200),
  /** The requested UTC days, in the chain's own time: unix seconds, `until` exclusive. */
  since: z.int().min(0),
  until: z.int().min(0),
  /** First and last block that were read, both inclusive. */
  from_block: z.int().min(0),
  to_block: z.int().min(0),
  /**
   * false: the requested days begin before `from_block`, because the nodes returned no older blocks or because one
   * reading is limited in size.
   */
  whole: z.boolean(),
  /** Number of paying addresses, without our own wallets. */
  payers: z.int().min(0),
  transfers: z.int().min(0),
  total: SumOfMoney,
  /** Share of the total that the largest payer sent; null if nobody else paid. */
  largest_share: z.number().min(0).max(1).nullable(),
  /**
   * 1 divided by the sum of the squared shares of the payers (docs/schedule.md): the number of payers of equal
   * amounts that would be as concentrated as these.
   */
  effective_payers: z.number().min(1).nullable(),
  /** Transfers from our own wallets to the payee in these blocks, which the counts above leave out. */
  ours: z.looseObject({ transfers: z.int().min(0), total: SumOfMoney }),
});

/**
 * A fact about a call that was learned after its result. `of`: event id of the call's PaidIntent; for the kinds
 * reproduced and not_reproduced, of the PaidPublished whose failure our own calls confirmed or not.
 */
const Followup = z.looseObject({
  of: Id,
  kind: z.enum(["finality", "shown_again", "refund", "reproduced", "not_reproduced", "retried"]),
  /** For kind shown_again: the answer to a further request with the proof of a payment that has got no answer yet. */
  shown_again: z.looseObject({ ...DELIVERY_MEMBERS, watched: z.boolean() }).optional(),
  /**
   * For kind retried: what the seller did when the proof of a settled and answered call was sent a second time. No
   * grade depends on it. A `shown_again` whose connection was watched to its end may have this member too.
   */
  retried: z
    .looseObject({
      outcome: z.enum(RETRY_OUTCOMES),
      status: z.int().nullable(),
      /** Are the answer's bytes equal to those of the first answer? null if one of the two is missing. */
      same_bytes: z.boolean().nullable(),
    })
    .optional(),
  /** For kind refund: the Transfer by which the seller paid us back. */
  refund: z.looseObject({ tx: z.string(), amount_atomic: Atomic }).optional(),
  says: Explanation.optional(),
});

/** Members about the beginning of an MCP exchange, which a plain HTTP exchange does not have. Times are in ms. */
const MCP_START_MEMBERS = {
  /** Time of `initialize`; null when it was not answered. */
  initialize_ms: z.number().min(0).nullable(),
  tool: z.string().max(200),
  /** Does `tools/list` name the tool? null when the list was not read. */
  tool_present: z.boolean().nullable(),
};

const McpProbe = Handshake.extend(MCP_START_MEMBERS);

/** The beginning of the MCP exchange in a paid call of a tool. `of`: event id of the call's intent (PaidIntent). */
const McpPaid = z.looseObject({ of: Id, ...MCP_START_MEMBERS, payment_forms: PaymentForms });

/**
 * A call that a buyer bought through us and agreed to publish (orders.md, Publish). A call that passed our checks is
 * published after its buyer was charged; a call that failed, after its seller has taken our money. The bytes of
 * request and answer are public objects `call/<sha256>.zst`.
 */
const PaidPublished = z.looseObject({
  /**
   * Id of the order. It is private, since anyone who knows the id may read the order, and it is left out of published
   * evidence.
   */
  order: Id,
  /** Number of the order's payment to a seller, from 0. */
  leg: z.int().min(0),
  /**
   * Pseudonym of the buyer's wallet, the same in all calls of the wallet. Only a holder of our secret can link it to
   * the wallet.
   */
  payer: z.string().regex(/^buyer_[0-9A-HJKMNP-TV-Z]{26}$/),
  url: z.string().max(4096),
  method: z.enum(METHODS),
  price: Money,
  pay_to: z.string().max(200),
  network: z.string().max(120),
  asset: z.string().max(200),
  /** The transaction of our payment to the seller, as read from the chain. */
  tx: z.string().max(120),
  pass: z.boolean(),
  status: z.int().nullable(),
  delivered: z.boolean(),
  /** Score from 0 to 1. This and `schema_ok` are null for older orders, which did not record them. */
  delivery: z.number().min(0).max(1).nullable(),
  schema_ok: z.boolean().nullable(),
  latency_ms: z.number().min(0).nullable(),
  checks: z.array(Check).max(32),
  content_type: z.string().max(300).nullable(),
  /**
   * sha256 over `METHOD url`, a newline and the request's body. The public object of these bytes has this hash in its
   * name.
   */
  request_sha256: Sha256Hex,
  request_bytes: z.int().min(0),
  /** null if the answer had no bytes. */
  response_sha256: Sha256Hex.nullable(),
  response_bytes: z.int().min(0),
});

/**
 * A salted commitment to the bytes of a bought call that its buyer did not publish: sha256 over salt and bytes
 * (commitment.ts). No further members are accepted, since they could help to identify the buyer.
 */
const PaidCommitment = z.strictObject({ sha256: Sha256Hex });

/**
 * The hash of a receipt that POST /v1/web/evidence returned, which is published as a leaf (entry) of the public
 * Merkle log. The record's key is the hash too, and the record has no capability id. No further members are accepted,
 * as for a commitment.
 */
const WebReceipt = z.strictObject({ sha256: Sha256Hex });

/** A client's request to probe a url, usually one that was never probed. */
const Ask = z.looseObject({
  url: z.string().max(4096),
  normalised_url: z.string().max(4096),
  method: z.enum(METHODS).nullable(),
  host: z.string().max(300),
  cap: Id,
  /**
   * Name of the tool, for an endpoint of an MCP server. Only a client that knows the tool's capability id can ask for
   * it.
   */
  tool: z.string().max(200).optional(),
  /**
   * The url is not probed before this time, because its client has asked for many urls, or because the endpoint was
   * probed within the last day.
   */
  not_before: Time.optional(),
  /**
   * Set when the seller requests a new probe and has signed the request with the wallet to which the endpoint is
   * paid. Then the endpoint is probed even if the last probe is less than a day old.
   */
  retest: z
    .looseObject({ statement: z.string().max(8192), pay_to: z.string().max(100), signature: z.string().max(132) })
    .optional(),
});

/**
 * The url of an ask (a client's request) was probed, so the ask is done. `probed` may name other capability ids than
 * the ask, for example that of the url with the HTTP method of its listing.
 */
const AskLooked = z.looseObject({
  cap: Id,
  host: z.string().max(300),
  probed: z.array(z.looseObject({ cap: Id, state: z.enum(HANDSHAKE_STATES) })).max(16),
});

/**
 * How many clients called `check` for each known endpoint since this serving process last wrote such a record. It
 * lists the endpoints with the most clients, and names no client.
 */
const Demand = z.looseObject({
  /** UTC day of the calls. It exists: `z.regexes.date` refuses 31 February. */
  day: z.string().regex(z.regexes.date),
  /** Name of the serving process. */
  replica: z.string().max(60),
  asked: z.array(z.looseObject({ cap: Id, clients: z.int().min(1).max(1_000_000) })).max(1000),
});

/**
 * The record `record_id` of ours, or all earlier records of the endpoint if it is null, is withdrawn for a fault of
 * ours (OUR_FAULTS).
 */
const Correction = z.looseObject({
  id: Id,
  record_id: Id.nullable(),
  /**
   * When the withdrawn record was observed. Letters (grades) computed since then may depend on that record. Absent or
   * null if the correction names no record.
   */
  observed_at: Time.nullable().optional(),
  /** `computed_at` of the wrong grade; null if none is named. */
  grade_at: Time.nullable(),
  fault: z.string().max(60),
  says: Explanation,
  issued_at: Time,
});

/** A statement against our records, signed by the address to which the endpoint is paid. It changes no grade. */
const Dispute = z.looseObject({
  id: Id,
  record_id: Id.nullable(),
  says: Explanation,
  pay_to: z.string(),
  signature: z.string(),
  /**
   * The signature covers this member, `at`, `service`, `record_id` and `says`, in RFC 8785 form
   * (docs/corrections.md).
   */
  capability_id: Id.optional(),
  at: Time.optional(),
  service: z.string().max(300).optional(),
  /** When this service received the dispute. */
  received_at: Time.optional(),
});
/** A correction is revoked: the records that it withdrew count again. */
const Reinstated = z.looseObject({ correction: Id, says: Explanation });

/**
 * The members of a card (an endpoint's signed grade) that a notice states before and after a change, as `from` and
 * `to`.
 */
export const Standing = z.looseObject({
  band: z.enum([...BANDS, "UNRATED"]),
  tier: z.enum(TIERS),
  composite: z.number(),
  /** null if the card has no `computed_at`. */
  computed_at: Time.nullable(),
  flags: z.array(z.string().max(60)).max(64),
});
export type Standing = z.infer<typeof Standing>;

/** Largest number of capability ids of one watcher. */
export const MAX_WATCHED_IDS = 300;

/**
 * A watcher (a client's request to be notified when cards change) was created, after the receiver at its url had
 * answered our challenge. Of the secret part of the watcher's token only the hash is stored.
 */
const WatcherCreated = z.looseObject({
  id: Id,
  url: z.string().max(2048),
  watched: z
    .array(
      z.looseObject({
        /** Url or capability id as the creator gave it, and how the record has it. */
        asked: z.string().max(2048),
        matched: z.enum(MATCHED),
        /**
         * One id; for the url of an MCP server, one id for each of its tools; for a url that is not in the record, its
         * ids with GET and with POST, and one for the tool that the url's fragment names, if any.
         */
        capability_ids: z.array(Id).min(1).max(MAX_WATCHED_IDS),
      }),
    )
    .min(1)
    .max(100),
  /**
   * Size of the tree (the log of published leaves) when the watcher was created. Cards in later leaves cause notices.
   */
  tree_size: z.int().min(0),
  /** The card that was shown for each watched endpoint in that tree; an endpoint without a card is left out. */
  standing: z.array(z.looseObject({ capability_id: Id, ...Standing.shape })).max(MAX_WATCHED_IDS),
  token_sha256: Sha256Hex,
  /**
   * Key of the HMAC signature `v1` on the watcher's notices, base64, as its creator sent it. Absent: the notices have
   * no such signature.
   */
  hmac_key: z.string().max(120).optional(),
  created_at: Time,
  /** Opaque name of the IP network of the watcher's creator. The number of watchers of each IP network is limited. */
  by: z.string().max(60).optional(),
});

/**
 * Why a watcher ended. asked: somebody stopped it with its token. gone: the receiver answered 410. unused, share: a
 * new watcher needed its place, since the table of watchers was full, and no notice of this watcher had been accepted
 * for a long time (unused), or the IP network of its creator had the most watchers (share).
 */
const WatcherStopped = z.looseObject({ id: Id, why: z.enum(["asked", "gone", "unused", "share"]), at: Time });

/**
 * Members about the notice that an attempt sent. A watcher's notices are delivered in the order of the cards' leaves,
 * so each delivered notice has a higher `leaf` than the one before.
 */
const NOTICE_MEMBERS = {
  /** Id of the watcher. */
  id: Id,
  /** Id of the notice. */
  notice: Id,
  capability_id: Id,
  /** Number of the notice for this watcher and endpoint, from 1 without gaps, in the order of the cards in the tree. */
  seq: z.int().min(1),
  /** Position of the card's leaf (entry) in the public Merkle log. */
  leaf: z.int().min(0),
  change: z.enum(NOTICE_CHANGES),
  /** Number of the attempt, from 1. */
  attempt: z.int().min(1),
  at: Time,
};

const WatcherDelivered = z.looseObject({ ...NOTICE_MEMBERS, status: z.int(), to: Standing });

/** An attempt to deliver a notice that got no 2xx status, and when the next attempt is due. */
const WatcherFailed = z.looseObject({
  ...NOTICE_MEMBERS,
  /** null if there was no answer. */
  status: z.int().nullable(),
  says: z.string().max(300),
  retry_at: Time,
});

/**
 * A watcher was disabled: every attempt to deliver its notices since `since` has failed, so no further attempt is
 * made.
 */
const WatcherDisabled = z.looseObject({ id: Id, since: Time, says: z.string().max(300), at: Time });

/** Every type of record and the schema of its body. */
export const BODIES = {
  listing: Listing,
  delisting: Delisting,
  "class.mapped": ClassMapped,
  handshake: Handshake,
  "paid.intent": PaidIntent,
  "paid.result": PaidResult,
  settlement: SettlementSeen,
  "paid.followup": Followup,
  "payee.buyers": PayeeBuyers,
  "paid.published": PaidPublished,
  "paid.commitment": PaidCommitment,
  "web.receipt": WebReceipt,
  "mcp.probe": McpProbe,
  "mcp.paid": McpPaid,
  ask: Ask,
  "ask.looked": AskLooked,
  demand: Demand,
  correction: Correction,
  dispute: Dispute,
  reinstated: Reinstated,
  "watcher.created": WatcherCreated,
  "watcher.stopped": WatcherStopped,
  "watcher.delivered": WatcherDelivered,
  "watcher.failed": WatcherFailed,
  "watcher.disabled": WatcherDisabled,
  "order.step": OrderStep,
} as const;

export type RecordType = keyof typeof BODIES;
export type BodyOf<T extends RecordType> = z.infer<(typeof BODIES)[T]>;

/** The log topic of each type. */
export const TOPIC_OF: Record<RecordType, Topic> = {
  listing: "listings",
  delisting: "listings",
  "class.mapped": "listings",
  handshake: "observations.free",
  "paid.intent": "observations.paid",
  "paid.result": "observations.paid",
  settlement: "observations.paid",
  "paid.followup": "observations.paid",
  "payee.buyers": "observations.paid",
  "paid.published": "observations.paid",
  "paid.commitment": "observations.paid",
  "web.receipt": "observations.paid",
  "mcp.probe": "observations.mcp",
  "mcp.paid": "observations.mcp",
  ask: "asks",
  "ask.looked": "asks",
  demand: "asks",
  correction: "corrections",
  dispute: "corrections",
  reinstated: "corrections",
  "watcher.created": "watchers",
  "watcher.stopped": "watchers",
  "watcher.delivered": "watchers",
  "watcher.failed": "watchers",
  "watcher.disabled": "watchers",
  "order.step": "orders",
};
