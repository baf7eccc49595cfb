import { get, isObject, type JsonObject, keepable, text } from "../json.ts";
import { looksLikeEntry } from "../x402.ts";
import { type Rejected, rejected } from "./reasons.ts";

/** Operations of one document that are read. */
const MAX_OPERATIONS = 5_000;
const MAX_NODES = 2_000;
const MAX_DEPTH = 24;
const VERBS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
/** Extensions by which sellers say that an operation is paid; none is a standard. */
const PAYMENT = ["x-payment-info", "x-payment", "x-402", "x-x402", "x-pricing"];

/** Is this an OpenAPI 3 document? */
export const isOpenApi = (document: unknown): document is JsonObject =>
  /^3(?:\.|$)/.test(String(get(document, "openapi") ?? "")) && isObject(get(document, "paths"));

/**
 * A schema with its local `$ref`s put in place. Undefined when one leads outside, is missing, goes round in a circle,
 * or the whole is too big: such a schema counts as not advertised.
 */
function inlined(schema: unknown, document: JsonObject): unknown {
  let nodes = 0;
  const copy = (value: unknown, depth: number): unknown => {
    if (++nodes > MAX_NODES || depth > MAX_DEPTH) throw new RangeError("too big");
    if (Array.isArray(value)) return value.map((one) => copy(one, depth + 1));
    if (!isObject(value)) return value;
    const ref = value.$ref;
    if (typeof ref === "string") {
      const steps = ref.startsWith("#/") ? ref.slice(2).split("/") : [];
      const target = get(document, ...steps.map((step) => step.replace(/~1/g, "/").replace(/~0/g, "~")));
      if (steps.length === 0 || target === undefined) throw new RangeError("a $ref that leads nowhere");
      return copy(target, depth + 1);
    }
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, copy(one, depth + 1)]));
  };
  try {
    return schema === undefined ? undefined : keepable(copy(schema, 0));
  } catch {
    return undefined;
  }
}

/** The JSON content of a request or response: its media type, schema and first example. */
function content(of: unknown, document: JsonObject): { mime?: string; schema?: unknown; example?: unknown } {
  const types = get(of, "content");
  if (!isObject(types)) return {};
  const names = Object.keys(types);
  const mime = names.find((name) => /json/i.test(name)) ?? names[0];
  if (mime === undefined) return {};
  const media = types[mime];
  const named = get(media, "examples");
  const first = isObject(named) ? get(Object.values(named)[0], "value") : undefined;
  const schema = inlined(get(media, "schema"), document);
  return { mime, schema, example: get(media, "example") ?? first ?? get(schema, "example") };
}

/** Example values of the parameters, by where they go; only those that name one. */
function parameterExamples(operation: unknown, item: unknown): JsonObject {
  const listed = [get(item, "parameters"), get(operation, "parameters")].flatMap((one) =>
    Array.isArray(one) ? one.slice(0, 64) : [],
  );
  const example: Record<string, JsonObject> = {};
  for (const parameter of listed) {
    const name = text(get(parameter, "name"), 100);
    const place = get(parameter, "in");
    const value = get(parameter, "example") ?? get(parameter, "schema", "example");
    if (name && value !== undefined && (place === "query" || place === "path")) {
      example[place] = { ...example[place], [name]: value };
    }
  }
  return example;
}

/** The first server's address with its variables at their defaults; null when the document names none. */
function serverOf(document: JsonObject): string | null {
  const server = get(document, "servers", "0");
  const url = text(get(server, "url"), 2048);
  if (!url) return null;
  return url.replace(
    /\{([^{}]+)\}/g,
    (all, name: string) => text(get(server, "variables", name, "default"), 200) ?? all,
  );
}

/** Terms that stand in the operation itself: `accepts`, or one entry with a payee as an extension. */
function termsOf(operation: JsonObject): JsonObject {
  if (Array.isArray(operation.accepts)) {
    const { x402Version, accepts, extensions } = operation;
    return {
      accepts,
      ...(x402Version === undefined ? {} : { x402Version }),
      ...(isObject(extensions) ? { extensions } : {}),
    };
  }
  const entry = PAYMENT.map((name) => operation[name]).find(
    (one) => looksLikeEntry(one) && get(one, "payTo") !== undefined && /^\d+$/.test(String(get(one, "amount"))),
  );
  return entry === undefined ? {} : { accepts: [entry], x402Version: 2 };
}

/** One paid operation as a listing item; its price stays as it was written. */
function itemOf(
  operation: JsonObject,
  pathItem: JsonObject,
  verb: string,
  url: string,
  document: JsonObject,
): JsonObject {
  const info = PAYMENT.map((name) => operation[name] ?? pathItem[name]).find((one) => one !== undefined);
  const request = content(operation.requestBody, document);
  const responses = get(operation, "responses");
  const ok = isObject(responses) ? Object.keys(responses).find((status) => /^2/.test(status)) : undefined;
  const answer = content(ok === undefined ? undefined : get(responses, ok), document);
  const example: JsonObject = parameterExamples(operation, pathItem);
  if (request.example !== undefined) example.body = request.example;
  return {
    url,
    method: verb.toUpperCase(),
    ...(text(operation.summary ?? operation.description, 2000)
      ? { description: operation.summary ?? operation.description }
      : {}),
    ...termsOf(operation),
    ...(info === undefined ? {} : { payment: info }),
    ...(request.schema === undefined ? {} : { inputSchema: request.schema }),
    ...(answer.schema === undefined ? {} : { outputSchema: answer.schema }),
    ...(answer.mime === undefined ? {} : { mimeType: answer.mime }),
    ...(Object.keys(example).length === 0 ? {} : { example }),
  };
}

const isPaid = (operation: JsonObject, pathItem: JsonObject): boolean =>
  PAYMENT.some((name) => operation[name] !== undefined || pathItem[name] !== undefined) ||
  operation["x-payment-required"] === true ||
  operation.accepts !== undefined ||
  get(operation, "responses", "402") !== undefined;

/**
 * Paid operations of an OpenAPI 3 document: those with a payment extension, with terms, or with a 402 among the
 * responses. Free operations are no listings and no rejected rows.
 */
export function openApiItems(document: JsonObject): { items: JsonObject[]; rejected: Rejected[] } {
  const items: JsonObject[] = [];
  const refused: Rejected[] = [];
  const server = serverOf(document)?.replace(/\/+$/, "") ?? "";
  for (const [path, pathItem] of Object.entries(document.paths as JsonObject)) {
    if (!isObject(pathItem)) continue;
    for (const verb of VERBS) {
      const operation = pathItem[verb];
      if (!isObject(operation) || !isPaid(operation, pathItem)) continue;
      if (items.length >= MAX_OPERATIONS) refused.push(rejected("too_many", { path, method: verb, operation }));
      else items.push(itemOf(operation, pathItem, verb, `${server}${path}`, document));
    }
  }
  return { items, rejected: refused };
}
