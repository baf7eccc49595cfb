import { z } from "zod";
import { Components as CardComponents, Component, SignedCard } from "../../pipelines/record/card.ts";
import { GradeLeaf, IndexLine } from "../../pipelines/record/leaf.ts";
import type { Service } from "../context.ts";
import { PROBLEMS, type ProblemCode } from "../http/problem.ts";
import { NDJSON_TYPE } from "../http/reply.ts";
import {
  type Described,
  errorsOf,
  isDescribed,
  maxAgeOf,
  methodOf,
  type Operation,
  type Price,
  TAGS,
  tagOf,
  templateOf,
} from "../operations/operation.ts";
import { ArchiveList, ArchiveManifest } from "../schemas/archive.ts";
import { Advertised, Buy, CheckAnswer, Observed, Payee } from "../schemas/check.ts";
import { Band, Correction, Defect, ProblemDocument, Tier } from "../schemas/common.ts";
import { KeysDocument } from "../schemas/discovery.ts";
import { ExposureLine, ExposurePayee, ExposureReport, ExposureRequest } from "../schemas/exposure.ts";
import { DisputeReceipt, TrustResponse } from "../schemas/trust.ts";
import { ABOUT } from "./about.ts";

/**
 * Schemas that descriptions of the API call by a name of their own; wherever one of them stands in another it is referred
 * to. What an operation takes or answers and is not named here is called after the operation.
 */
const NAMED: Readonly<Record<string, z.ZodType>> = {
  Advertised,
  ArchiveList,
  ArchiveManifest,
  Band,
  Buy,
  CheckAnswer,
  Component,
  Components: CardComponents,
  Correction,
  Defect,
  DisputeReceipt,
  ExposureLine,
  ExposurePayee,
  ExposureReport,
  ExposureRequest,
  Grade: GradeLeaf,
  IndexLine,
  Keys: KeysDocument,
  Observed,
  Payee,
  Problem: ProblemDocument,
  Scorecard: SignedCard,
  Tier,
  TrustResponse,
};

type Json = Record<string, unknown>;

const COMPONENT = "#/components/schemas/";
const PROBLEM_TYPE = "application/problem+json";

const capitalised = (id: string): string => id.replace(/^[a-z]/, (first) => first.toUpperCase());

/**
 * Every schema that the rows name: those of {@link NAMED}, and what a row takes or answers under the name of the row.
 * Answers are described as they come in, so that a member more of a later version breaks no client's validation.
 */
class Components {
  readonly #registry = z.registry<{ id: string }>();
  readonly #names = new Set<string>();

  constructor() {
    for (const [name, schema] of Object.entries(NAMED)) this.#add(name, schema);
  }

  #add(name: string, schema: z.ZodType): void {
    if (this.#names.has(name)) throw new Error(`two schemas are called ${name}`);
    this.#names.add(name);
    this.#registry.add(schema, { id: name });
  }

  /** A reference to this schema, under the name that it has, or gets now. */
  ref(schema: z.ZodType, name: string): Json {
    if (!this.#registry.has(schema)) this.#add(name, schema);
    return { $ref: `${COMPONENT}${this.#registry.get(schema)!.id}` };
  }

  /** All of them by name, in the order of the alphabet. */
  emit(): Json {
    const { schemas } = z.toJSONSchema(this.#registry, {
      io: "input",
      unrepresentable: "any",
      uri: (id) => `${COMPONENT}${id}`,
    });
    const bare = ([name, { $schema, $id, ...schema }]: [string, Json]): [string, Json] => [name, schema];
    const byName = ([a]: [string, Json], [b]: [string, Json]): number => (a < b ? -1 : 1);
    return Object.fromEntries(
      Object.entries(schemas as Record<string, Json>)
        .map(bare)
        .sort(byName),
    );
  }
}

/** Parameters of a query or a path, one a member of its schema. */
function parametersOf(schema: z.ZodType | undefined, place: "query" | "path"): Json[] {
  if (!schema) return [];
  const { properties = {}, required = [] } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as {
    properties?: Record<string, Json>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, { description, ...rest }]) => ({
    name,
    in: place,
    required: place === "path" || required.includes(name),
    ...(description === undefined ? {} : { description }),
    schema: rest,
  }));
}

const HEADERS: Json = {
  RateLimit: {
    description: "What is left of the limit, and in how many seconds it is whole again",
    schema: { type: "string", examples: ['"check";r=599;t=1'] },
  },
  RateLimitPolicy: {
    description: "The limit: requests, and seconds in which they may be sent",
    schema: { type: "string", examples: ['"check";q=600;w=60'] },
  },
  RetryAfter: { description: "Seconds after which to ask again", schema: { type: "string", pattern: "^\\d+$" } },
  ETag: { description: "Names these bytes; If-None-Match with it gives a 304", schema: { type: "string" } },
  Link: { description: 'With rel="next": where what comes after this answer is asked for', schema: { type: "string" } },
};
const header = (name: string): Json => ({ $ref: `#/components/headers/${name}` });

