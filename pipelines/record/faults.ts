import type { z } from "zod";

/** What is wrong with one place of a value. */
export interface SchemaFault {
  path: PropertyKey[];
  detail: string;
}

/** Most faults that are reported of one value, and most characters of a member's name: both come from a stranger. */
const MAX_FAULTS = 20;
const MAX_NAME = 100;

const TYPES: Record<string, string> = {
  ...{ string: "a string", number: "a number", int: "a whole number", boolean: "true or false" },
  ...{ array: "an array", object: "an object", record: "an object" },
};
const UNITS: Record<string, string> = { string: " characters", array: " items" };

/** A fault as the end of a sentence that begins with its place. zod's own texts are for the author of the schema. */
function inWords(issue: z.core.$ZodIssue): string {
  // A message that does not begin so was written in the schema and is kept.
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
 * The faults that a schema found, place by place. A member that a strict object does not accept has a fault of its own;
 * zod reports one for the object that holds them.
 */
export function faultsOf(error: z.ZodError): SchemaFault[] {
  const faults = error.issues.slice(0, MAX_FAULTS).flatMap((issue): SchemaFault[] => {
    if (issue.code !== "unrecognized_keys") return [{ path: issue.path, detail: inWords(issue) }];
    return issue.keys.slice(0, MAX_FAULTS).map((name) => {
      return { path: [...issue.path, name.slice(0, MAX_NAME)], detail: "is not a member that is accepted here" };
    });
  });
  return faults.slice(0, MAX_FAULTS);
}

/** A place as a JSON pointer (RFC 6901), except that the whole value is `/`, as it always was here. */
export const pointerOf = (path: readonly PropertyKey[]): string =>
  `/${path.map((part) => String(part).replaceAll("~", "~0").replaceAll("/", "~1")).join("/")}`;
