import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { URL_LENGTH } from "./check.ts";
import { forbidsAll, HTTP_URL_START, isWholeText, refusalSchema, requiresAll, WHOLE_TEXT_MESSAGE } from "./common.ts";

/**
 * Largest document that may be sent, bytes after decoding. A fetched document may be as large as the limits of the
 * fetch allow.
 */
export const MAX_SENT_BYTES = 8 * 1024 * 1024;
/** Length of the largest document in base64 (RFC 4648 section 4), characters. */
export const MAX_SENT_CHARS = Math.ceil(MAX_SENT_BYTES / 3) * 4;

const LENGTH_MESSAGE = `must be ${URL_LENGTH.min} to ${URL_LENGTH.max} characters long`;

/** An address that the client wants fetched. Whether it may be fetched is decided at the fetch. */
export const FetchedUrl = z
  .string({ error: "must be a url" })
  .min(URL_LENGTH.min, LENGTH_MESSAGE)
  .max(URL_LENGTH.max, LENGTH_MESSAGE)
  .regex(HTTP_URL_START, "must be an http or https url")
  // The address is part of the signed answer.
  .refine(isWholeText, WHOLE_TEXT_MESSAGE);

const PARTS = ["whole", "main"] as const;

/** Body of POST /v1/docs/extract: the address of a document, or the document itself. */
export const ExtractRequest = z
  .strictObject({
    url: FetchedUrl.optional(),
    /** Padded base64. */
    bytes: z
      .string({ error: "must be base64" })
      .min(1, "must not be empty")
      .max(MAX_SENT_CHARS, `must be at most ${MAX_SENT_BYTES} bytes once decoded`)
      .optional(),
    /**
     * Declared media type of the document; default: the content type with which it was fetched. It counts only where
     * the bytes do not show the format.
     */
    type: z
      .string({ error: "must be a media type" })
      .max(200, "must be at most 200 characters long")
      .regex(/^[\w.+-]+\/[\w.+-]+(?:\s*;.*)?$/, "must be a media type such as text/csv")
      .optional(),
    /** What is read of an HTML page: all that it shows, or its main text without menus and the like. Default: whole. */
    part: z.enum(PARTS, { error: "must be whole or main" }).optional(),
  })
  .superRefine(({ url, bytes }, context) => {
    if ((url === undefined) === (bytes === undefined)) {
      context.addIssue({ code: "custom", path: ["url"], message: "either url or bytes must be given, and not both" });
    }
  })
  .meta(refusalSchema(requiresAll("url", "bytes"), forbidsAll("url", "bytes")));
export type ExtractRequest = z.infer<typeof ExtractRequest>;

const Metadata = z.strictObject({
  title: z.string().nullable(),
  author: z.string().nullable(),
  /** Language as the document states it: a BCP 47 tag if the document follows that standard. */
  language: z.string().nullable(),
  description: z.string().nullable(),
  /** Date of publication as the document states it; of a PDF, the date on which it was made. */
  published: z.string().nullable(),
  /** Number of pages or slides; null for a document without them. */
  pages: z.int().nullable(),
});

const Heading = z.strictObject({
  level: z.int().min(1).max(6),
  text: z.string(),
  /** Offset at which the heading begins in the document's text (`Extracted.text`), UTF-16 code units. */
  offset: z.int().min(0),
  page: z.int().nullable(),
});

const Table = z.strictObject({
  page: z.int().nullable(),
  /** How the table was found. markup: the document marks it as a table; layout: its cells are aligned in columns. */
  found: z.enum(["markup", "layout"]),
  caption: z.string().nullable(),
  /** Whether the document marks the first row as a header. */
  header: z.boolean(),
  /** Cells by row. A cell that spans several columns or rows is in each of them. */
  rows: z.array(z.array(z.string())),
});

const Link = z.strictObject({ text: z.string(), url: z.string(), page: z.int().nullable() });

const CUT_FIELDS = ["text", "headings", "tables", "links"] as const;

/** Kinds of documents that POST /v1/docs/extract reads. */
export const DOCUMENT_KINDS = ["pdf", "html", "text", "markdown", "csv", "docx", "xlsx", "pptx", "image"] as const;

/** What was extracted from a document. */
export const Extracted = z.strictObject({
  kind: z.enum(DOCUMENT_KINDS),
  /**
   * A sentence about it if the document is of another kind than declared; null otherwise, or if nothing is declared.
   */
  mismatch: z.string().nullable(),
  /**
   * Number of pages whose text was recognised in pictures, its language, and the mean confidence of 100; null: none.
   */
  recognised: z
    .strictObject({ language: z.string(), pages: z.int().min(1), confidence: z.int().min(0).max(100) })
    .nullable(),
  part: z.enum(PARTS),
  metadata: Metadata,
  text: z.string(),
  headings: z.array(Heading),
  tables: z.array(Table),
  links: z.array(Link),
  /** Names of the fields of which the document has more than this answer contains. */
  cut: z.array(z.enum(CUT_FIELDS)),
});
export type Extracted = z.infer<typeof Extracted>;

/** Answer of POST /v1/docs/extract. */
export const ExtractAnswer = Extracted.extend({
  schema: z.literal("svc.extract.v1"),
  source: z.strictObject({
    /** Url in the request; null for a document that was sent. */
    url: z.string().nullable(),
    /** Url from which the document was read, after redirects. */
    final_url: z.string().nullable(),
    fetched_at: z.string().nullable(),
    content_type: z.string().nullable(),
    sha256: Sha256Hex,
    bytes: z.int().min(1),
  }),
});
export type ExtractAnswer = z.infer<typeof ExtractAnswer>;