/** Headers of every answer to a counted request. */
const limitHeaders = (counted: boolean): Json =>
  counted ? { RateLimit: header("RateLimit"), "RateLimit-Policy": header("RateLimitPolicy") } : {};

/** Is it answered under an etag, so that a 304 can come? */
const isKept = ({ cache }: Operation): boolean => cache !== undefined && cache !== "no-store";

function goodAnswer(operation: Described, components: Components, counted: boolean): Json {
  const { id, answer, type, cache = "no-store" } = operation;
  return {
    description: type === NDJSON_TYPE ? "One JSON value a line; the schema is that of a line" : operation.summary,
    headers: {
      "Cache-Control": { schema: { type: "string", const: cache } },
      ...(isKept(operation) ? { ETag: header("ETag") } : {}),
      ...(id === "trustFeed" ? { Link: header("Link") } : {}),
      ...limitHeaders(counted),
    },
    content: { [type.split(";", 1)[0]!]: { schema: components.ref(answer, `${capitalised(id)}Answer`) } },
  };
}

/** One response for each status; its description names the `type` that each cause has. */
function refusals(codes: readonly ProblemCode[], counted: boolean): Json {
  const byStatus = new Map<number, ProblemCode[]>();
  for (const code of codes) {
    const { status } = PROBLEMS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, causes]) => [
      String(status),
      {
        description: causes.map((code) => `${code.replaceAll("_", "-")}: ${PROBLEMS[code].title}`).join("; "),
        headers: {
          ...(causes.some((code) => PROBLEMS[code].retriable) ? { "Retry-After": header("RetryAfter") } : {}),
          ...(status === 429 ? limitHeaders(counted) : {}),
        },
        content: { [PROBLEM_TYPE]: { schema: { $ref: `${COMPONENT}Problem` } } },
      },
    ]),
  );
}

/** What crawlers of paid operations read. */
const paymentInfo = ({ mode, amount }: Price): Json => ({
  price: mode === "fixed" ? { mode, currency: "USD", amount } : { mode, currency: "USD", min: amount },
  protocols: [{ x402: {} }],
});

function operationOf(operation: Described, components: Components, service: Service): Json {
  const { id, summary, query, params, body, price, status = 200 } = operation;
  const counted = operation.limiter(service) !== null;
  const parameters = [...parametersOf(params, "path"), ...parametersOf(query, "query")];
  const cache = maxAgeOf(operation.cache);
  return {
    operationId: id,
    summary,
    tags: [tagOf(operation)],
    security: operation.bearer ? [{ watcherToken: [] }] : [],
    ...(price ? { "x-payment-info": paymentInfo(price) } : {}),
    ...(cache > 0 ? { "x-max-age-seconds": cache } : {}),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(body
      ? {
          requestBody: {
            required: true,
            content: { "application/json": { schema: components.ref(body, `${capitalised(id)}Body`) } },
          },
        }
      : {}),
    responses: {
      [String(status)]: goodAnswer(operation, components, counted),
      ...(isKept(operation) ? { "304": { description: "The client has these bytes already" } } : {}),
      ...(price ? { "402": { description: "Payment terms; ask again with a payment" } } : {}),
      ...refusals(errorsOf(operation, service), counted),
    },
  };
}

/** OpenAPI 3.1 of every described row. The same table and address give the same document. */
export function openapiOf(operations: readonly Operation[], service: Service): Json {
  const components = new Components();
  const described = operations.filter(isDescribed);
  const paths: Record<string, Json> = {};
  for (const operation of described) {
    const path = templateOf(operation);
    paths[path] = { ...paths[path], [methodOf(operation).toLowerCase()]: operationOf(operation, components, service) };
  }
  const tags = new Set(described.map(tagOf));
  return {
    openapi: "3.1.1",
    info: {
      title: ABOUT.name,
      version: ABOUT.version,
      summary: ABOUT.summary,
      description: `${ABOUT.description}\n\nQuery parameters that are not named are ignored; one that is given twice is a 400. Every GET answers HEAD too, and every other method is a 405 that names the right ones. Errors are problem documents (RFC 9457).`,
      license: { name: ABOUT.license, identifier: ABOUT.license },
    },
    externalDocs: { description: "The API in words", url: `${service.baseUrl}/docs/api` },
    servers: [{ url: service.baseUrl }],
    tags: Object.entries(TAGS)
      .filter(([name]) => tags.has(name as keyof typeof TAGS))
      .map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: components.emit(),
      headers: HEADERS,
      ...(described.some(({ bearer }) => bearer)
        ? {
            securitySchemes: {
              watcherToken: { type: "http", scheme: "bearer", description: "The token of a watcher, shown once" },
            },
          }
        : {}),
    },
  };
}
