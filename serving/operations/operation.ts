import type { z } from "zod";
import type { Service } from "../context.ts";
import type { Limiter } from "../http/limits.ts";
import { etagOfText, JSON_TYPE, reply } from "../http/reply.ts";

/** One request, as far as an operation sees it. */
export interface Call {
  service: Service;
  request: { method: string; headers: Headers; body: ReadableStream<Uint8Array> | null };
  /** Path as sent, percent-encoded. */
  path: string;
  query: URLSearchParams;
  params: Record<string, string>;
  client: string;
  /** RateLimit headers of this answer. */
  limitHeaders: Record<string, string>;
}

/**
 * One row of the table that drives the routes; descriptions of the API are made of the same rows. An operation is a GET,
 * which answers HEAD too, unless it says that it is a POST.
 */
export interface Operation {
  id: string;
  method?: "POST";
  /** What a POST takes. */
  body?: z.ZodType;
  /** Pattern of h3: `:name` is one segment, `**` the rest. */
  path: string;
  summary: string;
  query?: z.ZodType;
  params?: z.ZodType;
  answer?: z.ZodType;
  type: string;
  /** Says what the record holds: not answered before the record was read, since nothing of it would be said as if it were so. */
  ofRecord?: true;
  /** Errors are shown as a page. */
  page?: boolean;
  limiter: (service: Service) => Limiter | null;
  run(call: Call): Response | Promise<Response>;
}

/** Cache of what may be a minute old. */
export const MINUTE = "public, max-age=60";

/** A JSON text under an etag of its content, or a 304. */
export const replyJson = (
  { request, limitHeaders }: Pick<Call, "request" | "limitHeaders">,
  text: string,
  cache: string,
): Response => reply(request, text, { type: JSON_TYPE, cache, etag: etagOfText(text), headers: limitHeaders });
