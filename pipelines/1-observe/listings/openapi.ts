import { looksLikeEntry } from "../../record/terms/entries.ts";
import { get, isObject, type JsonObject, MAX_KEPT_BYTES, text, valueIfKeepable, withoutSlashes } from "../json.ts";
import { type Rejected, refusesPaidCalls, rejectRow } from "./claims.ts";
import { ZERO_PRICE } from "./wellknown.ts";

/** Largest number of operations of one document that are read. */
const MAX_OPERATIONS = 5_000;
/** Largest number of values of one schema with its references resolved. */
const MAX_SCHEMA_NODES = 2_000;
/** Largest number of levels of one schema. */
const MAX_SCHEMA_DEPTH = 24;
/** Longest reference that is followed, characters. */
const MAX_REF_CHARS = 1_024;
/**
 * Largest number of characters of one schema while it is resolved. The result is then checked against the size that the
 * record can keep.
 */
const MAX_SCHEMA_CHARS = 2 * MAX_KEPT_BYTES;
/**
 * Largest number of values of all schemas of one document: a thousand for each endpoint that discovery may add from a
 * domain.
 */
const MAX_TOTAL_NODES = 200_000;
const MAX_TOTAL_CHARS = 2 * 1024 * 1024;
/**
 * Largest number of values that are walked for all schemas of one document, including schemas that turn out to be too
 * big.
 */
const MAX_VISITED_VALUES = 500_000;
const VERBS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
/** Extensions by which sellers mark an operation as paid. None of them is a standard. */
const PAYMENT_EXTENSIONS = ["x-payment-info", "x-payment", "x-402", "x-x402", "x-pricing"];

/** Is this an OpenAPI 3 document? */
export const isOpenApi = (document: unknown): document is JsonObject =>
  /^3(?:\.|$)/.test(String(get(document, "openapi") ?? "")) && isObject(get(document, "paths"));

/** A value with its references resolved, and its size. */
interface Resolved {
  value: unknown;
  /** Number of values. A value with several references to it is counted each time. */
  nodes: number;
  /** Approximate number of characters of the value as JSON. */
  chars: number;
  /** Number of levels below this value. */
  height: number;
}

/** Thrown when a schema cannot be resolved within the bounds. Then the schema counts as not declared. */
class Unresolvable extends Error {}

/**
 * Resolves the local `$ref`s of one document. Each target is resolved once, even if several references name it, and all
 * schemas of a document share one budget. Otherwise a megabyte of references to each other would become gigabytes.
 */
class Inliner {
  /** Resolved targets by reference. Null: the target is being resolved now, so a reference to it is circular. */
  readonly #targets = new Map<string, Resolved | null>();
  #workLeft = MAX_VISITED_VALUES;
  #nodesLeft = MAX_TOTAL_NODES;
  #charsLeft = MAX_TOTAL_CHARS;

  constructor(private readonly document: JsonObject) {}

  /**
   * Returns a schema with its local `$ref`s resolved. Undefined (the schema counts as not declared) when a reference is
   * circular, points outside the document or to nothing, when the schema is too big, or when earlier schemas used up
   * the document's budget.
   */
  inlineSchema(schema: unknown): unknown {
    if (schema === undefined) return undefined;
    try {
      const { value, nodes, chars } = this.#inline(schema, 0);
      this.#nodesLeft -= nodes;
      this.#charsLeft -= chars;
      return this.#nodesLeft < 0 || this.#charsLeft < 0 ? undefined : valueIfKeepable(value);
    } catch (error) {
      if (error instanceof Unresolvable) return undefined;
      throw error;
    }
  }

