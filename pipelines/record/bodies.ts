import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { Mapping } from "./classes/mapping.ts";
import { OrderStep } from "./order-step.ts";
import { RFC3339 } from "./time.ts";
import type { Topic } from "./topics.ts";
import { BANDS, FAULTS, MATCHED, METHODS, NOTICE_CHANGES, PROTOCOLS, RETRIES, TIERS } from "./vocabulary.ts";

/** Bodies of the log's records, version 1. All are loose: unknown members are kept. */
const Money = z.string().regex(/^\d{1,12}\.\d{6}$/);
/** A sum, which may have more than twelve digits before the dot. */
const Total = z.string().regex(/^\d{1,40}\.\d{6}$/);
const Atomic = z.string().regex(/^\d{1,78}$/);
const Time = z.string().regex(RFC3339);
const Id = z.string().max(64);
const Says = z.string().max(2000);

const Slot = z.looseObject({ block: z.int(), minute: z.int().min(0).max(359) });

/**
 * A control call to an endpoint that we know to be up, in the same minute: it tells our own fault from the seller's.
 */
const Control = z.looseObject({ url: z.string(), ok: z.boolean(), at: Time });

const DefectSeen = z.looseObject({ defect: z.string().max(60), says: Says });

/** One offer of a 402: its known parts normalised, the seller's own text in `network_raw`. */
export const Offer = z.looseObject({
  scheme: z.string().max(60),
  /** CAIP-2 where the name is known, else as written. */
  network: z.string().max(120),
  network_raw: z.string().max(120),
  asset: z.string().max(200).nullable(),
  pay_to: z.string().max(200).nullable(),
  amount_atomic: Atomic.nullable(),
  decimals: z.int().min(0).max(36).nullable(),
  /** The amount as money, where asset and decimals are known. */
  price: Money.nullable(),
  max_timeout_s: z.int().nullable(),
  /** Would our rail pay it? */
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
  "malformed", // a 402 whose terms cannot be read
  "wall", // 403, 429 or a bot wall
  "status", // any other status
  "silent", // timeout, transport error, cut, too large
  "unfetchable", // egress refused: never asked
] as const;

const Handshake = z.looseObject({
  slot: Slot,
  /** Why it was made: a free probe, the first request of a paid call that was not paid, or an ask. */
  planned: z.enum(["free", "paid", "asked"]),
  state: z.enum(HANDSHAKE_STATES),
  /** Only for an ask: the probed url and verb. */
  url: z.string().max(4096).optional(),
  method: z.enum(METHODS).optional(),
  live: z.boolean(),
  /** null when nothing came that could be compared with the listing. */
  honest: z.boolean().nullable(),
  wall: z.boolean(),
  fault: z.enum(FAULTS).nullable(),
  status: z.int().nullable(),
  latency_ms: z.number().min(0).nullable(),
  /** Price of the offer that our rail would pay; null when there is none. */
  price: Money.nullable(),
  pay_to: z.string().max(200).nullable(),
  terms: Terms.nullable(),
  /** Differences from the seller-controlled listing, with the texts of `DEFECTS`. */
  differs: z.array(DefectSeen).max(32),
  control: Control.optional(),
  /** Signed offers in the 402 (extension `offer-receipt`). No figure follows from them. */
  signed_offers: z
    .looseObject({
      present: z.int().min(1),
      /** Not checked: in another form than EIP-712, or after the first few. */
      unread: z.int().min(0),
      /** Signed over an offer of this 402. */
      valid: z.int().min(0),
      /** Valid and signed by the payee itself. */
      authorised: z.int().min(0),
    })
    .optional(),
  says: Says.optional(),
});

/** What a listing claims of an endpoint. Only the url is always there. */
export const Claims = z.looseObject({
  url: z.string().max(4096),
  method: z.enum(METHODS).nullable(),
  tool: z.string().max(200).nullable(),
  description: z.string().max(2000).nullable(),
  /** Class of the endpoint (`record/classes.ts`), `any` when none fits. */
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

const Delisting = z.looseObject({ source: z.string().max(300), source_id: z.string().max(4096), reason: Says });

/**
 * The mapping of an endpoint to a class that we made: the class, its question, and where the answer is; null: it has
 * none any more. An endpoint whose seller names the class has no such record. `dropped`: no control input of it passed,
 * so it is not used.
 */
const ClassMapped = z.looseObject({ mapping: Mapping.nullable(), dropped: z.boolean() });

/** The question of a paid call whose answer we know. With the answer's bytes anybody can score it again. */
const KnownAnswer = z.looseObject({
  class: z.string().max(60),
  variant: z.string().max(60),
  /** JSON pointer of the answer; null: the whole answer as text. */
  answer: z.string().max(500).nullable(),
  /** The right answer, as it was known when the question was made. */
  truth: z.unknown(),
  /** Id of the mapping by which it was asked; null: the seller names the class itself. */
  mapping: Sha256Hex.nullable(),
  /** A control input (asking.ts): the call is no sample, however it ends. Recorded before the call. */
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
  /** Set where the input is a known answer; absent in older records. */
  known_answer: KnownAnswer.optional(),
  url: z.string().max(4096),
  method: z.enum(METHODS),
  request_sha256: Sha256Hex,
  schema_sha256: Sha256Hex.nullable(),
  /** Event id of the seller-controlled listing that the call is compared with, or null. */
  listing_record: Id.nullable(),
  quote: z.looseObject({
    price: Money,
    amount_atomic: Atomic,
    asset: z.string(),
    network: z.string(),
    pay_to: z.string(),
    max_timeout_s: z.int(),
    /** null: paid over mpp. */
    x402_version: z.int().nullable(),
    /** The protocol that was paid over; absent in older records: x402. */
    protocol: z.enum(PROTOCOLS).optional(),
  }),
  /** The first request of this call and its 402, which is paid. */
  first_leg: z.looseObject({
    honest: z.boolean().nullable(),
    /** null: our own event loop stood still meanwhile. */
    latency_ms: z.number().min(0).nullable(),
    terms: Terms,
    differs: z.array(DefectSeen).max(32),
  }),
  header_name: z.string().max(60),
  /** The signed payment, complete. These bytes may be sent again; no other nonce is ever signed for this intent. */
  signed_bytes: z.string().max(65_536),
  nonce: z.string().max(120),
  valid_before: z.int(),
  /** Block before the payment was sent: the search for its Transfer begins here. */
  since_block: z.int().min(0),
  /** Moment by which the last byte of the answer must have come. */
  deadline: Time,
});

const Check = z.looseObject({ name: z.string().max(60), ok: z.boolean(), says: z.string().max(500).optional() });

/**
 * The evaluation of what came on a paid connection, for the first request and for each time the proof is shown again.
 */
const Delivered = {
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
  /** True only when the process that made the call saw the connection end, or the deadline pass. */
  watched: z.boolean(),
  ended: z.enum(["closed", "deadline", "cut", "transport", "unknown"]),
  fault: z.enum(FAULTS).nullable(),
  live: z.boolean(),
  honest: z.boolean().nullable(),
  wall: z.boolean(),
  ...Delivered,
  differs: z.array(DefectSeen).max(32),
  control: Control.nullable(),
  /**
   * The answer's receipt, where it has a signed one: is it for this call, and from the payee? Nothing is concluded from
   * it.
   */
  signed_receipt: z.looseObject({ read: z.boolean(), valid: z.boolean(), authorised: z.boolean() }).optional(),
  /**
   * When the whole answer had come: real unix seconds, as block times are, also where the record's time is simulated.
   */
  answered_time: z.int().min(0).optional(),
  says: Says.optional(),
});

/** A Transfer as read from the chain's event log; a seller's response header is never believed. */
const SettlementSeen = z.looseObject({
  intent: Id,
  tx: z.string().max(120),
  block_number: z.int(),
  block_time: z.int(),
  from: z.string(),
  to: z.string(),
  /** Sender of the transaction, that is, the facilitator. Absent where no node told. */
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
 * Who else pays a payee of ours, counted from the chain: Transfers of one asset to its address. A fact beside the
 * grade. It covers only days whose evidence has named our wallets, so that it helps nobody to find a wallet of ours.
 */
export const PayeeBuyers = z.looseObject({
  /** CAIP-2 id. */
  network: z.string().max(120),
  asset: z.string().max(200),
  pay_to: z.string().max(200),
  /** The UTC days that were asked for, by the chain's time: unix seconds, `until` exclusive. */
  since: z.int().min(0),
  until: z.int().min(0),
  /** Blocks that were read, both inclusive. */
  from_block: z.int().min(0),
  to_block: z.int().min(0),
  /**
   * false: the days begin before `from_block`, since nodes did not give more, or it was more than one reading takes.
   */
  whole: z.boolean(),
  /** Addresses that are not our own wallets. */
  payers: z.int().min(0),
  transfers: z.int().min(0),
  total: Total,
  /** Share of the total that the largest payer sent; null: nobody else paid. */
  largest_share: z.number().min(0).max(1).nullable(),
  /** 1 over the sum of the squares of all shares (docs/schedule.md): as concentrated as this many equal payers. */
  effective_payers: z.number().min(1).nullable(),
  /** What our own calls sent in these blocks. */
  ours: z.looseObject({ transfers: z.int().min(0), total: Total }),
});

const Followup = z.looseObject({
  of: Id,
  kind: z.enum(["finality", "shown_again", "refund", "reproduced", "not_reproduced", "retried"]),
  /** For kind shown_again: the same proof was shown again, and this came. */
  shown_again: z.looseObject({ ...Delivered, watched: z.boolean() }).optional(),
  /**
   * For kind retried: the proof of a call that had settled and was answered was shown once more; no grade reads it. On
   * a watched `shown_again` it holds what that showing tells about a retry.
   */
  retried: z
    .looseObject({
      outcome: z.enum(RETRIES),
      status: z.int().nullable(),
      /** Were the answer's bytes those of the first answer? null: there is no answer to compare. */
      same_bytes: z.boolean().nullable(),
    })
    .optional(),
  /** For kind refund: the Transfer back. */
  refund: z.looseObject({ tx: z.string(), amount_atomic: Atomic }).optional(),
  says: Says.optional(),
});

/** How an MCP exchange began: members that a plain HTTP one does not have. Times in ms. */
const McpSeen = {
  /** Time of `initialize`; null when it was not answered. */
  initialize_ms: z.number().min(0).nullable(),
  tool: z.string().max(200),
  /** Does `tools/list` name the tool? null when the list was not read. */
  tool_present: z.boolean().nullable(),
};

const McpProbe = Handshake.extend(McpSeen);

/** How the MCP exchange of a tool's paid call began. `of` is the call's intent. */
const McpPaid = z.looseObject({ of: Id, ...McpSeen });

/**
 * A call that a buyer bought through us and published (orders.md, Publish). A call that passed is published once its
 * buyer was charged, a failed one once its seller has the money. Its bytes are kept under `call/<sha256>.zst`.
 */
const PaidPublished = z.looseObject({
  /** Private: its holder may read the order. No published line contains it. */
  order: Id,
  leg: z.int().min(0),
  /** Pseudonym of a wallet, the same in all its calls; only our secret leads from it to the wallet. */
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
  /** null in both: the order is older than they are. */
  delivery: z.number().min(0).max(1).nullable(),
  schema_ok: z.boolean().nullable(),
  latency_ms: z.number().min(0).nullable(),
  checks: z.array(Check).max(32),
  content_type: z.string().max(300).nullable(),
  /** Over `METHOD url`, a newline and the body, which are kept under this hash. */
  request_sha256: Sha256Hex,
  request_bytes: z.int().min(0),
  /** null: no bytes came. */
  response_sha256: Sha256Hex.nullable(),
  response_bytes: z.int().min(0),
});

/**
 * A salted commitment to bytes of a bought call whose buyer did not publish it: sha256 over salt and bytes
 * (commitment.ts). The object is strict, since a further member could tell who bought.
 */
const PaidCommitment = z.strictObject({ sha256: Sha256Hex });

/**
 * A receipt of POST /v1/web/evidence was given: its hash becomes a leaf. Its key is the hash too, and it has no capability.
 * Strict, as a commitment is.
 */
const WebReceipt = z.strictObject({ sha256: Sha256Hex });

const Ask = z.looseObject({
  url: z.string().max(4096),
  normalised_url: z.string().max(4096),
  method: z.enum(METHODS).nullable(),
  host: z.string().max(300),
  cap: Id,
  /** Set for a tool of an MCP server, which only a client that knows its id can ask for. */
  tool: z.string().max(200).optional(),
  /** It is not looked at before this: its client has asked for much, or the endpoint was looked at within the day. */
  not_before: Time.optional(),
  /**
   * Set when the seller asked for a new look and signed that with the wallet to which the endpoint is paid: then no day
   * has to pass since the last look.
   */
  retest: z
    .looseObject({ statement: z.string().max(8192), pay_to: z.string().max(100), signature: z.string().max(132) })
    .optional(),
});

/** An ask was looked at and is done. `probed` may name other capabilities than the asked one (a listed verb). */
const AskLooked = z.looseObject({
  cap: Id,
  host: z.string().max(300),
  probed: z.array(z.looseObject({ cap: Id, state: z.enum(HANDSHAKE_STATES) })).max(16),
});

/**
 * How many clients checked each known endpoint since this replica last recorded it: the most wanted endpoints, and no
 * client's name.
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
   * When the withdrawn record was observed: letters since then stood on it. Absent or null where no record is named.
   */
  observed_at: Time.nullable().optional(),
  grade_at: Time.nullable(),
  fault: z.string().max(60),
  says: Says,
  issued_at: Time,
});

const Dispute = z.looseObject({
  id: Id,
  record_id: Id.nullable(),
  says: Says,
  pay_to: z.string(),
  signature: z.string(),
  /** Signed together with record_id and says, as RFC 8785 (docs/corrections.md). */
  capability_id: Id.optional(),
  at: Time.optional(),
  service: z.string().max(300).optional(),
  /** When we received it. */
  received_at: Time.optional(),
});
const Reinstated = z.looseObject({ correction: Id, says: Says });

/** A card in the form in which notices compare two: the `from` and `to` of a change. */
export const Standing = z.looseObject({
  band: z.enum([...BANDS, "UNRATED"]),
  tier: z.enum(TIERS),
  composite: z.number(),
  /** null: the card has no such member. */
  computed_at: Time.nullable(),
  flags: z.array(z.string().max(60)).max(64),
});
export type Standing = z.infer<typeof Standing>;

/** A watcher was created: its receiver echoed the challenge. Of the token only the hash of its secret part is kept. */
const WatcherCreated = z.looseObject({
  id: Id,
  url: z.string().max(2048),
  watched: z
    .array(
      z.looseObject({
        asked: z.string().max(2048),
        matched: z.enum(MATCHED),
        /** One id; for a url that is not in the record, one for each method with which it may be listed. */
        capability_ids: z.array(Id).min(1).max(2),
      }),
    )
    .min(1)
    .max(100),
  /** Size of the tree when the watcher was created; cards in later leaves make notices. */
  tree_size: z.int().min(0),
  /** Headline cards in that tree of the watched endpoints that had one. */
  standing: z.array(z.looseObject({ capability_id: Id, ...Standing.shape })).max(200),
  token_sha256: Sha256Hex,
  /** Key of the signature `v1` (HMAC) of its notices, base64: its creator gave it. Absent: there is no such signature. */
  hmac_key: z.string().max(120).optional(),
  created_at: Time,
  /** Opaque name of the client network that created it; each network may have a share of the watchers. */
  by: z.string().max(60).optional(),
});

/**
 * Why a watcher ended. asked: by its token. gone: the receiver answered 410. unused, share: there was no room for
 * another watcher, and this one had no notice accepted for long, or belonged to the network with the most watchers.
 */
const WatcherStopped = z.looseObject({ id: Id, why: z.enum(["asked", "gone", "unused", "share"]), at: Time });

/** The notice that an attempt carried. The leaves of a watcher's delivered notices rise from one to the next. */
const Notified = {
  id: Id,
  notice: Id,
  capability_id: Id,
  /** Number of the notice for this watcher and endpoint, from 1, without gaps, in the order of the tree. */
  seq: z.int().min(1),
  /** Position of the card's leaf. */
  leaf: z.int().min(0),
  change: z.enum(NOTICE_CHANGES),
  /** Number of the attempt, from 1. */
  attempt: z.int().min(1),
  at: Time,
};

const WatcherDelivered = z.looseObject({ ...Notified, status: z.int(), to: Standing });

/** An attempt that got no 2xx, and when the next one is due. */
const WatcherFailed = z.looseObject({
  ...Notified,
  /** null: there was no answer. */
  status: z.int().nullable(),
  says: z.string().max(300),
  retry_at: Time,
});

/** All attempts since then have failed: no further one is made. */
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
