import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { Mapping } from "./classes/mapping.ts";
import { OrderStep } from "./order-step.ts";
import { RFC3339 } from "./time.ts";
import type { Topic } from "./topics.ts";
import { BANDS, FAULTS, MATCHED, METHODS, NOTICE_CHANGES, PROTOCOLS, RETRIES, TIERS } from "./vocabulary.ts";

/** Bodies of the log's records, version 1. All schemas are loose: they keep members that they do not know. */
const Money = z.string().regex(/^\d{1,12}\.\d{6}$/);
/** A sum of money. It may have more than twelve digits before the dot, where a single amount has at most twelve. */
const SumOfMoney = z.string().regex(/^\d{1,40}\.\d{6}$/);
const Atomic = z.string().regex(/^\d{1,78}$/);
const Time = z.string().regex(RFC3339);
const Id = z.string().max(64);
const Explanation = z.string().max(2000);

/** When a call was planned: its block (six hours UTC, counted since 1970) and the minute within the block. */
const Slot = z.looseObject({ block: z.int(), minute: z.int().min(0).max(359) });

/**
 * A control call: a request in the same minute to an endpoint that we know to be up. If it fails too, the fault is ours
 * and not the seller's.
 */
const Control = z.looseObject({ url: z.string(), ok: z.boolean(), at: Time });

const DefectSeen = z.looseObject({ defect: z.string().max(60), says: Explanation });

/** One offer of a 402. Its known parts are normalised; `network_raw` is the network as the seller wrote it. */
export const Offer = z.looseObject({
  scheme: z.string().max(60),
  /** CAIP-2 id if we know the network, else the text that the seller wrote. */
  network: z.string().max(120),
  network_raw: z.string().max(120),
  asset: z.string().max(200).nullable(),
  pay_to: z.string().max(200).nullable(),
  amount_atomic: Atomic.nullable(),
  decimals: z.int().min(0).max(36).nullable(),
  /** The amount as money; null if the asset or its decimals are not known. */
  price: Money.nullable(),
  max_timeout_s: z.int().nullable(),
  /** Can our wallets pay this offer? */
  payable: z.boolean(),
});
export type Offer = z.infer<typeof Offer>;

/** The terms of a 402 (x402 or mpp). */
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

const Handshake = z.looseObject({
  slot: Slot,
  /**
   * Why the handshake was made: as a free probe, as the first request of a paid call that was then not paid, or for an
   * ask (a client's request to probe an unknown url).
   */
  planned: z.enum(["free", "paid", "asked"]),
  state: z.enum(HANDSHAKE_STATES),
  /** Only for an ask: the probed url and HTTP method. */
  url: z.string().max(4096).optional(),
  method: z.enum(METHODS).optional(),
  live: z.boolean(),
  /** Does the 402 agree with the listing? null when the answer had nothing to compare. */
  honest: z.boolean().nullable(),
  wall: z.boolean(),
  fault: z.enum(FAULTS).nullable(),
  status: z.int().nullable(),
  latency_ms: z.number().min(0).nullable(),
  /** Price of the offer that our wallets would pay; null when there is no such offer. */
  price: Money.nullable(),
  pay_to: z.string().max(200).nullable(),
  terms: Terms.nullable(),
  /** Differences from the seller-controlled listing, with the texts of `DEFECTS`. */
  differs: z.array(DefectSeen).max(32),
  control: Control.optional(),
  /** Counts of the signed offers in the 402 (extension `offer-receipt`). No grade depends on them. */
  signed_offers: z
    .looseObject({
      present: z.int().min(1),
      /** Offers that were not checked: they are not in EIP-712 form, or the 402 has more than we check. */
      unread: z.int().min(0),
      /** Offers whose signature is valid and covers an offer of this 402. */
      valid: z.int().min(0),
      /** Valid offers that the payee itself signed. */
      authorised: z.int().min(0),
    })
    .optional(),
  says: Explanation.optional(),
});

/** The claims of a listing about an endpoint. Only the url is always present. */
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
  /** True when the listing names a fixed price: only then can a quote differ from it. */
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

const Listing = z.looseObject({
  source: z.string().max(300),
  source_id: z.string().max(4096),
  seller_controlled: z.boolean(),
  normalised_url: z.string().max(4096),
  claims: Claims,
  defects: z.array(DefectSeen).max(64),
});

