import type { Leaf } from "../record/leaf.ts";
import { Unproven } from "./errors.ts";

/** The value, or undefined when the bytes are no JSON. */
export function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8"));
  } catch {
    return undefined;
  }
}

/** A leaf of the log as its kind must be. @throws Unproven */
export function parsedLeaf<T>(
  schema: { safeParse(value: unknown): { data?: T; error?: Error } },
  leaf: Pick<Leaf, "index" | "kind">,
): T {
  const { data, error } = schema.safeParse(leaf);
  if (data) return data;
  throw new Unproven(`leaf ${leaf.index}`, `a leaf of kind ${leaf.kind}`, String(error?.message).slice(0, 200));
}
