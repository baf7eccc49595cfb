import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { Extracted, FetchedUrl } from "./extract.ts";

const QUESTION_LENGTH = { min: 3, max: 500 } as const;
const MAX_URLS = 8;

const LENGTH_MESSAGE = `must be ${QUESTION_LENGTH.min} to ${QUESTION_LENGTH.max} characters long`;

/** Body of POST /v1/research/brief. */
export const BriefRequest = z
  .strictObject({
    question: z
      .string({ error: "must be given" })
      .trim()
      .min(QUESTION_LENGTH.min, LENGTH_MESSAGE)
      .max(QUESTION_LENGTH.max, LENGTH_MESSAGE),
    /**
     * Addresses to read. Without any, the question is answered from this service's record, from a web search or from
     * its documentation.
     */
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

/** The place of a text in a source. */
const Citation = z.strictObject({
  url: z.string(),
  sha256: Sha256Hex,
  /**
   * Offset at which the text begins, in UTF-16 code units: in the text that POST /v1/docs/extract returns for these
   * bytes and this part; in a leaf or an answer of this service, in its own text.
   */
  offset: z.int().min(0),
});

/** A text, word for word as it is in a source. */
const Quotation = z.strictObject({ text: z.string(), ...Citation.shape });
const Sentence = z.strictObject({ text: z.string(), cites: Citation });

/**
 * A statement that sources support: one of their sentences; if the source is the record, a sentence of this service
 * whose figures are in the quotations.
 */
const Claim = z.strictObject({ text: z.string(), quotations: z.array(Quotation).min(1) });

/** Sources that contradict each other, judged by their words and figures. */
const Disagreement = z.strictObject({ says: z.string(), quotations: z.array(Quotation).min(1) });

const ReadSource = z.strictObject({
  read: z.literal(true),
  url: z.string(),
  final_url: z.string(),
  fetched_at: z.string(),
  title: z.string().nullable(),
  /**
   * Kind of the document; or `leaf`: the source is the first line at the address, a leaf (entry) of the service's log,
   * which never changes; or `answer`: what this service answered at the address at that moment.
   */
  kind: z.enum([...Extracted.shape.kind.options, "leaf", "answer"]),
  part: z.enum(["whole", "main"]),
  sha256: Sha256Hex,
  bytes: z.int().min(1),
  /** Whether the source has more text than was read. */
  cut: z.boolean(),
});

const UnreadSource = z.strictObject({ read: z.literal(false), url: z.string(), says: z.string() });

/** Answer of POST /v1/research/brief. */
export const BriefAnswer = z.strictObject({
  schema: z.literal("svc.brief.v1"),
  question: z.string(),
  /**
   * What was read: the addresses of the request, this service's record, a web search, or this service's documentation.
   */
  asked_of: z.strictObject({ what: z.enum(["urls", "record", "search", "corpus"]), says: z.string() }),
  summariser: z.strictObject({ name: z.string(), says: z.string() }),
  /** Best first. */
  claims: z.array(Claim).min(1),
  /** The first quotation of each claim. */
  sentences: z.array(Sentence).min(1),
  disagreements: z.array(Disagreement),
  /** Parts of the question that no source answers, one sentence each. */
  not_found: z.array(z.string()),
  /** Number of claims and disagreements of the summariser that were left out since no source contains them. */
  not_quoted: z.int().min(0),
  sources: z.array(z.discriminatedUnion("read", [ReadSource, UnreadSource])),
  /** The whole answer as one page of Markdown. */
  markdown: z.string(),
  answered_at: z.string(),
});
export type BriefAnswer = z.infer<typeof BriefAnswer>;
export type BriefSource = BriefAnswer["sources"][number];
export type BriefQuotation = z.infer<typeof Quotation>;
