import { looksLikeEntry } from "../../record/terms/entries.ts";
import { get, isObject, type JsonObject, keepable, MAX_KEPT, text, withoutSlashes } from "../json.ts";
import { type Rejected, refusesPaidCalls, rejected } from "./claims.ts";

/** Most operations of one document that are read. */
const MAX_OPERATIONS = 5_000;
/** Most values of one schema with its references resolved. */
const MAX_NODES = 2_000;
/** Most levels of one schema. */
const MAX_DEPTH = 24;
/** Longest reference that is followed, characters. */
const MAX_REF = 1_024;
/** Most characters of one schema; one within this bound is then tried against what the record can keep. */
const MAX_CHARS = 2 * MAX_KEPT;
/** Most values of all schemas of one document: a thousand for each endpoint that discovery may add of a domain. */
const MAX_NODES_OF_ALL = 200_000;
const MAX_CHARS_OF_ALL = 2 * 1024 * 1024;
/** Most values that are walked for all schemas of one document, including schemas that turn out to be too big. */
const MAX_WORK = 500_000;
const VERBS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
/** Extensions by which sellers say that an operation is paid; none is a standard. */
const PAYMENT = ["x-payment-info", "x-payment", "x-402", "x-x402", "x-pricing"];

/** Is this an OpenAPI 3 document? */
export const isOpenApi = (document: unknown): document is JsonObject =>
  /^3(?:\.|$)/.test(String(get(document, "openapi") ?? "")) && isObject(get(document, "paths"));

/** A value with its references resolved, and what it costs to walk and to write it. */
interface Placed {
  value: unknown;
  /** Number of values; a value that several references name is counted each time. */
  nodes: number;
  /** About as many characters as its JSON has. */
  chars: number;
  /** Levels below this one. */
  height: number;
}

/** Thrown when a schema cannot be resolved within the bounds; the schema then counts as not advertised. */
class Unplaceable extends Error {}

/**
 * Resolves the local `$ref`s of one document. The target of a reference is resolved once, however many references name
 * it, and all schemas of a document share one budget: otherwise a megabyte of references to each other would become
 * gigabytes.
 */
class Inliner {
  /** Resolved targets by reference. Null: the target is being resolved now, so a reference to it is circular. */
  readonly #targets = new Map<string, Placed | null>();
  #work = MAX_WORK;
  #nodesLeft = MAX_NODES_OF_ALL;
  #charsLeft = MAX_CHARS_OF_ALL;

  constructor(private readonly document: JsonObject) {}

  /**
   * A schema with its local `$ref`s resolved. Undefined (the schema counts as not advertised) when a reference leads
   * outside, is missing or circular, when the schema is too big, or when earlier schemas used up the document's budget.
   */
  schema(schema: unknown): unknown {
    if (schema === undefined) return undefined;
    try {
      const { value, nodes, chars } = this.#place(schema, 0);
      this.#nodesLeft -= nodes;
      this.#charsLeft -= chars;
      return this.#nodesLeft < 0 || this.#charsLeft < 0 ? undefined : keepable(value);
    } catch (error) {
      if (error instanceof Unplaceable) return undefined;
      throw error;
    }
  }

  #place(value: unknown, depth: number): Placed {
    if (depth > MAX_DEPTH || --this.#work < 0) throw new Unplaceable();
    if (typeof value !== "object" || value === null) {
      return { value, nodes: 1, chars: typeof value === "string" ? value.length + 2 : 8, height: 0 };
    }
    const ref = isObject(value) ? value.$ref : undefined;
    if (typeof ref === "string") return this.#target(ref, depth + 1);
    const isList = Array.isArray(value);
    const whole: Placed = { value: null, nodes: 1, chars: 2, height: 0 };
    const entries = Object.entries(value);
    this.#work -= entries.length;
    const members = entries.map(([name, one]) => {
      const placed = this.#place(one, depth + 1);
      whole.nodes += placed.nodes;
      whole.chars += placed.chars + (isList ? 1 : name.length + 4);
      whole.height = Math.max(whole.height, placed.height + 1);
      if (whole.nodes > MAX_NODES || whole.chars > MAX_CHARS) throw new Unplaceable();
      return [name, placed.value] as const;
    });
    whole.value = isList ? members.map(([, one]) => one) : Object.fromEntries(members);
    return whole;
  }

