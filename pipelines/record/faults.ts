import type { z } from "zod";

/** What is wrong at one place of a value. */
export interface SchemaFault {
  path: PropertyKey[];
  detail: string;
}

/**
 * Most faults that are reported for one value, and most characters of a member's name. Both are bounded because they
 * come from strangers.
 */
const MAX_FAULTS = 20;
const MAX_NAME = 100;

const TYPES: Record<string, string> = {
  ...{ string: "a string", number: "a number", int: "a whole number", boolean: "true or false" },
  ...{ array: "an array", object: "an object", record: "an object" },
};
const UNITS: Record<string, string> = { string: " characters", array: " items" };

/**
 * Describes a fault as the end of a sentence that begins with its place. zod's own texts are written for the author of
 * the schema.
 */
function describeIssue(issue: z.core.$ZodIssue): string {
  // Messages of zod begin with these words. Any other message was written in the schema and is kept.
  if (!/^(?:Invalid|Too) /.test(issue.message)) return issue.message;
  switch (issue.code) {
    case "invalid_type":
      if (issue.message.endsWith("received undefined")) return "is missing";
      return `must be ${TYPES[issue.expected] ?? issue.expected}`;
    case "invalid_value":
      return `must be ${issue.values.length > 1 ? "one of " : ""}${issue.values.map(String).join(", ")}`;
    case "too_small":
      return `must ${UNITS[issue.origin] ? "have" : "be"} at least ${issue.minimum}${UNITS[issue.origin] ?? ""}`;
    case "too_big":
      return `must ${UNITS[issue.origin] ? "have" : "be"} at most ${issue.maximum}${UNITS[issue.origin] ?? ""}`;
    case "invalid_union":
      return "has none of the forms that are accepted here";
    case "invalid_format":
      return "does not have the right form";
    default:
      return issue.message;
  }
}

/**
 * The faults that a schema found, one for each place. Each member that a strict object does not accept gets a fault of
 * its own, where zod reports one fault for the whole object.
 */
export function faultsOf(error: z.ZodError): SchemaFault[] {
  const faults = error.issues.slice(0, MAX_FAULTS).flatMap((issue): SchemaFault[] => {
    if (issue.code !== "unrecognized_keys") return [{ path: issue.path, detail: describeIssue(issue) }];
    return issue.keys.slice(0, MAX_FAULTS).map((name) => {
      return { path: [...issue.path, name.slice(0, MAX_NAME)], detail: "is not a member that is accepted here" };
    });
  });
  return faults.slice(0, MAX_FAULTS);
}

/** A place as a JSON pointer (RFC 6901), except that the whole value is `/`: clients rely on this older form. */
export const pointerOf = (path: readonly PropertyKey[]): string =>
  `/${path.map((part) => String(part).replaceAll("~", "~0").replaceAll("/", "~1")).join("/")}`;
