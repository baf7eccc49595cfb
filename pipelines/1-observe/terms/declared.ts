import type { Claims } from "../../record/bodies.ts";
import { METHODS, type Method } from "../../record/vocabulary.ts";
import { get, isObject, type JsonObject, show, text, valueIfKeepable } from "../json.ts";

/** A seller's declaration of its endpoint's input and answer. Every member may be missing. */
export interface Declared {
  method: Method | null;
  tool: string | null;
  description: string | null;
  /**
   * Name of the class of answers (such as prices or companies) that the seller states. It is not checked here; a name
   * for which we have no checker is ignored later.
   */
  className: string | undefined;
  example: Claims["example"];
  /** JSON Schema of the query (an object of strings) or of the body. */
  inputSchema: unknown;
  /** Place of the input in the request; null if the seller does not declare it. */
  inputIn: "query" | "body" | null;
  /** JSON Schema of the answer; undefined if the seller declares none. */
  outputSchema: unknown;
  /** Media type of the answer; null if the seller declares none. */
  mime: string | null;
}

export const NOTHING_DECLARED: Declared = {
  method: null,
  tool: null,
  description: null,
  className: undefined,
  example: null,
  inputSchema: undefined,
  inputIn: null,
  outputSchema: undefined,
  mime: null,
};

/**
 * Reads an HTTP method in any case; null for a method that the record does not have (sellers write WEBSOCKET), which is
 * never sent.
 */
export function methodOf(value: unknown): Method | null {
  const verb = text(value, 20)?.toUpperCase();
  return METHODS.find((method) => method === verb) ?? null;
}

const firstMember = (from: unknown, ...names: string[]): unknown => {
  for (const name of names) {
    const value = get(from, name);
    if (value !== undefined && value !== null) return value;
  }
  return undefined;
};

/** Converts example values to a query: text stays unchanged, any other value becomes JSON. */
function toQuery(map: JsonObject): Record<string, string> {
  const pairs = Object.entries(map).slice(0, 64);
  return Object.fromEntries(pairs.map(([name, value]) => [name, typeof value === "string" ? value : show(value)]));
}

interface DeclaredInput {
  example: Claims["example"];
  schema: unknown;
  inputIn: "query" | "body" | null;
}

const isExample = (value: unknown): value is JsonObject =>
  isObject(value) && !isSchema(value) && fieldsToSchema(value) === undefined;