  /**
   * Returns an object of the document, or the object that its `$ref` names. Members beside the `$ref` override those of
   * its target. References inside the object are not resolved. Undefined when the target is missing, or after more than
   * four references in a row.
   */
  resolveObject(value: unknown, maxLinks = 4): JsonObject | undefined {
    if (!isObject(value)) return undefined;
    const { $ref: ref, ...otherMembers } = value;
    if (typeof ref !== "string") return value;
    if (maxLinks === 0) return undefined;
    const target = this.resolveObject(this.#findTarget(ref), maxLinks - 1);
    return target && { ...target, ...otherMembers };
  }

  #inline(value: unknown, depth: number): Resolved {
    if (depth > MAX_SCHEMA_DEPTH || --this.#workLeft < 0) throw new Unresolvable();
    if (typeof value !== "object" || value === null) {
      return { value, nodes: 1, chars: typeof value === "string" ? value.length + 2 : 8, height: 0 };
    }
    const ref = isObject(value) ? value.$ref : undefined;
    if (typeof ref === "string") return this.#resolveTarget(ref, depth + 1);
    const isList = Array.isArray(value);
    const result: Resolved = { value: null, nodes: 1, chars: 2, height: 0 };
    const entries = Object.entries(value);
    this.#workLeft -= entries.length;
    const members = entries.map(([name, one]) => {
      const resolved = this.#inline(one, depth + 1);
      result.nodes += resolved.nodes;
      result.chars += resolved.chars + (isList ? 1 : name.length + 4);
      result.height = Math.max(result.height, resolved.height + 1);
      if (result.nodes > MAX_SCHEMA_NODES || result.chars > MAX_SCHEMA_CHARS) throw new Unresolvable();
      return [name, resolved.value] as const;
    });
    result.value = isList ? members.map(([, one]) => one) : Object.fromEntries(members);
    return result;
  }

  #resolveTarget(ref: string, depth: number): Resolved {
    const resolvedTarget = this.#targets.get(ref);
    if (resolvedTarget === null) throw new Unresolvable();
    if (resolvedTarget && depth + resolvedTarget.height > MAX_SCHEMA_DEPTH) throw new Unresolvable();
    return resolvedTarget ?? this.#resolve(ref, depth);
  }

  #resolve(ref: string, depth: number): Resolved {
    this.#targets.set(ref, null);
    try {
      const target = this.#findTarget(ref);
      if (target === undefined) throw new Unresolvable();
      const resolved = this.#inline(target, depth);
      this.#targets.set(ref, resolved);
      return resolved;
    } catch (error) {
      // The target is forgotten, since a reference at a higher level may still resolve within MAX_SCHEMA_DEPTH.
      this.#targets.delete(ref);
      throw error;
    }
  }

  #findTarget(ref: string): unknown {
    const steps = ref.startsWith("#/") && ref.length <= MAX_REF_CHARS ? ref.slice(2).split("/") : [];
    if (steps.length === 0) return undefined;
    return get(this.document, ...steps.map((step) => step.replace(/~1/g, "/").replace(/~0/g, "~")));
  }
}

/** Returns the first value of `examples`, which is a map of Example objects, or in a schema a list. */
function firstExample(examples: unknown, inliner: Inliner): unknown {
  if (Array.isArray(examples)) return examples[0];
  return isObject(examples) ? get(inliner.resolveObject(Object.values(examples)[0]), "value") : undefined;
}

/** Finds a value that the seller gives for this media type or parameter, or else in its schema. */
function findExample(mediaOrParameter: JsonObject, schema: unknown, inliner: Inliner): unknown {
  return (
    mediaOrParameter.example ??
    firstExample(mediaOrParameter.examples, inliner) ??
    get(schema, "example") ??
    get(schema, "examples", "0")
  );
}

/** Reads the JSON content of a request or a response: its media type, schema and first example. */
function readJsonContent(
  requestOrResponse: unknown,
  inliner: Inliner,
): { mime?: string; schema?: unknown; example?: unknown } {
  const types = get(inliner.resolveObject(requestOrResponse), "content");
  if (!isObject(types)) return {};
  const names = Object.keys(types);
  const mime = names.find((name) => /json/i.test(name)) ?? names[0];
  if (mime === undefined) return {};
  const media = inliner.resolveObject(types[mime]) ?? {};
  const schema = inliner.inlineSchema(media.schema);
  return { mime, schema, example: findExample(media, schema, inliner) };
}

/** A parameter of a call in its path or its query. */
interface Parameter {
  name: string;
  place: "path" | "query";
  required: boolean;
  schema: unknown;
  /** The seller's value: an example, or for a required parameter the constant, default or first value of the schema. */
  value: unknown;
}

