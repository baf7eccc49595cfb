import { z } from "zod";
import { PayeeSignature, SignedAt, SigningPayee } from "../../pipelines/corrections/dispute.ts";
import { HANDSHAKE_STATES } from "../../pipelines/record/bodies.ts";
import { METHODS } from "../../pipelines/record/vocabulary.ts";
import { URL_LENGTH } from "./check.ts";
import { CapId, HTTP_URL_START, isWholeText, Money, ONE_TEXT_ERROR, Protocol, WHOLE_TEXT_MESSAGE } from "./common.ts";

const LENGTH_MESSAGE = `must be ${URL_LENGTH.min} to ${URL_LENGTH.max} characters long`;

const httpUrl = (text: z.ZodString) =>
  text
    .min(URL_LENGTH.min, LENGTH_MESSAGE)
    .max(URL_LENGTH.max, LENGTH_MESSAGE)
    .regex(HTTP_URL_START, "must be an http or https url")
    .refine(isWholeText, WHOLE_TEXT_MESSAGE);

/**
 * Body of POST /v1/listings/validate. Only the methods of a handshake (free probe) are accepted, since other methods
 * may change something at the seller.
 */
export const ListingQuestion = z.strictObject({
  url: httpUrl(z.string(ONE_TEXT_ERROR).trim()),
  method: z.enum(["GET", "POST"], { error: "must be GET or POST" }).optional(),
});
export type ListingQuestion = z.infer<typeof ListingQuestion>;

/** An offer of the 402. */
const ShownOffer = z.strictObject({
  scheme: z.string(),
  /** CAIP-2 where the name is known, else as the seller wrote it. */
  network: z.string(),
  asset: z.string().nullable(),
  pay_to: z.string().nullable(),
  amount_atomic: z.string().nullable(),
  /** Price of a call; null unless the asset and its decimals are known. */
  price: Money.nullable(),
  max_timeout_s: z.int().nullable(),
});

/**
 * The result of one free probe of an endpoint that its seller asked for. It has no letter (grade) and is not signed,
 * since it is no part of the record.
 */
export const ListingAnswer = z.strictObject({
  schema: z.literal("svc.listing-check.v1"),
  url: z.string(),
  method: z.enum(METHODS),
  /** Time of the probe. */
  looked_at: z.string(),
  /** What the endpoint answered; `says` describes it in words. */
  state: z.enum(HANDSHAKE_STATES),
  says: z.string(),
  /** What the seller should change, where there was no readable demand for payment; else null. */
  mend: z.string().nullable(),
  status: z.int().nullable(),
  latency_ms: z.number().nullable(),
  protocols: z.array(Protocol),
  x402_version: z.int().nullable(),
  offers: z.array(ShownOffer),
  defects: z.array(z.strictObject({ defect: z.string(), says: z.string(), mend: z.string() })),
  /** Whether an unmodified x402 client would sign a payment for one of the offers. */
  stock_client: z.strictObject({
    client: z.string(),
    verdict: z.enum(["signs", "signs_without_spend_limits", "refuses", "cannot_be_told"]),
    /** Index of the offer that the client chose, from 0. */
    offer: z.int().nullable(),
    says: z.string(),
  }),
  /** The seller's own document that lists this url, and its differences from the 402; null: none was found. */
  listing: z.strictObject({ document: z.string(), differs: z.array(z.string()) }).nullable(),
  /** Id of the endpoint in the record that has this url; null: none. */
  capability_id: CapId.nullable(),
  /** The record keeps nothing of the probe. */
  kept: z.literal("nothing"),
});
export type ListingAnswer = z.infer<typeof ListingAnswer>;

/** Body of POST /v1/listings/retest: the members of the signed statement, the payee's address, and the signature. */
export const RetestRequest = z.strictObject({
  url: httpUrl(z.string(ONE_TEXT_ERROR)),
  method: z.enum(METHODS).optional(),
  /** Origin of this service. May be left out here, but not in the signed statement. */
  service: z.string().max(300).optional(),
  at: SignedAt,
  pay_to: SigningPayee,
  signature: PayeeSignature,
});
export type RetestRequest = z.infer<typeof RetestRequest>;

/** Answer when the endpoint is queued for its free probe. */
export const RetestAnswer = z.strictObject({
  schema: z.literal("svc.listing-retest.v1"),
  capability_id: CapId,
  url: z.string(),
  queued: z.literal(true),
  next: z.string(),
  /** Text about what a re-test does not change. */
  says: z.string(),
});
export type RetestAnswer = z.infer<typeof RetestAnswer>;