  #target(ref: string, depth: number): Placed {
    const known = this.#targets.get(ref);
    if (known === null) throw new Unplaceable();
    if (known && depth + known.height > MAX_DEPTH) throw new Unplaceable();
    return known ?? this.#resolve(ref, depth);
  }

  #resolve(ref: string, depth: number): Placed {
    this.#targets.set(ref, null);
    try {
      const placed = this.#place(this.#found(ref), depth);
      this.#targets.set(ref, placed);
      return placed;
    } catch (error) {
      // A reference from a higher level may still resolve within MAX_DEPTH.
      this.#targets.delete(ref);
      throw error;
    }
  }

  #found(ref: string): unknown {
    const steps = ref.startsWith("#/") && ref.length <= MAX_REF ? ref.slice(2).split("/") : [];
    const target = get(this.document, ...steps.map((step) => step.replace(/~1/g, "/").replace(/~0/g, "~")));
    if (steps.length === 0 || target === undefined) throw new Unplaceable();
    return target;
  }
}

/** The JSON content of a request or a response: its media type, schema and first example. */
function content(of: unknown, schemas: Inliner): { mime?: string; schema?: unknown; example?: unknown } {
  const types = get(of, "content");
  if (!isObject(types)) return {};
  const names = Object.keys(types);
  const mime = names.find((name) => /json/i.test(name)) ?? names[0];
  if (mime === undefined) return {};
  const media = types[mime];
  const named = get(media, "examples");
  const first = isObject(named) ? get(Object.values(named)[0], "value") : undefined;
  const schema = schemas.schema(get(media, "schema"));
  return { mime, schema, example: get(media, "example") ?? first ?? get(schema, "example") };
}

/** Example values of the query and path parameters that have one, by place. */
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

/** The first server's address with its variables at their defaults; null when the document names no server. */
function serverOf(document: JsonObject): string | null {
  const server = get(document, "servers", "0");
  const url = text(get(server, "url"), 2048);
  if (!url) return null;
  return url.replace(
    /\{([^{}]+)\}/g,
    (all, name: string) => text(get(server, "variables", name, "default"), 200) ?? all,
  );
}

/** x402 terms in the operation itself: its `accepts`, or an entry with a payee in an extension. */
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
  // An extension lacks members that an x402 entry has; without a version it is not checked as terms.
  return entry === undefined ? {} : { accepts: [entry] };
}

/** One paid operation as a listing item; its price stays as it is written. */
function itemOf(operation: JsonObject, pathItem: JsonObject, verb: string, url: string, schemas: Inliner): JsonObject {
  const info = PAYMENT.map((name) => operation[name] ?? pathItem[name]).find((one) => one !== undefined);
  const request = content(operation.requestBody, schemas);
  const responses = get(operation, "responses");
  const ok = isObject(responses) ? Object.keys(responses).find((status) => /^2/.test(status)) : undefined;
  const answer = content(ok === undefined ? undefined : get(responses, ok), schemas);
  const example: JsonObject = parameterExamples(operation, pathItem);
  if (request.example !== undefined) example.body = request.example;
  return {
    url,
    method: verb.toUpperCase(),
    ...(text(operation.summary ?? operation.description, 2000)
      ? { description: operation.summary ?? operation.description }
      : {}),
    ...termsOf(operation),
    ...(refusesPaidCalls(operation) || refusesPaidCalls(pathItem) ? { paid_test_calls: false } : {}),
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
 * The paid operations of an OpenAPI 3 document: those with a payment extension, with terms, or with a 402 among their
 * responses. Free operations are left out and are not rejected rows.
 */
export function openApiItems(document: JsonObject): { items: JsonObject[]; rejected: Rejected[] } {
  const items: JsonObject[] = [];
  const refused: Rejected[] = [];
  const server = withoutSlashes(serverOf(document) ?? "");
  const schemas = new Inliner(document);
  for (const [path, pathItem] of Object.entries(document.paths as JsonObject)) {
    if (!isObject(pathItem)) continue;
    for (const verb of VERBS) {
      const operation = pathItem[verb];
      if (!isObject(operation) || !isPaid(operation, pathItem)) continue;
      if (items.length >= MAX_OPERATIONS) refused.push(rejected("too_many", { path, method: verb, operation }));
      else items.push(itemOf(operation, pathItem, verb, `${server}${path}`, schemas));
    }
  }
  return { items, rejected: refused };
}
