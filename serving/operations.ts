import type { HTTPResponse } from "h3";
import type { z } from "zod";
import type { Service } from "./context.ts";
import type { Limiter } from "./http/limits.ts";
import { ARCHIVE } from "./operations/archive.ts";
import { check } from "./operations/check.ts";
import { DISCOVERY } from "./operations/discovery.ts";
import { disputes } from "./operations/disputes.ts";
import { OBJECTS } from "./operations/objects.ts";
import { PAGES } from "./operations/pages.ts";
import { PROCESS } from "./operations/process.ts";
import { TRUST } from "./operations/trust.ts";

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
  /** Errors are shown as a page. */
  page?: boolean;
  limiter: (service: Service) => Limiter | null;
  run(call: Call): HTTPResponse | Promise<HTTPResponse>;
}

/** All operations, in the order of the interface. */
export const OPERATIONS: readonly Operation[] = [
  check,
  ...TRUST,
  ...ARCHIVE,
  disputes,
  ...DISCOVERY,
  ...PAGES,
  ...OBJECTS,
  ...PROCESS,
];
