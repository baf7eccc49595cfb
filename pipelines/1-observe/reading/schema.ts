import vm from "node:vm";
import { Ajv, type ValidateFunction } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { processorMs } from "../../../infra/bounded-thread.ts";
import { hashOf, isObject } from "../json.ts";

/** The error for a stranger's schema or pattern that was stopped at its time limit. */
export class OutOfTime extends Error {
  constructor(readonly ms: number) {
    super(`not done after ${ms} ms`);
    this.name = "OutOfTime";
  }
}

const workContext = vm.createContext({ work: null });
const workScript = new vm.Script("work()");

/**
 * Runs synchronous work under a hard limit of `ms` by the clock. V8 stops the work at the limit, even inside a
 * backtracking pattern or a schema that grows exponentially. The call costs about 0.05 ms. It is no sandbox.
 * @throws OutOfTime, or what the work throws
 */
export function runWithLimit<T>(ms: number, work: () => T): T {
  workContext.work = work;
  try {
    return workScript.runInContext(workContext, { timeout: ms }) as T;
  } catch (error) {
    if ((error as { code?: unknown }).code === "ERR_SCRIPT_EXECUTION_TIMEOUT") throw new OutOfTime(ms);
    throw error;
  } finally {
    workContext.work = null;
  }
}

/** The last attempt of {@link runWithCpuLimit} gets this many times the limit of the first. */
const LAST_LIMIT_FACTOR = 8;

/**
 * Runs deterministic work under a limit of `ms` of processor time, where {@link runWithLimit} limits time by the clock.
 * Work that was stopped is tried again with twice the time, since the machine may have been busy, until a repeated
 * attempt had `ms` of the processor. Work that does not get that within 15 times `ms` by the clock is stopped for good.
 * @throws OutOfTime, or what the work throws
 */
export function runWithCpuLimit<T>(ms: number, work: () => T): T {
  for (let limit = ms; ; limit *= 2) {
    const cpuMsBefore = limit === ms ? Number.NaN : processorMs("own");
    try {
      return runWithLimit(limit, work);
    } catch (error) {
      if (!(error instanceof OutOfTime) || limit >= LAST_LIMIT_FACTOR * ms || processorMs("own") - cpuMsBefore >= ms)
        throw error;
    }
  }
}

/** Compiling a schema is stopped after this processor time, ms, so that one stranger's schema does not delay others. */
const COMPILE_TIMEOUT_MS = 250;
/** Validating one answer is stopped after this processor time, ms. */
const VALIDATE_TIMEOUT_MS = 250;
/** Largest number of values of one schema. A larger schema is not used. */
const MAX_NODES = 5_000;
/** Largest number of compiled schemas that are kept. */
const MAX_COMPILED = 256;

/** Result of checking an answer against an advertised schema; null when the schema cannot be used. */
export type SchemaVerdict = { ok: boolean; says?: string } | null;

/**
 * Keywords that are removed from schemas: with them a sub-schema could choose another draft, or have the id of another
 * seller's schema.
 */
const REMOVED_KEYWORDS = new Set(["$schema", "$id", "id", "$async"]);

/** Keywords whose value is data, so that nothing inside it is a keyword. */
const DATA_KEYWORDS = new Set(["const", "enum", "default", "examples", "example"]);

/**
 * Copies a schema without the keywords of {@link REMOVED_KEYWORDS}. null when the schema is too big, or when a `$ref`
 * points outside the schema, since nothing that a stranger names is fetched.
 */
function copyWithoutKeywords(schema: unknown): unknown {
  let nodes = 0;
  const copy = (value: unknown, isNameMap: boolean): unknown => {
    if (++nodes > MAX_NODES) throw new RangeError("too big");
    if (Array.isArray(value)) return value.map((item) => copy(item, false));
    if (!isObject(value)) return value;
    const keptEntries = Object.entries(value).filter(([name, item]) => {
      if (name === "$ref" && !isNameMap && !(typeof item === "string" && /^#(?:$|\/)/.test(item))) {
        throw new RangeError("a $ref that leads outside");
      }
      // The members of `properties` are names, not keywords.
      return isNameMap || !(REMOVED_KEYWORDS.has(name) && typeof item !== "object");
    });
    return Object.fromEntries(
      keptEntries.map(([name, item]) => {
        const isData = !isNameMap && DATA_KEYWORDS.has(name);
        return [name, isData ? item : copy(item, name === "properties" && !isNameMap)];
      }),
    );
  };
  try {
    return copy(schema, false);
  } catch {
    return null;
  }
}

const MODERN_DRAFTS = /2020-12|2019-09/;
const MODERN_KEYWORDS = /"(?:prefixItems|\$defs|unevaluatedProperties|dependentSchemas|dependentRequired)":/;

function compile(schema: unknown): ValidateFunction | null {
  const cleanedSchema = copyWithoutKeywords(schema);
  if (cleanedSchema === null || typeof cleanedSchema !== "object") return null;
  const draft = isObject(schema) ? String(schema.$schema ?? "") : "";
  const Engine = MODERN_DRAFTS.test(draft) || MODERN_KEYWORDS.test(JSON.stringify(cleanedSchema)) ? Ajv2020 : Ajv;
  try {
    return runWithCpuLimit(COMPILE_TIMEOUT_MS, () => {
      // Each schema has its own instance, so that sellers' schemas cannot refer to each other.
      const ajv = new Engine({ strict: false, validateFormats: true, logger: false, allErrors: false });
      formats.default(ajv);
      return ajv.compile(cleanedSchema as object);
    });
  } catch (error) {
    if (error instanceof OutOfTime) throw error;
    return null;
  }
}

/**
 * Checks answers against the schemas that strangers declare (JSON Schema draft 7, 2019-09 or 2020-12, as the schema
 * declares). Work is bounded in size and time. A schema that cannot be compiled, or whose work was stopped, counts as
 * not declared.
 */
export class Schemas {
  readonly #compiled = new BoundedMap<string, ValidateFunction | null>(MAX_COMPILED);

  /** Can answers be checked against this schema? */
  isUsable(schema: unknown): boolean {
    const key = hashOf(schema);
    if (key === null) return false;
    try {
      return this.#validatorOf(key, schema) !== null;
    } catch {
      this.#compiled.set(key, null);
      return false;
    }
  }

  #validatorOf(key: string, schema: unknown): ValidateFunction | null {
    const compiled = this.#compiled.get(key);
    const validate = compiled === undefined ? compile(schema) : compiled;
    this.#compiled.set(key, validate);
    return validate;
  }

  /** Checks a value against a schema. Returns null if the schema cannot be used. */
  check(schema: unknown, value: unknown): SchemaVerdict {
    const key = hashOf(schema);
    if (key === null) return null;
    try {
      const validate = this.#validatorOf(key, schema);
      if (validate === null) return null;
      if (runWithCpuLimit(VALIDATE_TIMEOUT_MS, () => validate(value))) return { ok: true };
      const error = validate.errors?.[0];
      return { ok: false, says: `${error?.instancePath || "/"} ${error?.message ?? "does not fit"}` };
    } catch {
      this.#compiled.set(key, null);
      return null;
    }
  }
}
