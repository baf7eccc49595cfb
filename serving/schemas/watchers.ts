import { z } from "zod";
import { BANDS, MATCHED, NOTICE_CHANGES, TIERS } from "../../pipelines/record/vocabulary.ts";
import { HTTP_URL_START, isWholeText, URL_OR_ID, URL_OR_ID_MESSAGE, WHOLE_TEXT_MESSAGE } from "./common.ts";

/** Largest number of endpoints of one watcher. */
const MAX_WATCHED = 100;

/** Reports whether a text is padded base64 of 24 to 64 bytes. */
function isHmacKey(text: string): boolean {
  const bytes = Buffer.from(text, "base64");
  return bytes.length >= 24 && bytes.length <= 64 && bytes.toString("base64") === text;
}

const WatchedName = z
  .string()
  .min(8)
  .max(2048)
  .regex(URL_OR_ID, URL_OR_ID_MESSAGE)
  .refine(isWholeText, WHOLE_TEXT_MESSAGE);

/** Body of POST /v1/watchers. */
export const WatcherRequest = z.strictObject({
  /** Address to which notices are posted (https). */
  url: z.string().min(8).max(2048).regex(HTTP_URL_START, "must be an https url"),
  /** Urls or capability ids of endpoints. */
  watch: z.array(WatchedName).min(1).max(MAX_WATCHED),
  /** HMAC key with which every message also gets a signature `v1`, for libraries of Standard Webhooks. */
  secret: z
    .string()
    .regex(/^(?:whsec_)?[A-Za-z0-9+/]{32,88}={0,2}$/, "must be whsec_ and the base64 of 24 to 64 bytes")
    .refine((text) => isHmacKey(text.replace(/^whsec_/, "")), "must be whsec_ and the base64 of 24 to 64 bytes")
    .optional(),
});
export type WatcherRequest = z.infer<typeof WatcherRequest>;

/** Body of POST /v1/watchers/stop, which may be left out, since the token names the watcher. */
export const StopRequest = z.strictObject({ watcher_id: z.string().optional() });

export const WatcherParams = z.object({
  watcher_id: z.string().regex(/^wat_[0-9A-HJKMNP-TV-Z]{26}$/, "must be a watcher id: wat_ and 26 characters"),
});

const Watched = z.strictObject({
  asked: z.string(),
  matched: z.enum(MATCHED),
  capability_ids: z.array(z.string()),
});

/** Answer of POST /v1/watchers: the only answer that has the token. */
export const WatcherMade = z.strictObject({
  watcher_id: z.string(),
  token: z.string(),
  url: z.string(),
  state: z.literal("active"),
  created_at: z.string(),
  watched: z.array(Watched),
});

export type WatcherMade = z.infer<typeof WatcherMade>;

/** The members of a card (signed grade) whose changes cause a notice. */
const Standing = z.looseObject({
  band: z.enum([...BANDS, "UNRATED"]),
  tier: z.enum(TIERS),
  composite: z.number(),
  computed_at: z.string().nullable(),
  flags: z.array(z.string()),
});

const Delivery = z.strictObject({
  notice_id: z.string(),
  capability_id: z.string(),
  /** Number of the notice for its watcher and endpoint, from 1. */
  seq: z.int(),
  change: z.enum(NOTICE_CHANGES),
  attempt: z.int(),
  at: z.string(),
  delivered: z.boolean(),
  /** Status of the receiver's answer; null when there was none. */
  status: z.int().nullable(),
  says: z.string().nullable(),
});

/** A watcher, as it is shown to the holder of its token. */
export const WatcherAnswer = z.strictObject({
  watcher_id: z.string(),
  url: z.string(),
  state: z.enum(["active", "stopped", "disabled"]),
  /** Why the watcher ended, in words. */
  says: z.string().nullable(),
  created_at: z.string(),
  ended_at: z.string().nullable(),
  watched: z.array(Watched),
  endpoints: z.array(
    z.strictObject({
      capability_id: z.string(),
      /** `seq` of the last notice that was delivered; 0 before the first. */
      last_seq: z.int(),
      /**
       * Standing in the card of the last delivered notice; before the first notice, in the card at the creation of the
       * watcher. null: there was no card.
       */
      standing: Standing.nullable(),
      /**
       * Number of published cards of the endpoint that are not delivered yet, as far as this replica has read the log.
       */
      pending: z.int(),
    }),
  ),
  pending: z.int(),
  failing: z
    .strictObject({ since: z.string(), attempts: z.int(), next_attempt_at: z.string(), says: z.string() })
    .nullable(),
  /** The newest attempts to deliver a notice, newest first. */
  deliveries: z.array(Delivery),
});
export type WatcherAnswer = z.infer<typeof WatcherAnswer>;
