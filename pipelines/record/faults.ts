import type { z } from "zod";
import { canonicalText } from "../../infra/canonical-text.ts";

/** A fault at one place of a value. */
export interface SchemaFault {
  path: PropertyKey[];
  detail: string;
}

/** Largest number of faults that are reported for one value. */
const MAX_FAULTS = 20;
/** Longest member name in a report, characters. A stranger may choose the name. */
const MAX_NAME_CHARS = 100;

const TYPE_WORDS: Record<string, string> = {
  ...{ string: "a string", number: "a number", int: "a whole number", boolean: "true or false" },
  ...{ array: "an array", object: "an object", record: "an object" },
};
const UNIT_WORDS: Record<string, string> = { string: " characters", array: " items" };

/**
 * Describes a fault as the end of a sentence that begins with its place, such as "is missing". zod's own texts are
 * written for the author of the schema, not for a client.
 */
function describeIssue(issue: z.core.$ZodIssue): string {
  // zod's own messages begin with these words. Any other message comes from our schema and is returned unchanged.
  if (!/^(?:Invalid|Too) /.test(issue.message)) return issue.message;
  switch (issue.code) {
    case "invalid_type":
      if (issue.message.endsWith("received undefined")) return "is missing";
      return `must be ${TYPE_WORDS[issue.expected] ?? issue.expected}`;
    case "invalid_value":
      return `must be ${issue.values.length > 1 ? "one of " : ""}${issue.values.map(String).join(", ")}`;
    case "too_small":
      return `must ${UNIT_WORDS[issue.origin] ? "have" : "be"} at least ${issue.minimum}${UNIT_WORDS[issue.origin] ?? ""}`;
    case "too_big":
      return `must ${UNIT_WORDS[issue.origin] ? "have" : "be"} at most ${issue.maximum}${UNIT_WORDS[issue.origin] ?? ""}`;
    case "invalid_union":
      return "has none of the forms that are accepted here";
    case "invalid_format":
      return "does not have the right form";
    default:
      return issue.message;
  }
}

/**
 * Converts the issues of a zod error to faults. For members that a strict object does not accept, zod reports one issue
 * for the object; here each such member gets its own fault.
 */
export function faultsOf(error: z.ZodError): SchemaFault[] {
  const faults = error.issues.slice(0, MAX_FAULTS).flatMap((issue): SchemaFault[] => {
    if (issue.code !== "unrecognized_keys") return [{ path: issue.path, detail: describeIssue(issue) }];
    return issue.keys.slice(0, MAX_FAULTS).map((name) => {
      return { path: [...issue.path, name.slice(0, MAX_NAME_CHARS)], detail: "is not a member that is accepted here" };
    });
  });
  return faults.slice(0, MAX_FAULTS);
}

/**
 * Formats a place as a JSON pointer (RFC 6901). The pointer to the whole value is `/` and not "", since clients rely
 * on that older form.
 */
export const pointerOf = (path: readonly PropertyKey[]): string =>
  `/${path.map((part) => String(part).replaceAll("~", "~0").replaceAll("/", "~1")).join("/")}`;

/** Largest number of members of a path that {@link findInexact} returns; the rest is cut off. */
const MAX_PATH = 8;

/**
 * Finds the first part of a parsed JSON value that would be written as another value than was read, or has no RFC 8785
 * form: an integer past 2^53 - 1, a number that is too large for JavaScript, a lone surrogate, nesting past 64 levels.
 */
export function findInexact(value: unknown): SchemaFault | null {
  try {
    canonicalText(value, { published: true });
    return null;
  } catch (error) {
    const [, says = "it is no JSON", at = ""] = /^not canonical: (.*) at \/(.*)$/s.exec((error as Error).message) ?? [];
    const path = at === "" ? [] : at.split("/").slice(0, MAX_PATH);
    return { path: path.map((name) => name.slice(0, MAX_NAME_CHARS)), detail: says.slice(0, 200) };
  }
}

/**
 * Returns the end of a sentence about a part of a request's input that is refused, since another value would be sent.
 */
export const cannotBeSent = ({ detail }: SchemaFault): string => `cannot be sent as it is: ${detail}`;
