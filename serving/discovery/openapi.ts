import { z } from "zod";
import { Components as CardComponents, Component, SignedCard } from "../../pipelines/record/card.ts";
import { GradeLeaf, IndexLine } from "../../pipelines/record/leaf.ts";
import type { Service } from "../context.ts";
import { PROBLEMS, type ProblemCode } from "../http/problem.ts";
import { NDJSON_TYPE } from "../http/reply.ts";
import {
  type DescribedOperation,
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
import { OrderShown, PaymentTerms } from "../schemas/orders.ts";
import { DisputeReceipt, TrustResponse } from "../schemas/trust.ts";
import { ABOUT } from "./about.ts";
import { REQUEST_HEADERS, RESPONSE_HEADERS, type RequestHeader, type ResponseHeader } from "./headers.ts";

/**
 * Schemas with a name of their own in `components`; other schemas refer to them by that name. A schema that is not
 * listed here is named after the operation that uses it. No name equals an enum value or ends in Response, Params or
 * Body, since client generators create such names themselves.
 */
const NAMED_SCHEMAS: Readonly<Record<string, z.ZodType>> = {
  Advertised,
  ArchiveList,
  ArchiveManifest,
  BandOrUnrated: Band,
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
  Order: OrderShown,
  Payee,
  PaymentTerms,
  Problem: ProblemDocument,
  Scorecard: SignedCard,
  GradeTier: Tier,
  TrustRecord: TrustResponse,
};

type Json = Record<string, unknown>;

const COMPONENT_PREFIX = "#/components/schemas/";
const PROBLEM_TYPE = "application/problem+json";

/**
 * Options of the conversion to JSON Schema, for values before parsing. Client generators cannot handle an empty schema
 * as `additionalProperties`: it is left out of objects with properties, and replaced by `true` in others.
 */
const SCHEMA_OPTIONS = {
  io: "input",
  unrepresentable: "any",
  override: ({ jsonSchema }: { jsonSchema: z.core.JSONSchema.BaseSchema }) => {
    delete jsonSchema.propertyNames;
    const more = jsonSchema.additionalProperties;
    if (typeof more !== "object" || Object.keys(more).length > 0) return;
    if (Object.keys(jsonSchema.properties ?? {}).length > 0) delete jsonSchema.additionalProperties;
    else jsonSchema.additionalProperties = true;
  },
} as const;

const capitalize = (id: string): string => id.replace(/^[a-z]/, (first) => first.toUpperCase());

/**
 * Collects the schemas of all described operations under their names. Response schemas describe values before parsing,
 * so they admit unknown members: a client that validates against them still works when a later version adds a member.
 */
class Components {
  readonly #registry = z.registry<{ id: string }>();
  readonly #names = new Set<string>();

  constructor() {
    for (const [name, schema] of Object.entries(NAMED_SCHEMAS)) this.#add(name, schema);
  }

  #add(name: string, schema: z.ZodType): void {
    if (this.#names.has(name)) throw new Error(`two schemas are called ${name}`);
    this.#names.add(name);
    this.#registry.add(schema, { id: name });
  }

  /**
   * Returns a reference to a schema. At first use the schema is stored under its title, or under `name` if it has none.
   */
  ref(schema: z.ZodType, name: string): Json {
    if (!this.#registry.has(schema)) this.#add(schema.meta()?.title ?? name, schema);
    return { $ref: `${COMPONENT_PREFIX}${this.#registry.get(schema)!.id}` };
  }

  /** Returns all stored schemas by name, sorted. */
  emit(): Json {
    const { schemas } = z.toJSONSchema(this.#registry, {
      ...SCHEMA_OPTIONS,
      uri: (id) => `${COMPONENT_PREFIX}${id}`,
    });
    const withoutIds = ([name, { $schema, $id, ...schema }]: [string, Json]): [string, Json] => [name, schema];
    const compareNames = ([a]: [string, Json], [b]: [string, Json]): number => (a < b ? -1 : 1);
    return Object.fromEntries(
      Object.entries(schemas as Record<string, Json>)
        .map(withoutIds)
        .sort(compareNames),
    );
  }
}

/** Returns one OpenAPI parameter for each member of a schema. */
function parametersOf(schema: z.ZodType | undefined, place: "query" | "path"): Json[] {
  if (!schema) return [];
  const { properties = {}, required = [] } = z.toJSONSchema(schema, SCHEMA_OPTIONS) as {
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

/** Returns references to these response headers, by name. */
const headersOf = (...names: ResponseHeader[]): Json =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));

/** Reports whether an operation's answers have an ETag, so that a 304 is possible. */
const hasEtag = ({ cache }: Operation): boolean => cache !== undefined && cache !== "no-store";

/** Headers of every answer to a request that counts against a rate limit. */
const LIMIT_HEADERS = ["RateLimit", "RateLimit-Policy"] as const;
const CODING_HEADERS = ["Vary", "Content-Encoding"] as const;
const SETTLEMENT_HEADERS = ["PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE"] as const;
/**
 * Headers of a purchase that was charged: the settlement, the order, and the salts of the published hashes of the
 * call.
 */
const RECEIPT_HEADERS = [
  ...SETTLEMENT_HEADERS,
  ...(["Touchstone-Order", "Touchstone-Judged-By"] as const),
  ...(["Touchstone-Salt-Request", "Touchstone-Salt-Response"] as const),
] as const;

function responseHeadersOf(
  { type, status, price, responseHeaders = [], ...row }: DescribedOperation,
  isLimited: boolean,
): ResponseHeader[] {
  return [
    ...(hasEtag(row as Operation) ? (["ETag"] as const) : []),
    ...(type === NDJSON_TYPE ? CODING_HEADERS : []),
    ...(status === 201 ? (["Location"] as const) : []),
    ...(price ? RECEIPT_HEADERS : []),
    ...(isLimited ? LIMIT_HEADERS : []),
    ...responseHeaders,
  ];
}

/**
 * Returns the content of an operation's 200. A stream of lines is described as text; the schema of one line is listed
 * beside it. A call that was bought has the media type that the seller sent.
 */
function contentOf({ id, answer, type, price }: DescribedOperation, components: Components): Json {
  const schema = components.ref(answer, `${capitalize(id)}Answer`);
  const mediaType = type.split(";", 1)[0]!;
  if (mediaType === NDJSON_TYPE)
    return { [mediaType]: { schema: { type: "string", contentMediaType: mediaType, contentSchema: schema } } };
  return { [mediaType]: { schema }, ...(price?.mode === "dynamic" ? { "*/*": { schema: {} } } : {}) };
}

function successResponses(operation: DescribedOperation, components: Components, isLimited: boolean): Json {
  const { summary, cache = "no-store", status = 200, price } = operation;
  const headerNames = responseHeadersOf(operation, isLimited);
  const cacheHeader = { "Cache-Control": { schema: { type: "string", const: cache } } };
  const success = { description: summary, headers: { ...cacheHeader, ...headersOf(...headerNames) } };
  const notIn304 = new Set<ResponseHeader>(["Link", "Age"]);
  const headersOf304 = { ...cacheHeader, ...headersOf(...headerNames.filter((name) => !notIn304.has(name))) };
  return {
    [String(status)]: { ...success, content: contentOf(operation, components) },
    // A bought call has the status that the seller sent.
    ...(price?.mode === "dynamic" ? { "2XX": { ...success, content: contentOf(operation, components) } } : {}),
    ...(hasEtag(operation)
      ? { "304": { description: "The client has these bytes already", headers: headersOf304 } }
      : {}),
    ...(price ? purchaseResponses(components) : {}),
  };
}

/** Returns the responses of a purchase other than 200 that are no errors. */
const purchaseResponses = (components: Components): Json => ({
  "202": {
    description: "The order goes on; read it, or send the same request with the same payment again",
    headers: headersOf("Cache-Control", "Location", "Retry-After", "Touchstone-Order", ...LIMIT_HEADERS),
    content: { "application/json": { schema: components.ref(OrderShown, "Order") } },
  },
  "402": {
    description: "Payment terms; ask again with a payment",
    headers: headersOf(
      "Cache-Control",
      "PAYMENT-REQUIRED",
      ...SETTLEMENT_HEADERS,
      "Touchstone-Order",
      ...LIMIT_HEADERS,
    ),
    content: { "application/json": { schema: components.ref(PaymentTerms, "PaymentTerms") } },
  },
});

/** Headers that are sent with a problem of this code. */
const PROBLEM_HEADERS: Partial<Record<ProblemCode, ResponseHeader[]>> = {
  not_the_payee: ["WWW-Authenticate"],
  not_the_wallet: ["WWW-Authenticate"],
  bad_token: ["WWW-Authenticate"],
  seller_failed: ["Touchstone-Order"],
  answer_expired: ["Touchstone-Order"],
};

/** Returns one response for each status of these problems. Its description lists the `type` of each. */
function problemResponses(codes: readonly ProblemCode[]): Json {
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
        headers: headersOf(
          "Cache-Control",
          ...(causes.some((code) => PROBLEMS[code].retriable) ? (["Retry-After"] as const) : []),
          ...(status === 429 || causes.includes("not_ready") ? LIMIT_HEADERS : []),
          ...causes.flatMap((code) => PROBLEM_HEADERS[code] ?? []),
        ),
        content: { [PROBLEM_TYPE]: { schema: { $ref: `${COMPONENT_PREFIX}Problem` } } },
      },
    ]),
  );
}