/** Largest number of declared headers that are sent. */
const MAX_HEADERS = 16;
const HEADER_NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const HEADER_VALUE = /^[\x21-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?$/;
/**
 * Headers that a seller cannot declare: those that we or the connection set, those of HTTP's own authentication and of
 * cookies, payments, those by which proxies name the client, and those that change what a method or an answer is.
 */
const OWN_HEADERS =
  /^(?:accept|accept-encoding|authorization|cf-connecting-ip|connection|cookie2?|expect|forwarded|from|host|keep-alive|origin|prefer|range|referer|set-cookie2?|te|trailer|transfer-encoding|true-client-ip|upgrade|user-agent|via|x-api-payment|x-client-ip|x-real-ip|.*method-override|(?:access-control|content|if|mcp|payment|proxy|sec|x-forwarded|x-http-method|x-payment)(?:-.*)?)$/;

/** Reads declared example headers; undefined if there are none that are sent. */
function readHeaders(value: unknown): Record<string, string> | undefined {
  if (!isObject(value)) return undefined;
  const headers = Object.entries(value)
    .slice(0, 64)
    .map(([name, text]): [string, unknown] => [name.toLowerCase(), text])
    .filter((one): one is [string, string] => {
      const [name, text] = one;
      return HEADER_NAME.test(name) && !OWN_HEADERS.test(name) && typeof text === "string" && HEADER_VALUE.test(text);
    });
  return headers.length === 0 ? undefined : Object.fromEntries(headers.slice(0, MAX_HEADERS));
}

/** Reads the declared form of the body; undefined for JSON, which is the default. */
function readBodyType(input: unknown): "text" | "form-data" | undefined {
  const name = text(firstMember(input, "bodyType", "body_type"), 60)?.toLowerCase() ?? "";
  return /form|multipart/.test(name) ? "form-data" : name.includes("text") ? "text" : undefined;
}

const isPlainValue = (value: unknown): boolean => ["string", "number", "boolean"].includes(typeof value);

/** Can this example be sent as a body of this form? */
function isSendable(body: unknown, bodyType: "text" | "form-data" | undefined): boolean {
  if (bodyType === "text") return typeof body === "string";
  return bodyType === undefined || (isObject(body) && Object.values(body).every(isPlainValue));
}

/**
 * Reads the declared query or body: a JSON Schema, a map of field descriptions (x402 version 1), or example values
 * (version 2). An object that does not look like a schema counts as an example. Values of the path, headers, and the
 * body's form are read beside them; with a schema they are all that the example has.
 */
function readInput(input: unknown): DeclaredInput {
  const query = firstMember(input, "queryParams", "query_params", "query");
  const body = firstMember(input, "body", "bodyFields", "body_fields", "bodyParams");
  const path = firstMember(input, "pathParams", "path_params");
  const place = body !== undefined ? "body" : query !== undefined ? "query" : null;
  const value = place === "body" ? body : query;
  const schema = isSchema(value) ? value : fieldsToSchema(value);
  const bodyType = place === "body" ? readBodyType(input) : undefined;
  const example: NonNullable<Claims["example"]> = {};
  if (schema === undefined && place !== null) {
    if (place === "body" && !isSendable(body, bodyType)) return { example: null, schema, inputIn: place };
    if (isExample(query)) example.query = toQuery(query);
    if (place === "body" && valueIfKeepable(body) !== undefined) example.body = body;
  }
  const headers = readHeaders(get(input, "headers"));
  if (isExample(path)) example.path = toQuery(path);
  if (headers !== undefined) example.headers = headers;
  if (bodyType !== undefined) example.body_type = bodyType;
  const isEmpty = Object.keys(example).length === 0 && (place === null || schema !== undefined);
  return { example: isEmpty || valueIfKeepable(example) === undefined ? null : example, schema, inputIn: place };
}

/**
 * Reads the schema of the answer: a JSON Schema, or a map of field descriptions as in x402 version 1; else undefined.
 */
function readOutputSchema(output: unknown, extensionSchema?: unknown): unknown {
  const candidates = [
    get(output, "schema"),
    get(extensionSchema, "properties", "output", "properties", "example"),
    output,
    get(output, "output"),
  ];
  for (const candidate of candidates) {
    const schema = isSchema(candidate) ? candidate : candidate === output ? fieldsToSchema(candidate) : undefined;
    if (schema !== undefined && valueIfKeepable(schema) !== undefined) return schema;
  }
  return undefined;
}

/**
 * Reads the declaration of x402 version 2: `extensions.bazaar = {info: {input, output}, schema}`, or a plain `{input,
 * output}`.
 */
export function readBazaar(extension: unknown): Declared {
  if (!isObject(extension)) return NOTHING_DECLARED;
  const info = isObject(extension.info) ? extension.info : extension;
  const input = get(info, "input");
  const output = get(info, "output");
  const declaredInput = readInput(input);
  const isMcp = get(input, "type") === "mcp";
  const place = declaredInput.inputIn ?? (isMcp ? "body" : null);
  const extensionSchema = get(
    extension,
    "schema",
    "properties",
    "input",
    "properties",
    place === "body" ? "body" : "queryParams",
  );
  const toolExample = isMcp ? get(input, "example") : undefined;
  const toolSchema = isMcp ? get(input, "inputSchema") : undefined;
  // The extension describes the whole call. If it names no parameter, no parameter is needed, and the example is empty.
  const emptyExample =
    declaredInput.inputIn === null && get(input, "type") === "http" && !isSchema(extensionSchema) ? {} : null;
  const example =
    isObject(toolExample) && valueIfKeepable(toolExample) !== undefined
      ? { body: toolExample }
      : (declaredInput.example ?? emptyExample);
  const schema = [declaredInput.schema, toolSchema, extensionSchema].find(isSchema);
  return {
    method: methodOf(get(input, "method")),
    tool: text(firstMember(input, "toolName", "tool"), 200) ?? null,
    description: text(get(info, "description"), 2000) ?? null,
    className: text(firstMember(extension, "class") ?? get(info, "class"), 60),
    example,
    inputSchema: valueIfKeepable(schema),
    inputIn: place,
    outputSchema: readOutputSchema(output, get(extension, "schema")),
    mime: get(output, "type") === "json" ? "application/json" : null,
  };
}

/**
 * Reads the declaration of x402 version 1: `accepts[0].outputSchema = {input, output}`, and the entry's description and
 * mimeType.
 */
export function readEntryDeclaration(entry: unknown): Declared {
  const outputSchema = get(entry, "outputSchema");
  const input = get(outputSchema, "input");
  const declaredInput = readInput(input);
  const output = get(outputSchema, "output");
  return {
    ...NOTHING_DECLARED,
    method: methodOf(firstMember(input, "method") ?? get(entry, "method")),
    description: text(get(entry, "description"), 2000) ?? null,
    className: text(get(outputSchema, "class"), 60),
    example: declaredInput.example,
    inputSchema: valueIfKeepable(declaredInput.schema),
    inputIn: declaredInput.inputIn,
    outputSchema: readOutputSchema(output ?? (input === undefined ? outputSchema : undefined)),
    mime: text(get(entry, "mimeType"), 120) ?? null,
  };
}

/**
 * Reads the declaration in a listing item's own members. The item is a catalogue's row, or from a seller's own file.
 */
export function readItemDeclaration(item: unknown): Declared {
  const meta = get(item, "metadata");
  const resource = get(item, "resource");
  const schemaMember =
    firstMember(item, "inputSchema", "input_schema", "requestSchema", "parameters") ?? get(meta, "inputSchema");
  const schema = isSchema(schemaMember) ? schemaMember : undefined;
  const example = firstMember(item, "example", "exampleInput") ?? get(meta, "input");
  const method = methodOf(get(item, "method") ?? get(item, "methods", "0"));
  const isInputInBody = method !== null && method !== "GET" && method !== "DELETE";
  const inputOfItem = readInput(get(item, "input"));
  const parsedExample = readExample(example, isInputInBody) ?? inputOfItem.example;
  const output = firstMember(item, "outputSchema", "output_schema", "responseSchema") ?? get(meta, "outputSchema");
  return {
    method,
    tool: text(firstMember(item, "toolName", "tool"), 200) ?? null,
    description:
      text(get(item, "description") ?? get(meta, "description") ?? get(resource, "description"), 2000) ?? null,
    className: text(get(item, "class") ?? get(meta, "class"), 60),
    example: parsedExample,
    inputSchema: valueIfKeepable(schema ?? inputOfItem.schema),
    inputIn: inputOfItem.inputIn ?? (schema === undefined ? null : isInputInBody ? "body" : "query"),
    outputSchema: readOutputSchema(get(output, "output") ?? output ?? get(item, "output")),
    mime: text(get(item, "mimeType") ?? get(resource, "mimeType"), 120) ?? null,
  };
}

/**
 * Reads an example: `{query?, body?, path?}`, or bare values for the query or the body, depending on the HTTP method.
 */
function readExample(example: unknown, isInputInBody: boolean): Claims["example"] {
  if (!isObject(example) || valueIfKeepable(example) === undefined) return null;
  const query = get(example, "query");
  const path = get(example, "path");
  if (isObject(query) || Object.hasOwn(example, "body") || isObject(path)) {
    const parsedExample: NonNullable<Claims["example"]> = {};
    if (isObject(query)) parsedExample.query = toQuery(query);
    if (Object.hasOwn(example, "body")) parsedExample.body = example.body;
    if (isObject(path)) parsedExample.path = toQuery(path);
    return parsedExample;
  }
  return isInputInBody ? { body: example } : { query: toQuery(example) };
}

/** Merges several declarations: each member is from the first declaration that has it. */
export function mergeDeclared(...sources: Declared[]): Declared {
  const merged = { ...NOTHING_DECLARED };
  for (const source of sources) {
    merged.method ??= source.method;
    merged.tool ??= source.tool;
    merged.description ??= source.description;
    merged.className ??= source.className;
    merged.example ??= source.example;
    merged.inputSchema ??= source.inputSchema;
    merged.inputIn ??= source.inputIn;
    merged.outputSchema ??= source.outputSchema;
    merged.mime ??= source.mime;
  }
  return merged;
}

const TYPE_NAMES = new Set(["object", "array", "string", "number", "integer", "boolean", "null"]);
/**
 * Keywords that constrain a value. A bare `{"type":"object"}`, which libraries write by default, constrains nothing
 * useful.
 */
const CONSTRAINT_KEYWORDS = [
  "properties",
  "items",
  "required",
  "enum",
  "const",
  "oneOf",
  "anyOf",
  "allOf",
  "$ref",
  "prefixItems",
];

const isTypeName = (value: unknown): boolean => typeof value === "string" && TYPE_NAMES.has(value);

/**
 * Is this a type name or a list of type names? Nested lists are not followed, since a stranger could nest them very
 * deep.
 */
const isType = (value: unknown): boolean =>
  Array.isArray(value) ? value.length > 0 && value.every(isTypeName) : isTypeName(value);

const isConstraint = (name: string, value: unknown): boolean =>
  name === "$ref" ? typeof value === "string" : name === "const" ? true : typeof value === "object" && value !== null;

/**
 * Is this a JSON Schema that constrains something? The test is strict, since an answer must never be checked against
 * example values or free text. `required: true` (a field's own flag) is no constraint.
 */
function isSchema(value: unknown): boolean {
  if (!isObject(value)) return false;
  if ("type" in value && !isType(value.type)) return false;
  const hasConstraint = CONSTRAINT_KEYWORDS.some(
    (name) => Object.hasOwn(value, name) && isConstraint(name, value[name]),
  );
  if (!hasConstraint) return false;
  return (
    "type" in value ||
    "properties" in value ||
    "$schema" in value ||
    CONSTRAINT_KEYWORDS.slice(5).some((n) => n in value)
  );
}

/**
 * Converts the field map of x402 version 1, `{"count": {"type": "number", "required": true}, ..}`, to a schema of an
 * object; undefined when the value is no field map. A field's own `required: true` moves to the schema's list.
 */
function fieldsToSchema(value: unknown): unknown {
  if (!isObject(value)) return undefined;
  const fields = Object.entries(value);
  if (fields.length === 0 || fields.length > 64) return undefined;
  if (!fields.every(([, field]) => isObject(field) && isType(field.type))) return undefined;
  const required = fields
    .filter(([, field]) => (field as { required?: unknown }).required === true)
    .map(([name]) => name);
  const properties = Object.fromEntries(
    fields.map(([name, field]) => {
      const { required: requiredMember, ...rest } = field as Record<string, unknown>;
      return [name, Array.isArray(requiredMember) ? { ...rest, required: requiredMember } : rest];
    }),
  );
  return { type: "object", properties, ...(required.length ? { required } : {}) };
}
