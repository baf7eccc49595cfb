import vm from "node:vm";
import { Ajv, type ValidateFunction } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { processorMs } from "../../../infra/bounded-thread.ts";
import { hashOf, isObject } from "../json.ts";

/** A stranger's schema or pattern that would not come to an end. */
export class OutOfTime extends Error {
  constructor(readonly ms: number) {
    super(`not done after ${ms} ms`);
    this.name = "OutOfTime";
  }
}

const context = vm.createContext({ work: null });
const script = new vm.Script("work()");

/**
 * Runs synchronous work under a hard limit of `ms`: a pattern that backtracks for ever and a schema that doubles at
 * every level are cut off by the engine itself, whatever they look like. Costs about 0.05 ms. Not a sandbox.
 * @throws OutOfTime, or what the work throws.
 */
export function timed<T>(ms: number, work: () => T): T {
  context.work = work;
  try {
    return script.runInContext(context, { timeout: ms }) as T;
  } catch (error) {
    if ((error as { code?: unknown }).code === "ERR_SCRIPT_EXECUTION_TIMEOUT") throw new OutOfTime(ms);
    throw error;
  } finally {
    context.work = null;
  }
}

/** The last try of {@link patient} gets so many times the limit of the first. */
const MOST = 8;

/**
 * Runs work that is the same each time under a limit of `ms` of the processor's time: a machine that has much else to do
 * stretches anybody's work. What is cut off is tried again with twice the time, until it had `ms` to itself in one try;
 * what never has, in 15 times `ms` of the clock, is cut off all the same.
 * @throws OutOfTime, or what the work throws.
 */
export function patient<T>(ms: number, work: () => T): T {
  for (let limit = ms; ; limit *= 2) {
    const from = limit === ms ? Number.NaN : processorMs("own");
    try {
      return timed(limit, work);
    } catch (error) {
      if (!(error instanceof OutOfTime) || limit >= MOST * ms || processorMs("own") - from >= ms) throw error;
    }
  }
}

/** Compiling and validating are each cut off after this long of ours: a stranger's schema may not hold up the others. */
const COMPILE_MS = 250;
const VALIDATE_MS = 250;
const MAX_NODES = 5_000;
const MAX_COMPILED = 256;

/** Result of holding an answer against an advertised schema; null when the schema itself cannot be used. */
export type SchemaVerdict = { ok: boolean; says?: string } | null;

/** Keyword names under which a sub-schema may name a draft or an id of its own; both could only confuse two sellers. */
const DROPPED = new Set(["$schema", "$id", "id", "$async"]);

/** Keywords whose value is data: what stands in it is no keyword. */
const DATA = new Set(["const", "enum", "default", "examples", "example"]);

/**
 * A copy without `$schema` and `$id`. Null when it is too big, or when a `$ref` leads anywhere but into the schema
 * itself: nothing is ever fetched on a stranger's word.
 */
function closed(schema: unknown): unknown {
  let nodes = 0;
  const copy = (value: unknown, names: boolean): unknown => {
    if (++nodes > MAX_NODES) throw new RangeError("too big");
    if (Array.isArray(value)) return value.map((item) => copy(item, false));
    if (!isObject(value)) return value;
    const kept = Object.entries(value).filter(([name, item]) => {
      if (name === "$ref" && !names && !(typeof item === "string" && /^#(?:$|\/)/.test(item))) {
        throw new RangeError("a $ref that leads outside");
      }
      // Under `properties` these are names of members, not keywords.
      return names || !(DROPPED.has(name) && typeof item !== "object");
    });
    return Object.fromEntries(
      kept.map(([name, item]) => {
        const data = !names && DATA.has(name);
        return [name, data ? item : copy(item, name === "properties" && !names)];
      }),
    );
  };
  try {
    return copy(schema, false);
  } catch {
    return null;
  }
}

const MODERN = /2020-12|2019-09/;
const NEW_WORDS = /"(?:prefixItems|\$defs|unevaluatedProperties|dependentSchemas|dependentRequired)":/;

function compile(schema: unknown): ValidateFunction | null {
  const safe = closed(schema);
  if (safe === null || typeof safe !== "object") return null;
  const draft = isObject(schema) ? String(schema.$schema ?? "") : "";
  const Engine = MODERN.test(draft) || NEW_WORDS.test(JSON.stringify(safe)) ? Ajv2020 : Ajv;
  try {
    return patient(COMPILE_MS, () => {
      // An instance of its own: nothing one seller declares can be seen by another's schema.
      const ajv = new Engine({ strict: false, validateFormats: true, logger: false, allErrors: false });
      formats.default(ajv);
      return ajv.compile(safe as object);
    });
  } catch (error) {
    if (error instanceof OutOfTime) throw error;
    return null;
  }
}

/**
 * Holds answers against schemas that strangers advertise (JSON Schema draft 7, 2019-09 or 2020-12 by what it says of
 * itself). Bounded in size and time; a schema that cannot be read or does not end counts as not advertised.
 */
export class Schemas {
  readonly #compiled = new BoundedMap<string, ValidateFunction | null>(MAX_COMPILED);

  check(schema: unknown, value: unknown): SchemaVerdict {
    const key = hashOf(schema);
    if (key === null) return null;
    try {
      const known = this.#compiled.get(key);
      const validate = known === undefined ? compile(schema) : known;
      this.#compiled.set(key, validate);
      if (validate === null) return null;
      if (patient(VALIDATE_MS, () => validate(value))) return { ok: true };
      const error = validate.errors?.[0];
      return { ok: false, says: `${error?.instancePath || "/"} ${error?.message ?? "does not fit"}` };
    } catch {
      this.#compiled.set(key, null);
      return null;
    }
  }
}