const Delisting = z.looseObject({ source: z.string().max(300), source_id: z.string().max(4096), reason: Explanation });

/**
 * A mapping of an endpoint to a class that we made: the class, the question, and the place of the answer; null if the
 * endpoint no longer has a mapping. An endpoint whose seller names the class has no such record. `dropped`: the mapping
 * is not used, because no control input (a trial call with a known answer) passed.
 */
const ClassMapped = z.looseObject({ mapping: Mapping.nullable(), dropped: z.boolean() });

/**
 * The question of a paid call to which we know the right answer. With this and the bytes of the seller's answer anybody
 * can compute the score again.
 */
const KnownAnswer = z.looseObject({
  class: z.string().max(60),
  variant: z.string().max(60),
  /** JSON pointer to the value that is scored; null if the whole answer is scored as text. */
  answer: z.string().max(500).nullable(),
  /** The right answer, as we knew it when we made the question. */
  truth: z.unknown(),
  /** Id of the mapping with which the question was made; null if the seller names the class itself. */
  mapping: Sha256Hex.nullable(),
  /**
   * True if this call only tests the mapping (asking.ts) and never counts as a sample. It is recorded before the call.
   */
  control: z.boolean(),
});

const PaidIntent = z.looseObject({
  slot: Slot,
  attempt: z.int().min(0),
  planned_at: Time,
  /** Weight, fixed before the outcome: 1 on the base schedule, base/actual for a re-test. */
  w: z.number().gt(0).max(1),
  retest: z.boolean(),
  blind: z.boolean(),
  wallet: z.string().max(120),
  input: z.enum(["example", "known_answer", "synthetic"]),
  /** Set if `input` is `known_answer`; absent in older records. */
  known_answer: KnownAnswer.optional(),
  url: z.string().max(4096),
  method: z.enum(METHODS),
  request_sha256: Sha256Hex,
  schema_sha256: Sha256Hex.nullable(),
  /** Event id of the seller-controlled listing that the 402 is compared with, or null. */
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
  /** The result of this call's first, unpaid request: the 402 that is then paid. */
  first_leg: z.looseObject({
    honest: z.boolean().nullable(),
    /** null if our own process was stalled during the request, so that the time says nothing about the seller. */
    latency_ms: z.number().min(0).nullable(),
    terms: Terms,
    differs: z.array(DefectSeen).max(32),
  }),
  header_name: z.string().max(60),
  /** The signed payment, complete. These bytes may be sent again; no other nonce is ever signed for this intent. */
  signed_bytes: z.string().max(65_536),
  nonce: z.string().max(120),
  valid_before: z.int(),
  /** Number of the newest block before the payment was sent. The search for the payment's Transfer begins here. */
  since_block: z.int().min(0),
  /** Moment by which the last byte of the answer must have arrived. */
  deadline: Time,
});

const Check = z.looseObject({ name: z.string().max(60), ok: z.boolean(), says: z.string().max(500).optional() });

/**
 * The evaluation of an answer to a paid request, both for the first request and for each later request with that
 * payment proof.
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

const PaidResult = z.looseObject({
  intent: Id,
  /** True only when the process that made the call itself saw the connection end, or the deadline pass. */
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
   * When the whole answer had arrived. Real unix seconds, which can be compared with block times, even if the record's
   * other times are simulated.
   */
  answered_time: z.int().min(0).optional(),
  says: Explanation.optional(),
});

/** A Transfer as read from the chain's event log. A seller's response header is never used for it. */
const SettlementSeen = z.looseObject({
  intent: Id,
  tx: z.string().max(120),
  block_number: z.int(),
  block_time: z.int(),
  from: z.string(),
  to: z.string(),
  /** Sender of the transaction, that is, the facilitator. Absent if no node returned it. */
  sender: z.string().max(120).optional(),
  amount_atomic: Atomic,
  price: Money,
  asset: z.string(),
  network: z.string(),
  nonce: z.string(),
  final: z.boolean(),
  /** false when the chain's Transfer differs from the quote: amount, payee, asset or network. */
  as_quoted: z.boolean(),
});

