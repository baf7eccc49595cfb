import { z } from "zod";
import { sampleValue } from "../../pipelines/1-observe/probe/synthetic.ts";

type Json = Record<string, unknown>;

/** Method, input and output of a call that is sold. Catalogues read them from the call's 402. */
export interface CallDescription {
  method: "GET" | "POST";
  /** Query, or JSON body of a POST: a schema, and an example that is valid against it. */
  input: { example: Json; schema: Json };
  /** JSON Schema of a good answer; null if it is not known. */
  output: Json | null;
}

const SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema";
/** Largest number of levels of a schema in a 402. */
const MAX_LEVELS = 3;
/** Longest schema in a 402, characters. It is sent in a header, and the client sends it back in one. */
const MAX_OUTLINE_LENGTH = 1_500;
/** Largest number of properties that are kept of one object schema, and of values of an `enum` that is kept. */
const MAX_MEMBERS = 24;
const KEPT_KEYWORDS = [
  "type",
  "const",
  "format",
  "minimum",
  "maximum",
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
] as const;

/**
 * Returns the upper levels of a JSON Schema: types, properties, required properties, bounds and short lists of values.
 * The rest, such as patterns, is left out, so the result accepts more values than the schema, never fewer.
 */
export function outlineOf(schema: unknown): Json {
  for (let levels = MAX_LEVELS; levels > 0; levels--) {
    const outline = upperLevels(schema, levels);
    if (JSON.stringify(outline).length <= MAX_OUTLINE_LENGTH) return outline;
  }
  return {};
}

function upperLevels(schema: unknown, levels: number): Json {
  if (typeof schema !== "object" || schema === null || levels === 0) return {};
  const source = schema as Json;
  const keptKeywords = Object.fromEntries(
    KEPT_KEYWORDS.flatMap((name) => (isSmall(source[name]) ? [[name, source[name]]] : [])),
  );
  const { properties, required, items } = source;
  const hasSmallEnum = Array.isArray(source.enum) && source.enum.length <= MAX_MEMBERS && source.enum.every(isSmall);
  const members = typeof properties === "object" && properties !== null ? Object.entries(properties) : [];
  const keptMembers = members.slice(0, MAX_MEMBERS);
  const isKept = (name: unknown): boolean => keptMembers.some(([one]) => one === name);
  return {
    ...keptKeywords,
    ...(hasSmallEnum ? { enum: source.enum } : {}),
    ...(keptMembers.length > 0
      ? { properties: Object.fromEntries(keptMembers.map(([name, member]) => [name, upperLevels(member, levels - 1)])) }
      : {}),
    ...(Array.isArray(required) && required.some(isKept) ? { required: required.filter(isKept) } : {}),
    ...(typeof items === "object" && items !== null && levels > 1 ? { items: upperLevels(items, levels - 1) } : {}),
  };
}

const isSmall = (value: unknown): boolean =>
  typeof value === "number" || typeof value === "boolean" || (typeof value === "string" && value.length <= 100);

/** Returns outlines of the request and the answer of one of our operations. */
export const outlinesOf = (body: z.ZodType, answer: z.ZodType): { input: Json; output: Json } => ({
  input: outlineOf(z.toJSONSchema(body, { io: "input", unrepresentable: "any" })),
  output: outlineOf(z.toJSONSchema(answer, { unrepresentable: "any" })),
});

/** Returns a schema for each member of an input: with the type of a text, and without a type for other values. */
const typesOf = (sent: Json): Record<string, Json> =>
  Object.fromEntries(
    Object.entries(sent).map(([name, value]) => [name, typeof value === "string" ? { type: "string" } : {}]),
  );

/**
 * Returns the input of a seller's call for our 402: the outline of the seller's schema, with an example that is the
 * sent input, or one made from the schema. If neither is valid, it returns a schema of the sent members.
 * @param sent members of this request
 * @param declared JSON Schema that the seller declares; undefined: none
 * @param isValid reports whether a value is valid against a schema
 */
export async function describeInput(
  sent: Json,
  declared: unknown,
  isValid: (schema: Json, value: Json) => Promise<boolean>,
): Promise<CallDescription["input"]> {
  const outline = outlineOf(declared);
  const declaredMembers = typeof outline.properties === "object" ? (outline.properties as Json) : {};
  if (Object.keys(declaredMembers).length > 0 && (outline.type ?? "object") === "object") {
    const schema = { ...outline, properties: { ...typesOf(sent), ...declaredMembers } };
    for (const example of [sent, { ...(sampleValue(outline) as Json), ...sent }]) {
      if (JSON.stringify(example).length <= MAX_OUTLINE_LENGTH && (await isValid(schema, example)))
        return { example, schema };
    }
  }
  return { example: sent, schema: { properties: typesOf(sent) } };
}

/** Returns x402's extension `bazaar`: `info` is an example, `schema` its JSON Schema. */
function bazaar({ method, input, output }: CallDescription): { info: Json; schema: Json } {
  const isPost = method === "POST";
  const name = isPost ? "body" : "queryParams";
  const bodyTypeField = isPost ? { bodyType: "json" } : {};
  const requiredFields = ["type", "method", ...(isPost ? ["bodyType", "body"] : [])];
  return {
    info: {
      input: { type: "http", method, ...bodyTypeField, [name]: input.example },
      output: { type: "json" },
    },
    schema: {
      $schema: SCHEMA_DIALECT,
      type: "object",
      properties: {
        input: {
          type: "object",
          properties: {
            type: { type: "string", const: "http" },
            method: { type: "string", enum: [method] },
            ...(isPost ? { bodyType: { type: "string", enum: ["json"] } } : {}),
            [name]: { type: "object", ...input.schema },
          },
          required: requiredFields,
          additionalProperties: false,
        },
        output: {
          type: "object",
          properties: { type: { type: "string" }, example: output ?? {} },
          required: ["type"],
        },
      },
      required: ["input"],
    },
  };
}

/** Form of the identifier that a client may give its payment. */
export const IDENTIFIER = { min: 16, max: 128, pattern: "^[a-zA-Z0-9_-]+$" } as const;

/** x402's extension `payment-identifier`: a client may give a purchase an identifier, so that it buys only once. */
const paymentIdentifier = {
  info: { required: false },
  schema: {
    $schema: SCHEMA_DIALECT,
    type: "object",
    properties: {
      required: { type: "boolean" },
      id: { type: "string", minLength: IDENTIFIER.min, maxLength: IDENTIFIER.max, pattern: IDENTIFIER.pattern },
    },
    required: ["required"],
  },
};

/** Returns the extensions of our 402. */
export const extensionsOf = (described: CallDescription | undefined): Record<string, { info: Json; schema: Json }> => ({
  ...(described ? { bazaar: bazaar(described) } : {}),
  "payment-identifier": paymentIdentifier,
});

/** Returns `outputSchema`, in which x402 version 1 describes input and output. */
export const outputSchemaOf = ({ method, input, output }: CallDescription): Json => ({
  input: {
    ...{ type: "http", method, discoverable: true },
    ...(method === "POST" ? { bodyType: "json", bodyFields: input.schema } : { queryParams: input.schema }),
  },
  output: output ?? {},
});