/** Largest number of parameters of one path item or operation that are read. */
const MAX_PARAMETERS = 64;

/**
 * Reads the parameters of an operation. A parameter of the operation replaces a parameter of its path item with equal
 * name and place.
 */
function readParameters(operation: JsonObject, pathItem: JsonObject, inliner: Inliner): Parameter[] {
  const parametersByPlace = new Map<string, Parameter>();
  for (const list of [pathItem.parameters, operation.parameters]) {
    for (const one of Array.isArray(list) ? list.slice(0, MAX_PARAMETERS) : []) {
      const parameter = inliner.resolveObject(one) ?? {};
      const name = text(parameter.name, 100);
      const place = parameter.in;
      if (!name || (place !== "path" && place !== "query")) continue;
      const schema = inliner.inlineSchema(parameter.schema);
      const schemaValue = get(schema, "const") ?? get(schema, "default") ?? get(schema, "enum", "0");
      const required = place === "path" || parameter.required === true;
      const value = findExample(parameter, schema, inliner) ?? (required ? schemaValue : undefined);
      parametersByPlace.set(`${place} ${name}`, { name, place, required, schema, value });
    }
  }
  return [...parametersByPlace.values()];
}

/**
 * Describes a call by its parameters: an example for path and query, each only if the seller gives a value for every
 * required parameter there; and a schema of the query.
 */
function describeCall(parameters: readonly Parameter[]): { example: JsonObject; querySchema: JsonObject | undefined } {
  const example: JsonObject = {};
  for (const place of ["path", "query"] as const) {
    const placeParameters = parameters.filter((one) => one.place === place);
    const parametersWithValue = placeParameters.filter((one) => one.value !== undefined);
    if (parametersWithValue.length > 0 && placeParameters.every((one) => !one.required || one.value !== undefined))
      example[place] = Object.fromEntries(parametersWithValue.map(({ name, value }) => [name, value]));
  }
  const queryParameters = parameters.filter(({ place, schema }) => place === "query" && isObject(schema));
  if (queryParameters.length === 0) return { example, querySchema: undefined };
  const properties = Object.fromEntries(
    queryParameters.map(({ name, schema, value }) => [
      name,
      value === undefined ? schema : { ...(schema as JsonObject), example: value },
    ]),
  );
  const required = queryParameters.filter((one) => one.required).map(({ name }) => name);
  return { example, querySchema: { type: "object", properties, ...(required.length > 0 ? { required } : {}) } };
}

/**
 * Returns the address of the first server in this list, with its variables set to their defaults; null when there is
 * none.
 */
function serverUrl(servers: unknown): string | null {
  const server = get(servers, "0");
  const url = text(get(server, "url"), 2048);
  if (!url) return null;
  return url.replace(
    /\{([^{}]+)\}/g,
    (all, name: string) => text(get(server, "variables", name, "default"), 200) ?? all,
  );
}

/** Reads x402 terms in the operation itself: its `accepts`, or an entry with a payee in an extension. */
function readTerms(operation: JsonObject): JsonObject {
  if (Array.isArray(operation.accepts)) {
    const { x402Version, accepts, extensions } = operation;
    return {
      accepts,
      ...(x402Version === undefined ? {} : { x402Version }),
      ...(isObject(extensions) ? { extensions } : {}),
    };
  }
  const entry = PAYMENT_EXTENSIONS.map((name) => operation[name]).find(
    (one) => looksLikeEntry(one) && get(one, "payTo") !== undefined && /^\d+$/.test(String(get(one, "amount"))),
  );
  // An extension lacks members that an x402 entry has. It gets no version, so that it is not checked as terms.
  return entry === undefined ? {} : { accepts: [entry] };
}

/**
 * Returns the value of an extension from the operation, or else from its path item. An operation may override it with
 * null.
 */
const readExtension = (name: string, operation: JsonObject, pathItem: JsonObject): unknown =>
  Object.hasOwn(operation, name) ? operation[name] : pathItem[name];

