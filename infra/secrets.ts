import { parseUrl } from "./url.ts";

/**
 * Secrets of this process: passwords and keys of the settings, and the parts of addresses that may be keys. Client libraries
 * put addresses into their errors, and nodes echo a key that they refuse. So log lines, final error messages, and errors of
 * the chain's client, whose messages may enter the record, pass through `redact`.
 */
const kept = new Set<string>();
/** The secrets, longest first, so that a secret is removed before a shorter one that is part of it. */
let longestFirst: string[] = [];

/** Shortest text that is treated as a secret, since shorter ones occur in any line by chance. */
const SHORTEST = 6;
const HIDDEN = "[hidden]";

/** Adds texts that `redact` removes from now on. Null and texts of less than 6 characters are ignored. */
export function addSecrets(...texts: readonly (string | null | undefined)[]): void {
  for (const text of texts) {
    if (!text || text.length < SHORTEST) continue;
    kept.add(text);
    // The form inside a JSON string.
    kept.add(JSON.stringify(text).slice(1, -1));
  }
  longestFirst = [...kept].sort((a, b) => b.length - a.length);
}

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/**
 * Adds the parts of an address that may be keys to the secrets: user and password, the query and its values.
 * @param withPath also the path and its segments, where nodes of chains put keys
 */
export function addAddressSecrets(address: string | null, withPath = false): void {
  const url = address === null ? null : parseUrl(address);
  if (url === null) return;
  const { username, password, pathname, search, searchParams } = url;
  const user = `${decoded(username)}:${decoded(password)}`;
  const parts = [username, password, search.slice(1), ...searchParams.values()];
  if (username || password) parts.push(`${username}:${password}`, user, Buffer.from(user).toString("base64"));
  // Short segments such as `v2` or `rpc` are words, not keys.
  if (withPath)
    parts.push(pathname + search, pathname, ...pathname.split("/").filter((part) => part.length > SHORTEST));
  addSecrets(...parts, ...parts.map(decoded));
}

/** Returns the text with every secret of this process replaced by `[hidden]`. */
export function redact(text: string): string {
  let left = text;
  for (const secret of longestFirst) if (left.includes(secret)) left = left.replaceAll(secret, HIDDEN);
  return left;
}

/** Most causes of an error that are followed. */
const DEPTH = 10;

/** Redacts a string, or a value that can be written as JSON; other values are returned unchanged. */
function redactValue(value: unknown): unknown {
  if (typeof value === "string") return redact(value);
  if (typeof value !== "object" || value === null || value instanceof Error) return value;
  try {
    const text = JSON.stringify(value);
    const left = redact(text);
    return left === text ? value : (JSON.parse(left) as unknown);
  } catch {
    return value;
  }
}

/** Redacts the fields of an error and of its causes in place, and returns the error. */
export function redactError<T>(error: T): T {
  let one: unknown = error;
  for (let depth = 0; depth < DEPTH && one instanceof Error; depth++) {
    for (const name of Object.getOwnPropertyNames(one)) {
      const value: unknown = Reflect.get(one, name);
      const left = redactValue(value);
      if (left !== value) Reflect.set(one, name, left);
    }
    one = one.cause;
  }
  return error;
}
