import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { FetchedUrl } from "./extract.ts";

const QUESTION_LENGTH = { min: 3, max: 500 } as const;
const MAX_URLS = 8;

const LENGTH = `must be ${QUESTION_LENGTH.min} to ${QUESTION_LENGTH.max} characters long`;

/** Body of POST /v1/research/brief. */
export const BriefRequest = z
  .strictObject({
    question: z
      .string({ error: "must be given" })
      .trim()
      .min(QUESTION_LENGTH.min, LENGTH)
      .max(QUESTION_LENGTH.max, LENGTH),
    /** Addresses to read; without any, the question is asked of the service's own corpus. */
    urls: z
      .array(FetchedUrl, { error: "must be a list of urls" })
      .min(1, "must not be empty: leave it out")
      .max(MAX_URLS, `must be at most ${MAX_URLS}`)
      .meta({ uniqueItems: true })
      .optional(),
  })
  .superRefine(({ urls = [] }, context) => {
    for (const [i, url] of urls.entries()) {
      if (urls.indexOf(url) < i) context.addIssue({ code: "custom", path: ["urls", i], message: "stands here twice" });
    }
  });
export type BriefRequest = z.infer<typeof BriefRequest>;

/** A sentence, word for word as it is in a source. */
const Sentence = z.strictObject({
  text: z.string(),
  cites: z.strictObject({
    url: z.string(),
    sha256: Sha256Hex,
    /** Where it begins in the text that docs/extract returns for these bytes and this part, in UTF-16 code units. */
    offset: z.int().min(0),
  }),
});

const ReadSource = z.strictObject({
  read: z.literal(true),
  url: z.string(),
  final_url: z.string(),
  fetched_at: z.string(),
  title: z.string().nullable(),
  kind: z.enum(["pdf", "html", "text"]),
  part: z.enum(["whole", "main"]),
  sha256: Sha256Hex,
  bytes: z.int().min(1),
  /** Has the source more text than was read? */
  cut: z.boolean(),
});

const UnreadSource = z.strictObject({ read: z.literal(false), url: z.string(), says: z.string() });

/** Answer of POST /v1/research/brief. */
export const BriefAnswer = z.strictObject({
  schema: z.literal("svc.brief.v1"),
  question: z.string(),
  /** What was read: the addresses of the request, or a corpus of the service. The web is not searched. */
  asked_of: z.strictObject({ what: z.enum(["urls", "corpus"]), says: z.string() }),
  summariser: z.strictObject({ name: z.string(), says: z.string() }),
  /** Best first. */
  sentences: z.array(Sentence).min(1),
  /** Number of sentences of the summariser that are in no source; they are left out. */
  not_quoted: z.int().min(0),
  sources: z.array(z.discriminatedUnion("read", [ReadSource, UnreadSource])),
  answered_at: z.string(),
});
export type BriefAnswer = z.infer<typeof BriefAnswer>;
export type BriefSource = BriefAnswer["sources"][number];
