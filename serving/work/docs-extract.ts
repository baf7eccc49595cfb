import { sha256hexAsync } from "../../infra/canonical.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { badField } from "../http/problem.ts";
import { DOCUMENT_KINDS, ExtractAnswer, ExtractRequest, MAX_SENT_BYTES, MAX_SENT_CHARS } from "../schemas/extract.ts";
import { extractDocument, fetchDocument } from "./fetching.ts";
import type { Work, WorkDeps } from "./work.ts";

/** Longest body: the document in base64 and the other fields, bytes. */
const MAX_BODY_BYTES = MAX_SENT_CHARS + 8_192;

/** A document and its origin. */
interface Source extends Omit<ExtractAnswer["source"], "sha256" | "bytes"> {
  document: Uint8Array;
  /** JSON pointer to the document in the request, for errors. */
  pointer: string;
}

/**
 * Decodes base64. Node skips invalid characters, so the length shows whether there were any.
 * @throws Problem bad_request
 */
function decodeBase64(base64: string): Uint8Array {
  const padding = base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0;
  const bytes = Buffer.from(base64, "base64");
  if (base64.length % 4 !== 0 || bytes.length !== (base64.length / 4) * 3 - padding) {
    throw badField("/bytes", "must be base64 with its padding (RFC 4648 section 4) and no line ends");
  }
  if (bytes.length > MAX_SENT_BYTES) throw badField("/bytes", `must be at most ${MAX_SENT_BYTES} bytes once decoded`);
  return bytes;
}

async function readSource({ url, bytes }: ExtractRequest, deps: WorkDeps, signal?: AbortSignal): Promise<Source> {
  if (url === undefined) {
    const noOrigin = { url: null, final_url: null, fetched_at: null, content_type: null };
    return { ...noOrigin, document: decodeBase64(bytes ?? ""), pointer: "/bytes" };
  }
  const answer = await fetchDocument(deps.egress, { url, pointer: "/url", holder: deps.holder, signal });
  return {
    url,
    final_url: answer.url,
    fetched_at: rfc3339(deps.clock.now()),
    content_type: answer.headers["content-type"]?.slice(0, 200) ?? null,
    document: answer.body,
    pointer: "/url",
  };
}

/** The work of POST /v1/docs/extract (docs/paid-operations.md). */
export const docsExtract: Work<ExtractRequest, ExtractAnswer> = {
  id: "docsExtract",
  method: "POST",
  path: "/v1/docs/extract",
  summary:
    "A document (PDF, HTML, Markdown, text, CSV, DOCX, XLSX, PPTX or a scan), by url or by its bytes, as text, headings, tables, links and metadata",
  body: ExtractRequest,
  example: { url: "https://example.com/" },
  answer: ExtractAnswer,
  maxBodyBytes: MAX_BODY_BYTES,
  errors: ["not_fetched", "not_extracted", "unavailable"],
  async run(request, deps, signal) {
    const { document, pointer, ...source } = await readSource(request, deps, signal);
    const [sha256, extracted] = await Promise.all([
      sha256hexAsync(document),
      extractDocument(
        deps.extractor,
        {
          bytes: document,
          type: request.type ?? source.content_type ?? undefined,
          url: source.final_url,
          part: request.part ?? "whole",
          kinds: DOCUMENT_KINDS,
          ...(deps.holder ? { holder: deps.holder } : {}),
          ...(signal ? { signal } : {}),
        },
        pointer,
      ),
    ]);
    return { schema: "svc.extract.v1", source: { ...source, sha256, bytes: document.length }, ...extracted };
  },
};
