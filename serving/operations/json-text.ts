import type { HTTPResponse } from "h3";
import { etagOfText } from "../answers/trust.ts";
import { JSON_TYPE, reply } from "../http/reply.ts";
import type { Call } from "../operations.ts";

/** Cache of what may be a minute old. */
export const MINUTE = "public, max-age=60";

/** A JSON text under an etag of its content, or a 304. */
export const replyJson = (
  { request, limitHeaders }: Pick<Call, "request" | "limitHeaders">,
  text: string,
  cache: string,
): HTTPResponse => reply(request, text, { type: JSON_TYPE, cache, etag: etagOfText(text), headers: limitHeaders });