/**
 * Counts of who else pays a payee that we pay, from the chain's Transfers of one asset to the payee's address. It is
 * published beside the grade and does not change it. It covers only days whose published evidence already names our
 * wallets. Otherwise the counts could help somebody to identify them.
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
   * 1 divided by the sum of the squared shares (docs/schedule.md): the number of equal payers that would be as
   * concentrated.
   */
  effective_payers: z.number().min(1).nullable(),
  /** Transfers from our own wallets to the address in these blocks. */
  ours: z.looseObject({ transfers: z.int().min(0), total: SumOfMoney }),
});

const Followup = z.looseObject({
  of: Id,
  kind: z.enum(["finality", "shown_again", "refund", "reproduced", "not_reproduced", "retried"]),
  /** For kind shown_again: the answer to a further request with the same payment proof. */
  shown_again: z.looseObject({ ...DELIVERY_MEMBERS, watched: z.boolean() }).optional(),
  /**
   * For kind retried: the answer when the proof of a settled and answered call was sent once more. No grade reads it. A
   * `shown_again` whose connection was watched to its end may have this member too.
   */
  retried: z
    .looseObject({
      outcome: z.enum(RETRIES),
      status: z.int().nullable(),
      /** Are the bytes equal to those of the first answer? null if there is no answer to compare. */
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

/** The beginning of the MCP exchange in a paid call of a tool. `of` is the event id of the call's intent. */
const McpPaid = z.looseObject({ of: Id, ...MCP_START_MEMBERS });

/**
 * A call that a buyer bought through us and agreed to publish (orders.md, Publish). A call that passed is published
 * after its buyer was charged. A call that failed is published after its seller has the money. Its bytes are kept under
 * `call/<sha256>.zst`.
 */
const PaidPublished = z.looseObject({
  /** Private: anyone who knows the id may read the order. No published line contains it. */
  order: Id,
  leg: z.int().min(0),
  /** Pseudonym of the buyer's wallet, equal in all its calls. Only a holder of our secret can link it to the wallet. */
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
  /** This and `schema_ok` are null in older orders, which did not record them. */
  delivery: z.number().min(0).max(1).nullable(),
  schema_ok: z.boolean().nullable(),
  latency_ms: z.number().min(0).nullable(),
  checks: z.array(Check).max(32),
  content_type: z.string().max(300).nullable(),
  /** sha256 over `METHOD url`, a newline and the body. These bytes are kept under this hash. */
  request_sha256: Sha256Hex,
  request_bytes: z.int().min(0),
  /** null if the answer had no bytes. */
  response_sha256: Sha256Hex.nullable(),
  response_bytes: z.int().min(0),
});

/**
 * A salted commitment to the bytes of a bought call that its buyer did not publish: sha256 over salt and bytes
 * (commitment.ts). The object is strict, since any further member could help to identify the buyer.
 */
const PaidCommitment = z.strictObject({ sha256: Sha256Hex });

/**
 * A receipt that POST /v1/web/evidence returned: its hash becomes a leaf of the tree. The record's key is the hash too,
 * and the record has no capability. The object is strict, as a commitment is.
 */
const WebReceipt = z.strictObject({ sha256: Sha256Hex });

/** A client's request to probe a url that the record does not know. */
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
   * Set when the seller asked for a new probe and signed the request with the wallet that the endpoint is paid to. Then
   * the endpoint is probed even if the last probe is less than a day old.
   */
  retest: z
    .looseObject({ statement: z.string().max(8192), pay_to: z.string().max(100), signature: z.string().max(132) })
    .optional(),
});

/**
 * An ask was probed and is done. `probed` may name another capability than the asked one, for example the url with the
 * HTTP method of its listing.
 */
const AskLooked = z.looseObject({
  cap: Id,
  host: z.string().max(300),
  probed: z.array(z.looseObject({ cap: Id, state: z.enum(HANDSHAKE_STATES) })).max(16),
});

/**
 * How many clients checked each known endpoint since this replica last wrote such a record. It holds the endpoints with
 * the most clients, and no client's name.
 */
const Demand = z.looseObject({
  day: z.string().regex(/^\d{4}-\d{2}-\d{2}$/),
  replica: z.string().max(60),
  asked: z.array(z.looseObject({ cap: Id, clients: z.int().min(1).max(1_000_000) })).max(1000),
});

const Correction = z.looseObject({
  id: Id,
  record_id: Id.nullable(),
  /**
   * When the withdrawn record was observed: letters computed since then may depend on it. Absent or null if the
   * correction names no record.
   */
  observed_at: Time.nullable().optional(),
  grade_at: Time.nullable(),
  fault: z.string().max(60),
  says: Explanation,
  issued_at: Time,
});

const Dispute = z.looseObject({
  id: Id,
  record_id: Id.nullable(),
  says: Explanation,
  pay_to: z.string(),
  signature: z.string(),
  /**
   * This member, `at` and `service` are signed together with record_id and says, in RFC 8785 form
   * (docs/corrections.md).
   */
  capability_id: Id.optional(),
  at: Time.optional(),
  service: z.string().max(300).optional(),
  /** When this service received the dispute. */
  received_at: Time.optional(),
});
const Reinstated = z.looseObject({ correction: Id, says: Explanation });

/** The members of a card that a notice compares: the `from` and the `to` of a change. */
export const Standing = z.looseObject({
  band: z.enum([...BANDS, "UNRATED"]),
  tier: z.enum(TIERS),
  composite: z.number(),
  /** null if the card has no `computed_at`. */
  computed_at: Time.nullable(),
  flags: z.array(z.string().max(60)).max(64),
});
export type Standing = z.infer<typeof Standing>;

/**
 * A watcher was created: its receiver answered our challenge. Only the hash of the secret part of the watcher's token
 * is kept.
 */
const WatcherCreated = z.looseObject({
  id: Id,
  url: z.string().max(2048),
  watched: z
    .array(
      z.looseObject({
        asked: z.string().max(2048),
        matched: z.enum(MATCHED),
        /** One id; for a url that is not in the record, one id for each HTTP method that a listing may give it. */
        capability_ids: z.array(Id).min(1).max(2),
      }),
    )
    .min(1)
    .max(100),
  /**
   * Size of the tree (the log of published leaves) when the watcher was created. Cards in later leaves cause notices.
   */
  tree_size: z.int().min(0),
  /** The card that was shown for each watched endpoint in that tree; an endpoint without a card is left out. */
  standing: z.array(z.looseObject({ capability_id: Id, ...Standing.shape })).max(200),
  token_sha256: Sha256Hex,
  /**
   * Key of the HMAC signature `v1` on the watcher's notices, base64, as its creator sent it. Absent: the notices have
   * no such signature.
   */
  hmac_key: z.string().max(120).optional(),
  created_at: Time,
  /** Opaque name of the client network that created the watcher. The number of watchers of each network is limited. */
  by: z.string().max(60).optional(),
});

/**
 * Why a watcher ended. asked: somebody stopped it with its token. gone: the receiver answered 410. unused and share:
 * the table of watchers was full, and no notice of this watcher had been accepted for a long time (unused), or its
 * client network had the most watchers (share).
 */
const WatcherStopped = z.looseObject({ id: Id, why: z.enum(["asked", "gone", "unused", "share"]), at: Time });

/**
 * Members about the notice that an attempt sent. Each delivered notice of a watcher has a higher leaf than the one
 * before.
 */
const NOTICE_MEMBERS = {
  id: Id,
  notice: Id,
  capability_id: Id,
  /** Number of the notice for this watcher and endpoint, from 1 without gaps, in the order of the cards in the tree. */
  seq: z.int().min(1),
  /** Position of the card's leaf. */
  leaf: z.int().min(0),
  change: z.enum(NOTICE_CHANGES),
  /** Number of the attempt, from 1. */
  attempt: z.int().min(1),
  at: Time,
};

const WatcherDelivered = z.looseObject({ ...NOTICE_MEMBERS, status: z.int(), to: Standing });

/** A notice attempt that got no 2xx status, and when the next attempt is due. */
const WatcherFailed = z.looseObject({
  ...NOTICE_MEMBERS,
  /** null if there was no answer. */
  status: z.int().nullable(),
  says: z.string().max(300),
  retry_at: Time,
});

/** A watcher was disabled: every attempt since `since` has failed, so no further one is made. */
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

/** The topic of each type. */
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
