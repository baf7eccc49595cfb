import type { H3 } from "h3";
import { fc } from "./histories.ts";
import { answerSchemas, type DescribedOperation, type Document, type Json } from "./openapi.ts";

/**
 * Requests drawn from an OpenAPI document, good and bad, against the app without a socket. Each answer has a status that
 * the document names and a body that its schema allows, and none is a fault of ours.
 */

const garbage: fc.Arbitrary<string> = fc.oneof(
  fc.string({ maxLength: 40 }),
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.integer({ min: 1, max: 3000 }).map((n) => "9".repeat(n)),
  fc.constantFrom(
    "",
    "0",
    "-1",
    "1e9",
    "NaN",
    "null",
    "[]",
    "{}",
    "__proto__",
    "constructor",
    "\u0000",
    "../..",
    "%00",
  ),
  fc.constantFrom("http://[::1]/", "https://h.example:99999/", "javascript:alert(1)", "http://\u00e9/", "https://a b/"),
);

/** A JSON value of any shape, small. */
const anything = fc.jsonValue({ maxDepth: 3 });

/** Values that a schema allows, mostly; strings with a pattern follow it. */
export function following(schema: Json, document: Document, depth = 0): fc.Arbitrary<unknown> {
  const at = (one: unknown): fc.Arbitrary<unknown> => following(one as Json, document, depth + 1);
  if (depth > 8) return anything;
  if (typeof schema.$ref === "string")
    return at(document.components.schemas[schema.$ref.slice("#/components/schemas/".length)]);
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (Array.isArray(schema.enum)) return fc.constantFrom(...(schema.enum as unknown[]));
  const either = (schema.anyOf ?? schema.oneOf) as unknown[] | undefined;
  if (either) return fc.oneof(...either.map(at));
  switch (schema.type) {
    case "string":
      return stringOf(schema);
    case "integer":
    case "number": {
      const min = Math.max(Number(schema.minimum ?? -1000), -(2 ** 31));
      const max = Math.min(Number(schema.maximum ?? 1000), 2 ** 31 - 1);
      return schema.type === "integer"
        ? fc.integer({ min: Math.ceil(min), max })
        : fc.double({ min, max, noNaN: true });
    }
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array":
      return fc.array(at(schema.items ?? {}), {
        minLength: Number(schema.minItems ?? 0),
        maxLength: Math.min(Number(schema.maxItems ?? 5), 5),
      });
    case "object": {
      const members = Object.entries((schema.properties ?? {}) as Json).map(([name, one]) => [name, at(one)] as const);
      return fc.record(Object.fromEntries(members), { requiredKeys: (schema.required ?? []) as string[] });
    }
    default:
      return anything;
  }
}

function stringOf({ pattern, format, minLength, maxLength, examples }: Json): fc.Arbitrary<string> {
  if (Array.isArray(examples)) return fc.constantFrom(...(examples as string[]));
  const url = fc.webUrl({ withQueryParameters: true, withFragments: true });
  if (typeof pattern === "string") {
    const matching = fc.stringMatching(new RegExp(pattern));
    return pattern.includes("[tT][pP]") ? fc.oneof(url, matching) : matching;
  }
  const text = fc.string({ minLength: Number(minLength ?? 0), maxLength: Math.min(Number(maxLength ?? 60), 80) });
  return format === "uri" ? url : fc.oneof(url, text);
}

/** Something that is wrong about a good body: a member too many, too few, or of another kind. */
const spoilt = (good: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.tuple(good, anything, fc.nat(20), fc.string({ maxLength: 10 })).map(([value, other, n, name]) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return other;
    const members = Object.entries(value);
    if (n % 3 === 0 || members.length === 0) return { ...value, [name]: other };
    const [chosen] = members[n % members.length]!;
    if (n % 3 === 1) return Object.fromEntries(members.filter(([one]) => one !== chosen));
    return { ...value, [chosen]: other };
  });

const escaped = (value: unknown): string => encodeURIComponent(Buffer.from(String(value)).toString());

export interface Asked {
  template: string;
  method: string;
  path: string;
  init: RequestInit;
}

