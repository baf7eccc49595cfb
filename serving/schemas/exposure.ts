import { z } from "zod";
import { faultsOf } from "../../pipelines/record/faults.ts";
import { isId } from "../../pipelines/record/ids.ts";
import { BadUrl, normaliseUrl } from "../../pipelines/record/url.ts";
import { CheckFacts, CheckQuery } from "./check.ts";
import { Money } from "./common.ts";

/** Largest number of dependencies of one request. */
export const MAX_DEPENDENCIES = 200;
/** Largest number of calls a month of one dependency. */
export const MAX_CALLS = 1_000_000_000;

const describeBadUrl = (url: string): string | null => {
  if (isId("cap", url)) return null;
  try {
    normaliseUrl(url);
    return null;
  } catch (error) {
    if (error instanceof BadUrl)
      return url.startsWith("cap_") ? "is neither a capability id nor an http(s) url" : error.says;
    throw error;
  }
};

const Url = CheckQuery.shape.url.superRefine((url, context) => {
  const says = describeBadUrl(url);
  if (says !== null) context.addIssue({ code: "custom", message: says });
});

const PRICE_MESSAGE = "must be money such as 0.05";
const CALLS_MESSAGE = `must be a number from 0 to ${MAX_CALLS}`;

/** An endpoint that the client pays, and what the client knows about its own payments to it. */
const Dependency = z.strictObject(
  {
    /** As in a check: an http(s) url, or a capability id. */
    url: Url,
    calls_per_month: z.number({ error: CALLS_MESSAGE }).min(0, CALLS_MESSAGE).max(MAX_CALLS, CALLS_MESSAGE).optional(),
    /** What the client pays for a call, in dollars; used where the record knows no price. */
    price: z
      .string({ error: PRICE_MESSAGE })
      .regex(/^\d{1,12}\.\d{1,6}$/, PRICE_MESSAGE)
      .optional(),
    /** The payTo of the 402 that the client is about to pay. */
    pay_to: CheckQuery.shape.pay_to,
  },
  { error: "must be a url, or an object with only url, calls_per_month, price and pay_to" },
);
export type Dependency = z.infer<typeof Dependency>;

/** Body of POST /v1/exposure, for the API's description. */
export const ExposureRequest = z.strictObject({
  dependencies: z.array(z.union([Url, Dependency])).max(MAX_DEPENDENCIES),
});
export type ExposureRequest = z.infer<typeof ExposureRequest>;

/**
 * Parses the body of POST /v1/exposure. Each item gets the errors of its own form, a text or an object, not of both.
 */
export const ParsedExposureRequest: z.ZodType<ExposureRequest> = z.strictObject(
  {
    dependencies: z
      .array(
        z.unknown().transform((item, context): ExposureRequest["dependencies"][number] => {
          const parsed = (typeof item === "string" ? Url : Dependency).safeParse(item);
          if (parsed.success) return parsed.data;
          for (const { path, detail } of faultsOf(parsed.error)) {
            context.addIssue({ code: "custom", path, message: detail });
          }
          return z.NEVER;
        }),
        { error: "must be an array of urls and objects" },
      )
      .max(MAX_DEPENDENCIES, `must be at most ${MAX_DEPENDENCIES}`),
  },
  { error: "must be an object with only dependencies" },
);

/**
 * What the record holds about a dependency; the first standing that applies is given. The last two mean that no paid
 * call of it is known, which is no failure.
 */
export const STANDINGS = [
  "took_the_money",
  "listing_mismatch",
  "lettered",
  "paid_no_letter",
  "handshake_only",
  "not_in_record",
] as const;
export const Standing = z.enum(STANDINGS);
export type Standing = z.infer<typeof Standing>;

const Count = z.int().min(0);
const Standings = z.strictObject(
  Object.fromEntries(STANDINGS.map((name) => [name, Count])) as Record<Standing, typeof Count>,
);

