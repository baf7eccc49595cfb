import { Ajv2020 } from "ajv/dist/2020.js";
import { z } from "zod";
import { BODIES, type RecordType } from "../record/bodies.ts";
import { ENVELOPE_VERSION, type Envelope } from "../record/envelope.ts";
import { isId } from "../record/ids.ts";

/** Says yes only to what a zod schema takes as it is; no means that zod has to be asked. */
export type Validate = (value: unknown) => boolean;

/** What the translation keeps whole (`oneOf` is a union told apart by a constant). Another keyword may mean less in JSON Schema than in zod: then zod does it all. */
const KEYWORDS = new Set(
  "$schema type properties required additionalProperties propertyNames items anyOf oneOf enum pattern minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems const".split(
    " ",
  ),
);
/** Checks that a JSON Schema says nothing of: code of ours, and those that change the value. */
const UNSAYABLE = new Set(["custom", "overwrite"]);

/** Lengths in characters and patterns without the u flag, as zod takes them; a test holds both against zod. */
const compiler = new Ajv2020({ unicodeRegExp: false, allowUnionTypes: true, validateSchema: false });

/**
 * A zod schema compiled to a function that is an order of magnitude quicker, or null where the translation would lose
 * something: a refinement, a transform, a default. zod stays what decides and what words the reason.
 */
export function compile(schema: z.ZodType): Validate | null {
  const json = translated(schema);
  return json && (compiler.compile(json) as Validate);
}

/** What a zod schema says as a JSON Schema; null where that cannot say all of it. */
export function translated(schema: z.ZodType): object | null {
  let whole = true;
  try {
    const json = z.toJSONSchema(schema, {
      override: ({ zodSchema, jsonSchema }) => {
        const { checks = [] } = zodSchema._zod.def as { checks?: { _zod: { def: { check: string } } }[] };
        if (checks.some(({ _zod }) => UNSAYABLE.has(_zod.def.check))) whole = false;
        if (Object.keys(jsonSchema).some((keyword) => !KEYWORDS.has(keyword))) whole = false;
        // What is no schema keyword above but a member's name must not be one of every object's own.
        if (Object.keys(jsonSchema.properties ?? {}).some((name) => name in Object.prototype)) whole = false;
      },
    });
    return whole ? json : null;
  } catch {
    // A transform, a date, a bigint: nothing that JSON Schema has a word for.
    return null;
  }
}

const validators = new Map<string, Validate | null>();

/** Compiled when the first body of the type comes: all of them together are a quarter of a second of CPU. */
function validatorOf(type: string): Validate | null {
  const known = validators.get(type);
  if (known !== undefined || !Object.hasOwn(BODIES, type)) return known ?? null;
  const validate = compile(BODIES[type as RecordType]);
  validators.set(type, validate);
  return validate;
}

const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;
const isText = (value: unknown, max: number): value is string => typeof value === "string" && value.length <= max;

/**
 * Is this parsed value an envelope of today's version that {@link readEnvelope} takes, with nothing changed in it? False
 * decides nothing: it also stands for all that is rare (older versions, types without a compiled schema).
 */
export function isValid(value: unknown): value is Envelope<RecordType> {
  if (typeof value !== "object" || value === null) return false;
  const { v, type, event_id, cap, key, observed_at, producer, body } = value as Record<string, unknown>;
  return (
    v === ENVELOPE_VERSION &&
    isText(event_id, 64) &&
    isId("rec", event_id) &&
    (cap === undefined || (isText(cap, 64) && isId("cap", cap))) &&
    isText(key, 512) &&
    key !== "" &&
    isText(observed_at, 24) &&
    TIME.test(observed_at) &&
    isText(producer, 120) &&
    typeof type === "string" &&
    validatorOf(type)?.(body) === true
  );
}

/** Is there a compiled schema for bodies of this type? */
export const isCompiled = (type: string): boolean => validatorOf(type) !== null;