/** Requests of one operation. @param known values of path parameters that the record holds, by operation */
function requestsOf(
  [template, method, operation]: readonly [string, string, DescribedOperation],
  document: Document,
  known: Readonly<Record<string, readonly string[]>>,
): fc.Arbitrary<Asked> {
  const { requestBody, operationId } = operation;
  // References are to headers, of which some are drawn below.
  const parameters = (operation.parameters ?? []).flatMap((one) => ("in" in one ? [one] : []));
  const held = known[operationId];
  const drawnFor = ({ schema, in: place, name }: (typeof parameters)[number]): fc.Arbitrary<unknown> => {
    const good = following(schema, document);
    const there = held && (place === "path" || name === "url" || name === "cursor") ? [fc.constantFrom(...held)] : [];
    return fc.oneof({ weight: 3, arbitrary: good }, { weight: 1, arbitrary: garbage }, ...there);
  };
  const pathValues = fc.tuple(...parameters.filter((one) => one.in === "path").map(drawnFor));
  const queryValues = fc.tuple(
    ...parameters
      .filter((one) => one.in === "query")
      .map((one) =>
        fc.tuple(
          fc.constant(one.name),
          fc.array(drawnFor(one), { minLength: one.required ? 1 : 0, maxLength: 1 }),
          fc.boolean(),
        ),
      ),
  );
  const more = fc.array(fc.tuple(garbage, garbage), { maxLength: 1 });
  const schema = requestBody?.content["application/json"]?.schema;
  const good = schema ? following(schema, document) : null;
  const body: fc.Arbitrary<string | null> = good
    ? fc.oneof(
        { weight: 4, arbitrary: good.map((value) => JSON.stringify(value)) },
        { weight: 4, arbitrary: spoilt(good).map((value) => JSON.stringify(value)) },
        { weight: 1, arbitrary: garbage },
        { weight: 1, arbitrary: fc.constantFrom("", "[".repeat(50_000), `"${"x".repeat(100_000)}"`, '{"a":1,}') },
      )
    : fc.constant(null);
  const headers = fc.record(
    {
      "accept-encoding": fc.constantFrom("gzip", "zstd", "identity", "x;q=9"),
      "if-none-match": fc.constantFrom("*", '"x"', 'W/"x", "y"'),
      accept: fc.constantFrom("text/html", "application/json", "*/*"),
      authorization: fc.constantFrom("Bearer x", "Basic eDp5", "Bearer"),
    },
    { requiredKeys: [] },
  );
  return fc.tuple(pathValues, queryValues, more, body, headers).map(([ids, query, extra, text, sent]) => {
    let at = 0;
    // A parameter that is empty or a dot is another address.
    const path = template.replace(/\{\w+\}/g, () => escaped(ids[at++]).replace(/^(?:\.{0,2})$/, "x"));
    const pairs = query.flatMap(([name, values, twice]) => {
      const named = values.map((value) => `${name}=${escaped(value)}`);
      return twice && named.length > 0 && escaped(values[0]).length % 7 === 0 ? [...named, ...named] : named;
    });
    const search = [...pairs, ...extra.map(([name, value]) => `${escaped(name)}=${escaped(value)}`)].join("&");
    const init: RequestInit = { method: method.toUpperCase(), headers: sent as Record<string, string> };
    if (text !== null) init.body = text;
    return { template, method, path: search ? `${path}?${search}` : path, init };
  });
}

/** What came of a run: how often each operation answered with each status. */
export type Tally = Record<string, Record<number, number>>;

export interface FuzzOptions {
  app: Pick<H3, "request">;
  document: Document;
  requests: number;
  known: Readonly<Record<string, readonly string[]>>;
}

/** A cursor of this log that is ahead of what was read; what an app without egress and watchers' log cannot do. */
const MAY_BE_503 = new Set([
  ...["trustFeed", "validateListing", "retestListing", "watcherCreate"],
  ...["viaGet", "viaPost", "order", "buyerOrders", "routePlan", "routeExecute"],
  ...["docsExtract", "companiesLookup", "webEvidence", "researchBrief"],
]);

/** Asks, and looks at every answer. @throws with the request (shrunk) whose answer is not as described */
export async function fuzz({ app, document, requests, known }: FuzzOptions): Promise<Tally> {
  const wrongWith = answerSchemas(document);
  const tally: Tally = {};
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [path, method, operation] as const),
  );
  for (const one of operations) {
    const [template, method, { operationId }] = one;
    const counted: Record<number, number> = {};
    tally[operationId] = counted;
    const asks = fc.asyncProperty(requestsOf(one, document, known), async ({ path, init }) => {
      const response = await app.request(path, init);
      const body = await response.text();
      counted[response.status] = (counted[response.status] ?? 0) + 1;
      const packed = response.headers.get("content-encoding");
      const type = response.headers.get("content-type");
      const ndjson = type?.includes("ndjson");
      const values = packed ? [] : ndjson ? body.split("\n").filter((line) => line !== "") : [body];
      const wrong = values.flatMap((value) => wrongWith(template, method, response.status, type, value));
      if (packed && !document.paths[template]![method]!.responses[String(response.status)]) wrong.push("not described");
      if (response.status >= 500 && !(response.status === 503 && MAY_BE_503.has(operationId))) wrong.push("a 5xx");
      if (wrong.length > 0) throw new Error(`${response.status}: ${wrong.join("; ")}\n${body.slice(0, 500)}`);
    });
    await fc.assert(asks, { numRuns: Math.ceil(requests / operations.length), endOnFailure: false });
  }
  return tally;
}