/** Spending of a month in dollars, in parts that add up to `monthly_spend`. */
const SPEND_FIELDS = {
  monthly_spend: Money,
  /** Spending on endpoints with standing took_the_money or listing_mismatch, or with letter F. */
  monthly_spend_where_the_record_shows_a_failure: Money,
  /** Spending on endpoints with standing paid_no_letter, handshake_only or not_in_record. */
  monthly_spend_not_yet_measured: Money,
  /** Spending on endpoints with a letter from A to D. */
  monthly_spend_lettered: Money,
  /** All calls of a month, also those of unknown price. */
  calls_per_month: z.number().min(0),
  /** Calls of a month to endpoints that are not yet measured. */
  calls_per_month_not_yet_measured: z.number().min(0),
};

/**
 * Number and monthly spending of the lines whose payee or domain took money at other endpoints without delivering. They
 * have any standing, since a standing is about the line's endpoint alone. Left out if there is no such line.
 */
const Related = z.strictObject({
  payee_took_the_money: Count,
  domain_took_the_money: Count,
  monthly_spend: Money,
});

/**
 * One dependency. `asked`, `matched`, `band`, `tier`, `composite`, `why`, `flags`, `queued` and `next` are as in the
 * answer of GET /v1/check.
 */
export const ExposureLine = CheckFacts.pick({
  asked: true,
  matched: true,
  capabilityId: true,
  url: true,
  band: true,
  tier: true,
  composite: true,
  why: true,
  queued: true,
  next: true,
}).extend({
  standing: Standing,
  flags: z.array(z.string()),
  /** Codes of the defects of the endpoint's listing or 402. */
  defects: z.array(z.string()),
  /** Number of our paid calls that settled and got no answer, were not refunded and are not withdrawn. */
  calls_unserved: Count,
  /** Amount and asset of the newest 402; null where none states them. */
  price: Money.nullable(),
  asset: z.string().nullable(),
  /** `USD` where that asset is a dollar; only such amounts are summed up. */
  unit: z.string().nullable(),
  networks: z.array(z.string()),
  /** Address of the payee: the one in the request, else that of the offer whose price is shown. */
  pay_to: z.string().nullable(),
  /** Whether any 402 of this endpoint named the address in the request. Absent when the request has none. */
  pay_to_seen_before: z.boolean().optional(),
  calls_per_month: z.number().nullable(),
  /** Price in the request, in dollars, used if `price` is null. Left out if the request has none. */
  price_given: Money.optional(),
  /** Price times calls, rounded up to a millionth; null where either is not known. */
  monthly_spend: Money.nullable(),
});
export type ExposureLine = z.infer<typeof ExposureLine>;

export const ExposurePayee = z.strictObject({
  /** null: the payee of these dependencies is not known. */
  address: z.string().nullable(),
  dependencies: Count,
  /** Number of origins (scheme, host, port) of the endpoints in the record that are paid at this address. */
  origins: Count,
  ...SPEND_FIELDS,
  standings: Standings,
  related: Related.optional(),
});
export type ExposurePayee = z.infer<typeof ExposurePayee>;

const ExposureTotals = z.strictObject({
  dependencies: Count,
  payees: Count,
  unit: z.literal("USD"),
  ...SPEND_FIELDS,
  standings: Standings,
  related: Related.optional(),
  /** Number of lines without spending: the request gave no number of calls, or no price is known. */
  without_spend: Count,
  /** Number of lines whose address in the request no 402 of the endpoint ever named. */
  pay_to_not_seen_before: Count,
  /** Assets that are not dollars, with the number of dependencies of each. Only the lines have amounts in them. */
  other_assets: z.array(z.strictObject({ asset: z.string(), dependencies: Count })),
});

export const ExposureFacts = z.strictObject({
  schema: z.literal("svc.exposure.v1"),
  lines: z.array(ExposureLine),
  payees: z.array(ExposurePayee),
  totals: ExposureTotals,
});
export type ExposureFacts = z.infer<typeof ExposureFacts>;

/** Answer of POST /v1/exposure, signed like a check answer. */
export const ExposureReport = ExposureFacts.extend({
  answered_at: z.string(),
  signing_key_id: z.string(),
  canonicalization: z.string(),
  signature: z.string(),
});
export type ExposureReport = z.infer<typeof ExposureReport>;
