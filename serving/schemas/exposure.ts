import { z } from "zod";
import { faultsOf } from "../../pipelines/record/faults.ts";
import { isId } from "../../pipelines/record/ids.ts";
import { BadUrl, normaliseUrl } from "../../pipelines/record/url.ts";
import { CheckFacts, CheckQuery } from "./check.ts";
import { Money } from "./common.ts";

/** Dependencies of one request (interface, Limits). */
export const MAX_DEPENDENCIES = 200;
/** Calls a month that one dependency may be said to take. */
export const MAX_CALLS = 1_000_000_000;

/** What RFC 8785 cannot print: an answer that repeats it could not be signed. */
const LONE_SURROGATE = /\p{Surrogate}/u;

const sayBadUrl = (url: string): string | null => {
  if (isId("cap", url)) return null;
  if (LONE_SURROGATE.test(url)) return "must be whole Unicode text";
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
  const says = sayBadUrl(url);
  if (says !== null) context.addIssue({ code: "custom", message: says });
});

const CALLS = `must be a number from 0 to ${MAX_CALLS}`;

const Dependency = z.strictObject(
  {
    /** As of a check: an http(s) url, or a capability id. */
    url: Url,
    calls_per_month: z.number({ error: CALLS }).min(0, CALLS).max(MAX_CALLS, CALLS).optional(),
    /** The payTo of the 402 in the caller's hand. */
    pay_to: CheckQuery.shape.pay_to,
  },
  { error: "must be a url, or an object with only url, calls_per_month and pay_to" },
);
export type Dependency = z.infer<typeof Dependency>;

/** Body of POST /v1/exposure as it is described. */
export const ExposureRequest = z.strictObject({
  dependencies: z.array(z.union([Url, Dependency])).max(MAX_DEPENDENCIES),
});
export type ExposureRequest = z.infer<typeof ExposureRequest>;

/** The same as it is read: what is wrong with an item is said of its own form, a text or an object. */
export const ReadExposure: z.ZodType<ExposureRequest> = z.strictObject(
  {
    dependencies: z
      .array(
        z.unknown().transform((item, context): ExposureRequest["dependencies"][number] => {
          const read = (typeof item === "string" ? Url : Dependency).safeParse(item);
          if (read.success) return read.data;
          for (const { path, detail } of faultsOf(read.error)) {
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
 * What the record says of a dependency, in the order in which one goes before the next: the first that holds is said. The
 * last two mean unknown and are no failure.
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

/** Spend of a month in dollars, in parts that add up to `monthly_spend`. */
const Spend = {
  monthly_spend: Money,
  /** took_the_money, listing_mismatch, and a letter F. */
  monthly_spend_where_the_record_shows_a_failure: Money,
  /** paid_no_letter, handshake_only, not_in_record. */
  monthly_spend_not_yet_measured: Money,
  /** Letters from A to D. */
  monthly_spend_lettered: Money,
};

/**
 * Lines whose payee or domain took money, how many of each and their spend of a month, whichever part of the spend it is counted
 * in: a standing is of the endpoint alone. Only where there is such a line.
 */
const Related = z.strictObject({
  payee_took_the_money: Count,
  domain_took_the_money: Count,
  monthly_spend: Money,
});

/** One dependency. `asked`, `matched`, `band`, `tier`, `composite`, `why`, `flags`, `queued` and `next` are as in a check. */
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
  /** Codes of what its listing or 402 gets wrong. */
  defects: z.array(z.string()),
  /** Paid calls of ours that settled and brought nothing, not paid back and not withdrawn. */
  calls_unserved: Count,
  /** Amount and asset of the newest 402; null where none states them. */
  price: Money.nullable(),
  asset: z.string().nullable(),
  /** `USD` where that asset is a dollar; only such amounts are added up. */
  unit: z.string().nullable(),
  networks: z.array(z.string()),
  /** The address that it pays: the one that was passed, else that of the offer whose price is shown. */
  pay_to: z.string().nullable(),
  /** Did a 402 of this endpoint ever name the address that was passed? Only where one was. */
  pay_to_seen_before: z.boolean().optional(),
  calls_per_month: z.number().nullable(),
  /** Price times calls, rounded up to a millionth; null where either is not known. */
  monthly_spend: Money.nullable(),
});
export type ExposureLine = z.infer<typeof ExposureLine>;

export const ExposurePayee = z.strictObject({
  /** null: of these no address is known. */
  address: z.string().nullable(),
  dependencies: Count,
  /** Origins of the endpoints behind it, as far as they are in the record. */
  origins: Count,
  ...Spend,
  standings: Standings,
  related: Related.optional(),
});
export type ExposurePayee = z.infer<typeof ExposurePayee>;

const ExposureTotals = z.strictObject({
  dependencies: Count,
  payees: Count,
  unit: z.literal("USD"),
  ...Spend,
  standings: Standings,
  related: Related.optional(),
  /** No spend could be said of these: no calls were given, or no price is known. */
  without_spend: Count,
  /** Of those with an address that was passed: how many never were seen to name it. */
  pay_to_not_seen_before: Count,
  /** Assets that are no dollar, with how many dependencies ask for them: their amounts stand on the lines alone. */
  other_assets: z.array(z.strictObject({ asset: z.string(), dependencies: Count })),
});

export const ExposureFacts = z.strictObject({
  schema: z.literal("svc.exposure.v1"),
  lines: z.array(ExposureLine),
  payees: z.array(ExposurePayee),
  totals: ExposureTotals,
});
export type ExposureFacts = z.infer<typeof ExposureFacts>;

/** Answer of POST /v1/exposure, signed as a check is. */
export const ExposureReport = ExposureFacts.extend({
  answered_at: z.string(),
  signing_key_id: z.string(),
  canonicalization: z.string(),
  signature: z.string(),
});
export type ExposureReport = z.infer<typeof ExposureReport>;
