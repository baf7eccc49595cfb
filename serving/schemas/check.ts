import { z } from "zod";
import { Components } from "../../pipelines/record/card.ts";
import {
  Band,
  CapId,
  Correction,
  Defect,
  isWholeText,
  Matched,
  Money,
  ONE_TEXT_ERROR,
  oneOfError,
  Tier,
  URL_OR_ID,
  URL_OR_ID_MESSAGE,
  WHOLE_TEXT_MESSAGE,
} from "./common.ts";

/** Shortest and longest url in a request, characters. */
export const URL_LENGTH = { min: 8, max: 2048 } as const;

const PAY_TO = /^(?:0x[0-9a-fA-F]{40}|[1-9A-HJ-NP-Za-km-z]{32,44})$/;

/** Query of GET /v1/check. `url` may also be a capability id, the id of an endpoint. */
export const CheckQuery = z.object({
  url: z
    .string(ONE_TEXT_ERROR)
    .min(URL_LENGTH.min, `must be ${URL_LENGTH.min} to ${URL_LENGTH.max} characters long`)
    .max(URL_LENGTH.max, `must be ${URL_LENGTH.min} to ${URL_LENGTH.max} characters long`)
    .regex(URL_OR_ID, URL_OR_ID_MESSAGE)
    .refine(isWholeText, WHOLE_TEXT_MESSAGE)
    .describe("Url of the endpoint, or its capability id. Normalised, a url has at most 2,048 characters too."),
  method: z.enum(["GET", "POST"], oneOfError(["GET", "POST"])).optional(),
  pay_to: z
    .string(ONE_TEXT_ERROR)
    .regex(PAY_TO, "must be 0x and 40 hex digits, or base58 of 32 to 44 characters")
    .optional()
    .describe("The payTo of the 402 that is about to be paid."),
});
export type CheckQuery = z.infer<typeof CheckQuery>;
/**
 * Arguments of the MCP tool check_grade. Unknown names are refused: an answer to a misspelt `pay_to` would lack the
 * warnings about that address.
 */
export const CheckArguments = CheckQuery.strict();

/** What the newest 402 of an endpoint asked. */
export const Advertised = z.strictObject({ amount: Money, asset: z.string(), networks: z.array(z.string()) });

/** What free handshakes (requests of the service without a payment) saw of an endpoint. */
export const Observed = z.strictObject({
  probes: z.int().min(0),
  answered: z.int().min(0),
  askedForPayment: z.int().min(0),
  firstSeen: z.string().nullable(),
  lastSeen: z.string().nullable(),
  /** Time from the first handshake to now, days with two decimals. */
  spanDays: z.number().min(0),
  advertised: Advertised.nullable(),
  distinctPrices: z.int().min(0),
  protocols: z.array(z.string()),
});
export type Observed = z.infer<typeof Observed>;

/** What the record holds about an address that is paid: the listed endpoints whose 402s name it. */
export const Payee = z.strictObject({
  address: z.string(),
  /** Origins of these endpoints, ascending; at most the first 100. */
  origins: z.array(z.string()),
  /** Number of these endpoints. */
  listed: z.int().min(0),
  /** Number of those with a letter. */
  graded: z.int().min(0),
  /** Best letter among these endpoints; null when none has a letter. */
  bestBand: z.string().nullable(),
  /** Number of these endpoints whose listing or 402 has defects. */
  withDefects: z.int().min(0),
});
export type Payee = z.infer<typeof Payee>;

/** How to buy a call through the service. Left out when a purchase would be refused now. */
export const Buy = z.strictObject({
  url: z.string(),
  method: z.string(),
  seller_price: Money,
  fee: Money,
  total: Money,
  asset: z.literal("USDC"),
  guarantee: z.string(),
  /** Request header, name and value, with which the buyer publishes the call in the record. */
  publish: z.string(),
  tool: z.string().optional().describe("The tool of an MCP server that is called: the body is its arguments."),
  variables: z
    .array(z.string())
    .optional()
    .describe("Variables of the endpoint's url, each of which is a parameter of the query of a call."),
});
export type Buy = z.infer<typeof Buy>;

/** The check answer before it is dated and signed. */
export const CheckFacts = z.strictObject({
  band: Band,
  /** How deep the verification went: liveness, delivery or outcome; null without a grade. */
  tier: Tier.nullable(),
  /** Weighted sum of the lower bounds of the components; null without a grade. */
  composite: z.number().nullable(),
  /** The sentence that explains the grade, after any warnings against paying. */
  why: z.string(),
  /** The url or id of the query, as the client sent it. */
  asked: z.string(),
  /** How the url was found in the record. */
  matched: Matched,
  method: z
    .enum(["GET", "POST"])
    .optional()
    .describe("The method of the question, where the record does not hold the url (`matched` is `none`)."),
  defects: z.array(Defect),
  capabilityId: CapId.optional(),
  url: z.string().optional(),
  components: Components.nullable().optional(),
  sampleCount: z.int().min(0).optional(),
  computedAt: z.string().nullable().optional(),
  /** Number of observations newer than the card. */
  observationsSince: z.int().min(0).optional(),
  /** Number of records behind the card that were withdrawn since. */
  withdrawnSince: z.int().min(0).optional(),
  flags: z.array(z.string()).optional(),
  observed: Observed.optional(),
  /** Shell command that repeats our free probe; null when no command can. */
  reproduce: z.string().nullable().optional(),
  /** The signed card as RFC 8785 text. */
  scorecard: z.string().nullable().optional(),
  corrections: z.array(Correction).optional(),
  /** Whether the url waits for a free probe; absent where the check asks for none. */
  queued: z.boolean().optional(),
  /** Sentences about the answer, and about what the client can do next. */
  next: z.string().optional(),
  payee: Payee.nullable().optional(),
  buy: Buy.optional(),
  not_bought: z.string().optional().describe("Why there is no `buy`, of an endpoint that is in the record."),
});
export type CheckFacts = z.infer<typeof CheckFacts>;

/** Answer of GET /v1/check. */
export const CheckAnswer = CheckFacts.extend({
  answered_at: z.string(),
  signing_key_id: z.string().nullable(),
  canonicalization: z.string().optional(),
  signature: z.string().nullable(),
});
export type CheckAnswer = z.infer<typeof CheckAnswer>;
