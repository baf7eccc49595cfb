import { query as selectNodes } from "jsonpath-rfc9535";
import parsePath from "jsonpath-rfc9535/parser";
import { RE2JS } from "re2js";
import { canonicalText, MAX_INTEGER } from "../../../infra/canonical.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { BuyersExpectation, ExpectationFault } from "../../record/expectation.ts";
import { findInexact, pointerOf } from "../../record/faults.ts";
import { clean, isObject, MAX_VALUES_LONG_TEXT, parseJson } from "../json.ts";
import { OutOfTime, runWithCpuLimit, type Schemas } from "./schema.ts";

type Check = BodyOf<"paid.result">["checks"][number];

/**
 * Most processor time for evaluating one path or regular expression on one answer, ms. Both take linear time. An
 * evaluation that takes longer is stopped.
 */
const CHECK_CPU_MS = 1_000;
/** Longest part of an answer that an expression is tried on, bytes. */
const MAX_TEXT_BYTES = 500_000;
/** Largest number of `..` in a path, since each further `..` multiplies the work by the answer's depth. */
const MAX_DESCENTS = 1;

/** Functions that a path may use. match() and search() are refused, since their ECMAScript expressions backtrack. */
const ALLOWED_FUNCTIONS = new Set(["length", "count", "value"]);

/** Returns why a JSONPath cannot be used; null if it can. */
function whyPathUnusable(path: string): string | null {
  let descents = 0;
  let refusedFunction: string | null = null;
  let inexactNumber: number | null = null;
  try {
    JSON.stringify(parsePath(path), (_, node: unknown) => {
      if (typeof node === "number" && Math.abs(node) > MAX_INTEGER) inexactNumber = node;
      if (isObject(node) && node.type === "DescendantSegment") descents += 1;
      if (isObject(node) && node.type === "FunctionExpr" && !ALLOWED_FUNCTIONS.has(String(node.name)))
        refusedFunction = `${node.name}`;
      return node;
    });
  } catch (error) {
    return clean(`is no JSONPath (RFC 9535): ${(error as Error).message}`, 300);
  }
  if (refusedFunction !== null)
    return `has the function ${refusedFunction}(); there are length, count and value, and regex beside it`;
  if (inexactNumber !== null) return `has a number past 2^53 - 1 (${inexactNumber}), which cannot be compared exactly`;
  return descents > MAX_DESCENTS ? `has more than ${MAX_DESCENTS} ".."` : null;
}

/** Returns why a regular expression cannot be used; null if it can. */
function whyRegexUnusable(regex: string): string | null {
  try {
    RE2JS.compile(regex);
    return null;
  } catch (error) {
    return clean(`is no expression of RE2: ${(error as Error).message}`, 300);
  }
}

/**
 * Finds the members of a buyer's expectation that cannot be evaluated, so that the expectation is refused before
 * anything is paid; empty if all can be evaluated.
 */
export function findExpectationFaults(expect: BuyersExpectation, schemas: Schemas): ExpectationFault[] {
  const { schema, jsonpath, regex } = expect;
  const inexact = findInexact(expect);
  const faults: [string, string | null][] = [
    [
      inexact === null || inexact.path.length === 0 ? "" : pointerOf(inexact.path),
      inexact && `cannot be compared exactly: ${inexact.detail}`,
    ],
    ["/schema", schema === undefined || schemas.isUsable(schema) ? null : "is no JSON Schema that can be used"],
    ["/jsonpath/path", jsonpath ? whyPathUnusable(jsonpath.path) : null],
    ["/regex", regex === undefined ? null : whyRegexUnusable(regex)],
  ];
  return faults.flatMap(([pointer, detail]) => (detail === null ? [] : [{ pointer, detail }]));
}

/**
 * Runs one check within {@link CHECK_CPU_MS}.
 * @param says the text for a failed check, which never contains values of the answer
 */
function runCheck(name: string, says: string, work: () => boolean): Check {
  try {
    return runWithCpuLimit(CHECK_CPU_MS, work) ? { name, ok: true } : { name, ok: false, says };
  } catch (error) {
    return { name, ok: false, says: error instanceof OutOfTime ? "not done within its time" : "could not be tried" };
  }
}

/**
 * Returns the RFC 8785 text of a part of an answer; null if the part has no such text. Then it equals no value that a
 * buyer can expect.
 */
function textOf(part: unknown): string | null {
  try {
    return canonicalText(part);
  } catch {
    return null;
  }
}

/**
 * Does the path select something, and does each selected value equal `value`? Without `value` any selection passes.
 * Values are equal if their RFC 8785 texts are, in which -0 is 0.
 */
function matchesPath({ path, value }: NonNullable<BuyersExpectation["jsonpath"]>, parsed: unknown): boolean {
  const found = selectNodes(parsed as Parameters<typeof selectNodes>[0], path);
  if (value === undefined) return found.length > 0;
  const expected = canonicalText(value);
  return found.length > 0 && found.every((one) => textOf(one) === expected);
}

/** Checks an answer against its buyer's expectation: one check for each member of the expectation. */
export function checkExpectation(expect: BuyersExpectation, body: Uint8Array, schemas: Schemas): Check[] {
  const { schema, jsonpath, regex, min_length } = expect;
  const parsed = schema === undefined && !jsonpath ? undefined : parseJson(body, MAX_VALUES_LONG_TEXT);
  const checks: Check[] = [];
  if (min_length !== undefined) {
    const ok = body.length >= min_length;
    checks.push({ name: "expect_min_length", ok, ...(ok ? {} : { says: `${body.length} bytes` }) });
  }
  if (schema !== undefined) {
    const verdict = parsed === undefined ? { ok: false, says: "not JSON" } : schemas.check(schema, parsed);
    const says = verdict === null ? "could not be tried" : verdict.says;
    checks.push({ name: "expect_schema", ok: verdict?.ok ?? false, ...(says ? { says: clean(says, 500) } : {}) });
  }
  if (jsonpath) {
    const says =
      jsonpath.value === undefined ? "selects nothing" : "does not select the value, or another one beside it";
    checks.push(
      parsed === undefined
        ? { name: "expect_jsonpath", ok: false, says: "not JSON" }
        : runCheck("expect_jsonpath", says, () => matchesPath(jsonpath, parsed)),
    );
  }
  if (regex !== undefined) {
    const text = Buffer.from(body.subarray(0, MAX_TEXT_BYTES)).toString("utf8");
    checks.push(runCheck("expect_regex", "found nowhere", () => RE2JS.compile(regex).matcher(text).find()));
  }
  return checks;
}