/** Returns the request headers that an operation reads. */
function requestHeadersOf({ type, price, requestHeaders = [], ...row }: DescribedOperation): Json[] {
  const names: RequestHeader[] = [
    ...(hasEtag(row as Operation) ? (["If-None-Match"] as const) : []),
    ...(type === NDJSON_TYPE ? (["Accept-Encoding"] as const) : []),
    ...(price ? (["PAYMENT-SIGNATURE", "X-PAYMENT"] as const) : []),
    ...requestHeaders,
  ];
  return names.map((name) => ({ $ref: `#/components/parameters/${name}` }));
}

/** Returns the payment extension that crawlers of paid APIs read. */
const paymentInfoOf = ({ mode, amount }: Price): Json => ({
  price: mode === "fixed" ? { mode, currency: "USD", amount } : { mode, currency: "USD", min: amount },
  protocols: [{ x402: {} }],
});

function operationOf(operation: DescribedOperation, components: Components, service: Service): Json {
  const { id, summary, query, params, body, price } = operation;
  const isLimited = operation.limiter(service) !== null;
  const parameters = [...parametersOf(params, "path"), ...parametersOf(query, "query"), ...requestHeadersOf(operation)];
  const maxAgeS = maxAgeOf(operation.cache);
  return {
    operationId: id,
    summary,
    tags: [tagOf(operation)],
    security: operation.bearer ? [{ watcherToken: [] }] : operation.wallet ? [{ wallet: [] }] : [],
    ...(price ? { "x-payment-info": paymentInfoOf(price) } : {}),
    ...(maxAgeS > 0 ? { "x-max-age-seconds": maxAgeS } : {}),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(body
      ? {
          requestBody: {
            // An operation whose body may be an object without members also accepts a request without a body.
            required: !body.safeParse({}).success,
            content: { "application/json": { schema: components.ref(body, `${capitalize(id)}Body`) } },
          },
        }
      : {}),
    responses: {
      ...successResponses(operation, components, isLimited),
      ...problemResponses(errorsOf(operation, service)),
    },
  };
}

const SECURITY_SCHEMES = {
  watcherToken: { type: "http", scheme: "bearer", description: "The token of a watcher, shown once" },
  wallet: {
    ...{ type: "apiKey", in: "header", name: "Authorization" },
    description: "`Wallet ` and base64url of JSON {address, at, signature}: /docs/pay-on-delivery",
  },
};

/**
 * Makes the OpenAPI 3.1 document of all described operations. It depends on nothing but the table and the service's
 * settings.
 */
export function openapiOf(operations: readonly Operation[], service: Service): Json {
  const components = new Components();
  const describedOperations = operations.filter(isDescribed);
  const paths: Record<string, Json> = {};
  for (const operation of describedOperations) {
    const path = templateOf(operation);
    paths[path] = { ...paths[path], [methodOf(operation).toLowerCase()]: operationOf(operation, components, service) };
  }
  const tags = new Set(describedOperations.map(tagOf));
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
      parameters: Object.fromEntries(
        Object.entries(REQUEST_HEADERS).map(([name, header]) => [
          name,
          { name, in: "header", required: false, ...header },
        ]),
      ),
      headers: RESPONSE_HEADERS,
      securitySchemes: SECURITY_SCHEMES,
    },
  };
}
