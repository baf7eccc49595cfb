import { isObject } from "./json.ts";

const TYPES = new Set(["object", "array", "string", "number", "integer", "boolean", "null"]);
/** Keywords that constrain something. A bare `{"type":"object"}` is what libraries write when nobody said anything. */
const CONSTRAINTS = [
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

const isType = (value: unknown): boolean =>
  typeof value === "string" ? TYPES.has(value) : Array.isArray(value) && value.length > 0 && value.every(isType);

const constrains = (name: string, value: unknown): boolean =>
  name === "$ref" ? typeof value === "string" : name === "const" ? true : typeof value === "object" && value !== null;

/**
 * Does this read as a JSON Schema that says something? Example values and free text do not: an answer must never be
 * held against what was no schema. `required: true` (a field's own flag) is no constraint.
 */
export function isSchema(value: unknown): boolean {
  if (!isObject(value)) return false;
  if ("type" in value && !isType(value.type)) return false;
  const says = CONSTRAINTS.some((name) => Object.hasOwn(value, name) && constrains(name, value[name]));
  if (!says) return false;
  return "type" in value || "properties" in value || "$schema" in value || CONSTRAINTS.slice(5).some((n) => n in value);
}

/**
 * `{"count": {"type": "number", "required": true}, ..}`: the field map of version 1, as an object schema; undefined
 * when it is none. A field's own `required: true` becomes the schema's list.
 */
export function fieldsToSchema(value: unknown): unknown {
  if (!isObject(value)) return undefined;
  const fields = Object.entries(value);
  if (fields.length === 0 || fields.length > 64) return undefined;
  if (!fields.every(([, field]) => isObject(field) && isType(field.type))) return undefined;
  const required = fields
    .filter(([, field]) => (field as { required?: unknown }).required === true)
    .map(([name]) => name);
  const properties = Object.fromEntries(
    fields.map(([name, field]) => {
      const { required: own, ...rest } = field as Record<string, unknown>;
      return [name, Array.isArray(own) ? { ...rest, required: own } : rest];
    }),
  );
  return { type: "object", properties, ...(required.length ? { required } : {}) };
}