/** Makes a listing item from one paid operation. Its price stays as it is written. */
function createItem(
  operation: JsonObject,
  pathItem: JsonObject,
  verb: string,
  url: string,
  inliner: Inliner,
): JsonObject {
  const info = PAYMENT_EXTENSIONS.map((name) => readExtension(name, operation, pathItem)).find(
    (one) => one !== undefined,
  );
  const request = readJsonContent(operation.requestBody, inliner);
  const responses = get(operation, "responses");
  const successStatus = isObject(responses) ? Object.keys(responses).find((status) => /^2/.test(status)) : undefined;
  const response = readJsonContent(successStatus === undefined ? undefined : get(responses, successStatus), inliner);
  const { example, querySchema } = describeCall(readParameters(operation, pathItem, inliner));
  if (request.example !== undefined) example.body = request.example;
  const isInputInBody = verb !== "get" && verb !== "delete";
  const inputSchema = isInputInBody ? request.schema : valueIfKeepable(querySchema);
  return {
    url,
    method: verb.toUpperCase(),
    ...(text(operation.summary ?? operation.description, 2000)
      ? { description: operation.summary ?? operation.description }
      : {}),
    ...readTerms(operation),
    ...(refusesPaidCalls(operation) || refusesPaidCalls(pathItem) ? { paid_test_calls: false } : {}),
    ...(info === undefined ? {} : { payment: info }),
    ...(inputSchema === undefined ? {} : { inputSchema }),
    ...(response.schema === undefined ? {} : { outputSchema: response.schema }),
    ...(response.mime === undefined ? {} : { mimeType: response.mime }),
    ...(Object.keys(example).length === 0 ? {} : { example }),
  };
}

/** Members that hold a price, or a word that means no price. */
const PRICE_MEMBERS = ["authMode", "auth_mode", "mode", "type", "price", "amount", "pricing"];

/**
 * Does an extension declare that the operation is free: null, false, 0, `free`, or an object with such a member? An
 * object that names payment protocols counts as paid, even with a price of 0.
 */
function isFree(info: unknown, levelsLeft = 2): boolean {
  if (info === undefined) return false;
  if (info === null || info === false || info === 0) return true;
  if (typeof info === "string") return ZERO_PRICE.test(info.trim());
  if (!isObject(info) || levelsLeft === 0 || info.protocols !== undefined) return false;
  if (info.free === true || info.required === false || info.enabled === false) return true;
  return PRICE_MEMBERS.some((name) => info[name] != null && isFree(info[name], levelsLeft - 1));
}

function isPaid(operation: JsonObject, pathItem: JsonObject): boolean {
  const infos = [...PAYMENT_EXTENSIONS, "x-payment-required"].map((name) => readExtension(name, operation, pathItem));
  if (infos.some((info) => isFree(info))) return false;
  return (
    infos.some((info) => info !== undefined) ||
    operation.accepts !== undefined ||
    get(operation, "responses", "402") !== undefined
  );
}

/**
 * Reads the paid operations of an OpenAPI 3 document: those with a payment extension, with terms, or with a 402 among
 * their responses. Free operations are left out and do not count as rejected rows.
 *
 * References are resolved by our own `Inliner`: the maintained libraries (swagger-parser, Scalar's, Redocly's) resolve
 * the whole document without a bound on work or size, and make circular values of circular references.
 */
export function openApiItems(document: JsonObject): { items: JsonObject[]; rejected: Rejected[] } {
  const items: JsonObject[] = [];
  const rejectedRows: Rejected[] = [];
  const inliner = new Inliner(document);
  for (const [path, pathItemOrRef] of Object.entries(document.paths as JsonObject)) {
    const pathItem = inliner.resolveObject(pathItemOrRef);
    if (pathItem === undefined) continue;
    for (const verb of VERBS) {
      const operation = pathItem[verb];
      if (!isObject(operation) || !isPaid(operation, pathItem)) continue;
      const server = serverUrl(operation.servers) ?? serverUrl(pathItem.servers) ?? serverUrl(document.servers) ?? "";
      const url = `${withoutSlashes(server)}${path}`;
      if (items.length >= MAX_OPERATIONS) rejectedRows.push(rejectRow("too_many", { path, method: verb, operation }));
      else items.push(createItem(operation, pathItem, verb, url, inliner));
    }
  }
  return { items, rejected: rejectedRows };
}
