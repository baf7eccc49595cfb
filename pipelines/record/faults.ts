import type { z } from "zod";

/** What is wrong with one place of a value. */
export interface SchemaFault {
  path: PropertyKey[];
  detail: string;
}

/** Faults that are told of one value, and characters of a member's name in them: both are a stranger's. */
const MAX_FAULTS = 20;
const MAX_NAME = 100;

/**
 * What a schema finds wrong, place by place. A member that a strict object does not take is itself the place, one fault each;
 * zod says it once, of the object that holds them.
 */
export function faultsOf(error: z.ZodError): SchemaFault[] {
  const faults = error.issues.slice(0, MAX_FAULTS).flatMap((issue): SchemaFault[] => {
    if (issue.code !== "unrecognized_keys") return [{ path: issue.path, detail: issue.message }];
    return issue.keys.slice(0, MAX_FAULTS).map((name) => {
      return { path: [...issue.path, name.slice(0, MAX_NAME)], detail: "is not a member that is accepted here" };
    });
  });
  return faults.slice(0, MAX_FAULTS);
}

/** A place as a JSON pointer (RFC 6901). The whole value is `/`, as it always was here. */
export const pointerOf = (path: readonly PropertyKey[]): string =>
  `/${path.map((part) => String(part).replaceAll("~", "~0").replaceAll("/", "~1")).join("/")}`;
