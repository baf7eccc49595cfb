import { get, isObject, type JsonObject } from "../json.ts";

const MAX_DEPTH = 6;
const MAX_PROPERTIES = 64;

const SAMPLES_BY_FORMAT: Readonly<Record<string, string>> = {
  date: "2026-01-02",
  "date-time": "2026-01-02T03:04:05Z",
  time: "03:04:05Z",
  email: "someone@example.com",
  uri: "https://example.com/",
  url: "https://example.com/",
  uuid: "123e4567-e89b-42d3-a456-426614174000",
  ipv4: "192.0.2.1",
  hostname: "example.com",
};

function sampleText(schema: JsonObject): string {
  const format =
    typeof schema.format === "string" && Object.hasOwn(SAMPLES_BY_FORMAT, schema.format)
      ? SAMPLES_BY_FORMAT[schema.format]
      : null;
  if (format) return format;
  const minLength = typeof schema.minLength === "number" ? Math.min(Math.max(0, schema.minLength), 1_000) : 0;
  return "example".padEnd(minLength, "x");
}

function sampleNumber(schema: JsonObject): number {
  const { minimum, maximum, exclusiveMinimum } = schema;
  if (typeof minimum === "number") return minimum;
  if (typeof exclusiveMinimum === "number") return exclusiveMinimum + 1;
  return typeof maximum === "number" ? Math.min(1, maximum) : 1;
}

function sampleObject(schema: JsonObject, depth: number): JsonObject {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required.filter((name) => typeof name === "string") : [];
  // Each name is used once. Otherwise names that are repeated at every level would multiply the work at every level.
  const names = [...new Set(required.length > 0 ? (required as string[]) : Object.keys(properties))];
  const limitedNames = names.slice(0, MAX_PROPERTIES);
  return Object.fromEntries(limitedNames.map((name) => [name, sampleValue(get(properties, name), depth + 1)]));
}

/**
 * Makes a value that a JSON Schema seems to allow: its default or example if it has one, else a small usual value. A
 * schema always gives the same value, so that an input that passed before is recognised. The value may be invalid, so a
 * failure with it is excused unless money moved.
 */
export function sampleValue(schema: unknown, depth = 0): unknown {
  if (!isObject(schema) || depth > MAX_DEPTH) return "example";
  for (const statedValue of [
    schema.const,
    schema.default,
    schema.example,
    get(schema.examples, "0"),
    get(schema.enum, "0"),
  ]) {
    if (statedValue !== undefined) return statedValue;
  }
  const choice = get(schema.oneOf, "0") ?? get(schema.anyOf, "0") ?? get(schema.allOf, "0");
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === undefined && choice !== undefined) return sampleValue(choice, depth + 1);
  if (type === "object" || isObject(schema.properties)) return sampleObject(schema, depth);
  if (type === "array") return [sampleValue(schema.items, depth + 1)];
  if (type === "number" || type === "integer") return sampleNumber(schema);
  if (type === "boolean") return true;
  if (type === "null") return null;
  return sampleText(schema);
}
