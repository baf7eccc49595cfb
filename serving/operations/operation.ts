import type { z } from "zod";
import type { Service } from "../context.ts";
import type { RequestHeader, ResponseHeader } from "../discovery/headers.ts";
import type { Limiter } from "../http/limits.ts";
import { PROBLEMS, type ProblemCode } from "../http/problem.ts";
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
  /** Refuses while this process is behind, unless it asks itself, without a socket. @throws Problem unavailable */
  shed: () => void;
  /** The whole table, for the operations that describe it. */
  operations: readonly Operation[];
}

/** What an operation costs; of a dynamic price `amount` is the least, and the 402 names the whole. */
export interface Price {
  mode: "fixed" | "dynamic";
  /** Money, in USDC. */
  amount: string;
  /** Payment terms as the 402 carries them. */
  accepts: (service: Service) => readonly object[];
  /** Day from which these terms hold, YYYY-MM-DD. */
  since: string;
}

/** Groups of the description. */
export const TAGS = {
  check: "What to know before paying an endpoint",
  record: "The public record: cards, grades, corrections, and what old rows were moved to",
  buy: "Buying a call, charged only if the answer passed",
  watch: "Being told when a card changes",
  service: "The service itself: keys and descriptions for programs",
} as const;
export type Tag = keyof typeof TAGS;

/**
 * One row of the table that drives the routes; descriptions of the API are made of the same rows. An operation is a GET,
 * which answers HEAD too, unless it says that it is a POST. One with an `answer` stands in `/openapi.json` and on the API's
 * page; what has none is a page for people or an object of the log.
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
  /** What an answer holds; of NDJSON one line of it. */
  answer?: z.ZodType;
  type: string;
  /** Status of a good answer (default 200). */
  status?: 200 | 201 | 202;
  /** Cache-Control of a good answer (default: `no-store`). */
  cache?: string;
  tag?: Tag;
  /** What it refuses with, beside what {@link errorsOf} knows of every row of its kind. */
  errors?: readonly ProblemCode[];
  /** null or absent: free. */
  price?: Price | null;
  /** Headers that it takes and gives, beside what follows from its row. */
  takes?: readonly RequestHeader[];
  gives?: readonly ResponseHeader[];
  /** Needs the token of a watcher as a bearer credential. */
  bearer?: true;
  /** Needs a credential that a wallet signed. */
  wallet?: true;
  /**
   * Says what the record holds: not answered before the record was read, since nothing of it would be said as if it
   * were so.
   */
  ofRecord?: true;
  /** It is a tool of /mcp too, which takes `query` or `body` and gives `answer`. */
  tool?: {
    name: string;
    title: string;
    /** For a model that chooses among tools (default: the summary). */
    description?: string;
    /** `input` was not looked at yet. @throws Problem, also by rejecting */
    run(service: Service, input: unknown, client: string): object | Promise<object>;
  };
  /**
   * It is answered also by a process that is behind with its work, as every row that has a price is: health, what buyers ask
   * of their orders, pages that somebody is paid to read, and what decides for itself what it can still give.
   */
  always?: true;
  /** Errors are shown as a page. */
  page?: boolean;
  /** Whether it is described and listed (default: always). It is routed all the same. */
  offered?(service: Service): boolean;
  limiter: (service: Service) => Limiter | null;
  run(call: Call): Response | Promise<Response>;
}

/** Is it refused while this process is behind with its work? */
export const isShed = ({ price, always }: Pick<Operation, "price" | "always">): boolean => !price && always !== true;

/** Cache of what may be a minute old. */
export const MINUTE = "public, max-age=60";

/** A JSON text under an etag of its content, or a 304. */
export const replyJson = (
  { request, limitHeaders }: Pick<Call, "request" | "limitHeaders">,
  text: string,
  cache: string,
): Response => reply(request, text, { type: JSON_TYPE, cache, etag: etagOfText(text), headers: limitHeaders });

/** A row that stands in the description: one whose answer has a schema. */
export type Described = Operation & { answer: z.ZodType };

export const isDescribed = (operation: Operation): operation is Described => operation.answer !== undefined;

export const methodOf = ({ method }: Pick<Operation, "method">): "GET" | "POST" => method ?? "GET";

/** Path with its parameters as RFC 6570 writes them: `/v1/trust/:id` -> `/v1/trust/{id}`. */
export const templateOf = ({ path }: Pick<Operation, "path">): string => path.replace(/:(\w+)/g, "{$1}");

export const tagOf = ({ tag }: Pick<Operation, "tag">): Tag => tag ?? "service";

/** Everything an operation may refuse with: what follows from its row, and what the row adds, in the order of the table. */
export function errorsOf(operation: Operation, service: Service): ProblemCode[] {
  const { query, params, body, ofRecord, errors = [] } = operation;
  const codes = new Set<ProblemCode>(errors);
  if (query || params || body) codes.add("bad_request");
  if (body) codes.add("too_large");
  if (operation.limiter(service)) codes.add("too_many_requests");
  if (ofRecord) codes.add("not_ready");
  if (isShed(operation)) codes.add("unavailable");
  codes.add("internal");
  return (Object.keys(PROBLEMS) as ProblemCode[]).filter((code) => codes.has(code));
}

/** `max-age` of a Cache-Control, seconds; 0 for what may not be kept, or only after asking again. */
export const maxAgeOf = (cache: string | undefined): number => Number(/max-age=(\d+)/.exec(cache ?? "")?.[1] ?? 0);
