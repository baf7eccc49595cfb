import { methodOf } from "../declared.ts";
import { isObject } from "../json.ts";

const MAX_VERBS = 5;

/** An item that names several verbs (`methods: [..]`, "GET, POST") is one item for each; anything else stays as it is. */
export function expand(item: unknown): unknown[] {
  if (!isObject(item)) return [item];
  const { method, methods } = item;
  const named =
    Array.isArray(methods) && method === undefined
      ? methods
      : typeof method === "string"
        ? method.split(/[\s,|/]+/)
        : [];
  const verbs = named.filter((one) => methodOf(one) !== null).slice(0, MAX_VERBS);
  return named.length > 1 && verbs.length > 1
    ? verbs.map((verb) => ({ ...item, methods: undefined, method: verb }))
    : [item];
}
