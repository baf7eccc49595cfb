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
import { OrderShown, PaymentTerms } from "../schemas/orders.ts";
import { DisputeReceipt, TrustResponse } from "../schemas/trust.ts";
import { ABOUT } from "./about.ts";
import { GIVEN, type Given, TAKEN, type Taken } from "./headers.ts";

/**
 * Schemas that descriptions of the API call by a name of their own; wherever one of them stands in another it is referred
 * to. No name is that of a value of an enum, or ends in Response, Params or Body: generators make such names themselves. What an operation takes or answers and is not named here is called after the operation.
 */
const NAMED: Readonly<Record<string, z.ZodType>> = {
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

const COMPONENT = "#/components/schemas/";
const PROBLEM_TYPE = "application/problem+json";

/**
 * As values come in. What may hold anything is said by leaving the word out, or by `true` where an object has no other
 * member: generators make nothing of an empty schema.
 */
const TO_JSON = {
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

  /** A reference to this schema, under the name that it has, or gets now: its title, else this one. */
  ref(schema: z.ZodType, name: string): Json {
    if (!this.#registry.has(schema)) this.#add(schema.meta()?.title ?? name, schema);
    return { $ref: `${COMPONENT}${this.#registry.get(schema)!.id}` };
  }

  /** All of them by name, in the order of the alphabet. */
  emit(): Json {
    const { schemas } = z.toJSONSchema(this.#registry, {
      ...TO_JSON,
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
  const { properties = {}, required = [] } = z.toJSONSchema(schema, TO_JSON) as {
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

/** Headers of an answer, by name, as references. */
const headersOf = (...names: Given[]): Json =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));

/** Is it answered under an etag, so that a 304 can come? */
const isKept = ({ cache }: Operation): boolean => cache !== undefined && cache !== "no-store";

/** The limit is told with every answer to a counted request that sells nothing. */
const LIMITS = ["RateLimit", "RateLimit-Policy"] as const;
const CODED = ["Vary", "Content-Encoding"] as const;
/** A purchase that was charged: the receipt, the order, and the salts of its commitments. */
const RECEIPT = [
  ...(["PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE", "Touchstone-Order"] as const),
  ...(["Touchstone-Judged-By"] as const),
  ...(["Touchstone-Salt-Request", "Touchstone-Salt-Response"] as const),
] as const;

function givenBy({ type, status, price, gives = [], ...row }: Described, counted: boolean): Given[] {
  return [
    ...(isKept(row as Operation) ? (["ETag"] as const) : []),
    ...(type === NDJSON_TYPE ? CODED : []),
    ...(status === 201 ? (["Location"] as const) : []),
    ...(price ? RECEIPT : counted ? LIMITS : []),
    ...gives,
  ];
}

/**
 * The body of a good answer. Lines are a text to a client; the schema of one line stands beside it. A call that was bought
 * has the seller's own type.
 */
function contentOf({ id, answer, type, price }: Described, components: Components): Json {
  const schema = components.ref(answer, `${capitalised(id)}Answer`);
  const bare = type.split(";", 1)[0]!;
  if (bare === NDJSON_TYPE)
    return { [bare]: { schema: { type: "string", contentMediaType: bare, contentSchema: schema } } };
  return { [bare]: { schema }, ...(price?.mode === "dynamic" ? { "*/*": { schema: {} } } : {}) };
}

function goodAnswers(operation: Described, components: Components, counted: boolean): Json {
  const { summary, cache = "no-store", status = 200, price } = operation;
  const given = givenBy(operation, counted);
  const kept = { "Cache-Control": { schema: { type: "string", const: cache } } };
  const good = { description: summary, headers: { ...kept, ...headersOf(...given) } };
  const isNew = new Set<Given>(["Link", "Age"]);
  const unchanged = { ...kept, ...headersOf(...given.filter((name) => !isNew.has(name))) };
  return {
    [String(status)]: { ...good, content: contentOf(operation, components) },
    ...(isKept(operation) ? { "304": { description: "The client has these bytes already", headers: unchanged } } : {}),
    ...(price ? purchases(components) : {}),
  };
}

/** What else a purchase may be answered with that is no error. */
const purchases = (components: Components): Json => ({
  "202": {
    description: "The order goes on; read it, or send the same request with the same payment again",
    headers: headersOf("Cache-Control", "Location", "Retry-After", "Touchstone-Order"),
    content: { "application/json": { schema: components.ref(OrderShown, "Order") } },
  },
  "402": {
    description: "Payment terms; ask again with a payment",
    headers: headersOf("Cache-Control", "PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "Touchstone-Order"),
    content: { "application/json": { schema: components.ref(PaymentTerms, "PaymentTerms") } },
  },
});

/** Headers that errors of one cause have. */
const OF_CAUSE: Partial<Record<ProblemCode, Given[]>> = {
  not_the_payee: ["WWW-Authenticate"],
  not_the_wallet: ["WWW-Authenticate"],
  bad_token: ["WWW-Authenticate"],
  seller_failed: ["Touchstone-Order"],
  answer_expired: ["Touchstone-Order"],
};

/** One response for each status; its description names the `type` that each cause has. */
function refusals(codes: readonly ProblemCode[]): Json {
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
          ...(status === 429 || causes.includes("not_ready") ? LIMITS : []),
          ...causes.flatMap((code) => OF_CAUSE[code] ?? []),
        ),
        content: { [PROBLEM_TYPE]: { schema: { $ref: `${COMPONENT}Problem` } } },
      },
    ]),
  );
}

/** Headers that a request may have. */
function takenBy({ type, price, takes = [], ...row }: Described): Json[] {
  const names: Taken[] = [
    ...(isKept(row as Operation) ? (["If-None-Match"] as const) : []),
    ...(type === NDJSON_TYPE ? (["Accept-Encoding"] as const) : []),
    ...(price ? (["PAYMENT-SIGNATURE", "X-PAYMENT"] as const) : []),
    ...takes,
  ];
  return names.map((name) => ({ $ref: `#/components/parameters/${name}` }));
}

/** What crawlers of paid operations read. */
const paymentInfo = ({ mode, amount }: Price): Json => ({
  price: mode === "fixed" ? { mode, currency: "USD", amount } : { mode, currency: "USD", min: amount },
  protocols: [{ x402: {} }],
});

function operationOf(operation: Described, components: Components, service: Service): Json {
  const { id, summary, query, params, body, price } = operation;
  const counted = operation.limiter(service) !== null;
  const parameters = [...parametersOf(params, "path"), ...parametersOf(query, "query"), ...takenBy(operation)];
  const cache = maxAgeOf(operation.cache);
  return {
    operationId: id,
    summary,
    tags: [tagOf(operation)],
    security: operation.bearer ? [{ watcherToken: [] }] : operation.wallet ? [{ wallet: [] }] : [],
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
      ...goodAnswers(operation, components, counted),
      ...refusals(errorsOf(operation, service)),
    },
  };
}

const SECURITY = {
  watcherToken: { type: "http", scheme: "bearer", description: "The token of a watcher, shown once" },
  wallet: {
    ...{ type: "apiKey", in: "header", name: "Authorization" },
    description: "`Wallet ` and base64url of JSON {address, at, signature}: /docs/pay-on-delivery",
  },
};

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
      parameters: Object.fromEntries(
        Object.entries(TAKEN).map(([name, header]) => [name, { name, in: "header", required: false, ...header }]),
      ),
      headers: GIVEN,
      securitySchemes: SECURITY,
    },
  };
}
