import type { z } from "zod";
import type { Service } from "../context.ts";
import type { RequestHeader, ResponseHeader } from "../discovery/headers.ts";
import type { Limiter } from "../http/limits.ts";
import { PROBLEMS, type ProblemCode } from "../http/problem.ts";
import { etagOfText, JSON_TYPE, reply } from "../http/reply.ts";

/** One request, in the form that an operation gets. */
export interface Call {
  service: Service;
  request: { method: string; headers: Headers; body: ReadableStream<Uint8Array> | null };
  /** Path as sent, percent-encoded. */
  path: string;
  query: URLSearchParams;
  /** Values of the path's `:name` segments, by name. */
  params: Record<string, string>;
  /** Key of the client, by which limits count its requests. */
  client: string;
  /** RateLimit headers of this answer. */
  limitHeaders: Record<string, string>;
  /**
   * Refuses the request while this process is overloaded, unless the process itself sent it.
   * @throws Problem unavailable
   */
  refuseWhenOverloaded: () => void;
  /** All operations, for those that describe the API. */
  operations: readonly Operation[];
}

/** Price of an operation. For a dynamic price `amount` is the lowest; the 402 of a request names the exact price. */
export interface Price {
  mode: "fixed" | "dynamic";
  /** USDC, such as `0.020000`. */
  amount: string;
  /** Payment terms as in the 402. */
  accepts: (service: Service) => readonly object[];
  /** First day of these terms, YYYY-MM-DD. */
  since: string;
}

/** Groups of operations in the description of the API. */
export const TAGS = {
  check: "What to know before paying an endpoint",
  record: "The public record: cards, grades, corrections, and what old rows were moved to",
  buy: "Buying a call, charged only if the answer passed",
  watch: "Being told when a card changes",
  service: "The service itself: keys and descriptions for programs",
} as const;
export type Tag = keyof typeof TAGS;

/**
 * One row of the table from which routes and descriptions of the API are made. An operation without a method is a GET,
 * which answers HEAD too. An operation with an `answer` is described in `/openapi.json` and on the API's page; one
 * without is a page for people or an object of the log.
 */
export interface Operation {
  /** Name of the operation in `/openapi.json` and in metrics. */
  id: string;
  method?: "POST";
  /** Body of a POST. */
  body?: z.ZodType;
  /** Pattern of h3: `:name` is one segment, `**` the rest. */
  path: string;
  summary: string;
  query?: z.ZodType;
  params?: z.ZodType;
  /** Schema of an answer; for NDJSON, of one line. */
  answer?: z.ZodType;
  /** Media type of a good answer. */
  type: string;
  /** Status of a good answer (default 200). */
  status?: 200 | 201 | 202;
  /** Cache-Control of a good answer (default: `no-store`). */
  cache?: string;
  tag?: Tag;
  /** Problems of the operation, besides those that {@link errorsOf} derives from the row. */
  errors?: readonly ProblemCode[];
  /** Price of a call; null or absent: the operation is free. */
  price?: Price | null;
  /** Request headers that the operation reads, besides those that are derived from the row. */
  requestHeaders?: readonly RequestHeader[];
  /** Response headers that the operation sends, besides those that are derived from the row. */
  responseHeaders?: readonly ResponseHeader[];
  /** Needs the token of a watcher as a bearer credential. */
  bearer?: true;
  /** Needs a credential that a wallet signed. */
  wallet?: true;
  /**
   * The operation's answers depend on the record. Requests are refused until the record was read, since answers would
   * be wrong before.
   */
  needsRecord?: true;
  /** The operation as a tool in /mcp, with `query` or `body` as input and `answer` as output. */
  tool?: {
    name: string;
    title: string;
    /** For a model that chooses among tools (default: the summary). */
    description?: string;
    /** Runs the tool. @param input not validated yet @throws Problem, also as a rejection */
    run(service: Service, input: unknown, client: string): object | Promise<object>;
  };
  /**
   * An overloaded process answers the operation too, as it does all paid ones. Set for health, orders for their
   * buyers, planted pages, and operations that refuse load themselves.
   */
  evenWhenOverloaded?: true;
  /** A page for people, whose errors are shown as a page. */
  page?: boolean;
  /** Returns whether the operation is described and listed (default: always). Requests are answered in any case. */
  isOffered?(service: Service): boolean;
  /** Returns the rate limit that requests count against; null: none. */
  limiter: (service: Service) => Limiter | null;
  run(call: Call): Response | Promise<Response>;
}

/** Reports whether an operation is refused while this process is overloaded. */
export const isRefusedWhenOverloaded = ({
  price,
  evenWhenOverloaded,
}: Pick<Operation, "price" | "evenWhenOverloaded">): boolean => !price && evenWhenOverloaded !== true;

/** Cache-Control of answers that may be a minute old. */
export const CACHE_ONE_MINUTE = "public, max-age=60";

/** Returns a JSON text with an etag of its content, or a 304. */
export const replyJson = (
  { request, limitHeaders }: Pick<Call, "request" | "limitHeaders">,
  text: string,
  cache: string,
): Response => reply(request, text, { type: JSON_TYPE, cache, etag: etagOfText(text), headers: limitHeaders });

/** An operation that is described, since its answer has a schema. */
export type DescribedOperation = Operation & { answer: z.ZodType };

export const isDescribed = (operation: Operation): operation is DescribedOperation => operation.answer !== undefined;

export const methodOf = ({ method }: Pick<Operation, "method">): "GET" | "POST" => method ?? "GET";

/** Returns the path as an RFC 6570 template: `/v1/trust/:id` -> `/v1/trust/{id}`. */
export const templateOf = ({ path }: Pick<Operation, "path">): string => path.replace(/:(\w+)/g, "{$1}");

export const tagOf = ({ tag }: Pick<Operation, "tag">): Tag => tag ?? "service";

/**
 * Returns all problems of an operation, those derived from its row and those that the row names, in the table's order.
 */
export function errorsOf(operation: Operation, service: Service): ProblemCode[] {
  const { query, params, body, needsRecord, errors = [] } = operation;
  const codes = new Set<ProblemCode>(errors);
  if (query || params || body) codes.add("bad_request");
  if (body) codes.add("too_large");
  if (operation.limiter(service)) codes.add("too_many_requests");
  if (needsRecord) codes.add("not_ready");
  if (isRefusedWhenOverloaded(operation)) codes.add("unavailable");
  codes.add("internal");
  return (Object.keys(PROBLEMS) as ProblemCode[]).filter((code) => codes.has(code));
}

/** Returns `max-age` of a Cache-Control, seconds; 0 if the answer may not be cached, or only with revalidation. */
export const maxAgeOf = (cache: string | undefined): number => Number(/max-age=(\d+)/.exec(cache ?? "")?.[1] ?? 0);
