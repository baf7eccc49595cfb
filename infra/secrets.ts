import { parseUrl } from "./url.ts";

/**
 * The secrets of this process: passwords and keys from the settings, and the parts of addresses that may be keys.
 * Client libraries put addresses into their error messages, and blockchain nodes repeat a key that they refuse.
 * Therefore `redact` is applied to log lines, to the message of the error that ends a command, and to errors of the
 * blockchain client, whose messages may be recorded and published.
 */
const secrets = new Set<string>();
/** The secrets, longest first, so that a secret is removed before a shorter one that is part of it. */
let secretsLongestFirst: string[] = [];

/** Shortest text that is treated as a secret. A shorter text would also occur in lines by chance. */
const MIN_SECRET_CHARS = 6;
const REPLACEMENT = "[hidden]";

/** Adds texts that `redact` removes from now on. Null and texts of less than 6 characters are ignored. */
export function addSecrets(...texts: readonly (string | null | undefined)[]): void {
  for (const text of texts) {
    if (!text || text.length < MIN_SECRET_CHARS) continue;
    secrets.add(text);
    // Inside a JSON string the secret may be escaped, so that form is hidden too.
    secrets.add(JSON.stringify(text).slice(1, -1));
  }
  secretsLongestFirst = [...secrets].sort((a, b) => b.length - a.length);
}

const decodeOrKeep = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/**
 * Adds the parts of an address that may be keys to the secrets: user and password, the whole query, and each value in
 * it.
 * @param withPath true: also adds the path and its segments, in which providers of blockchain nodes put keys. false:
 * the path is no secret
 */
export function addAddressSecrets(address: string | null, withPath = false): void {
  const url = address === null ? null : parseUrl(address);
  if (url === null) return;
  const { username, password, pathname, search, searchParams } = url;
  const user = `${decodeOrKeep(username)}:${decodeOrKeep(password)}`;
  const parts = [username, password, search.slice(1), ...searchParams.values()];
  if (username || password) parts.push(`${username}:${password}`, user, Buffer.from(user).toString("base64"));
  // Short segments such as `v2` or `rpc` are words, not keys.
  if (withPath)
    parts.push(pathname + search, pathname, ...pathname.split("/").filter((part) => part.length > MIN_SECRET_CHARS));
  addSecrets(...parts, ...parts.map(decodeOrKeep));
}

/** Returns the text with every secret of this process replaced by `[hidden]`. */
export function redact(text: string): string {
  let redacted = text;
  for (const secret of secretsLongestFirst)
    if (redacted.includes(secret)) redacted = redacted.replaceAll(secret, REPLACEMENT);
  return redacted;
}

/** Largest number of errors that are redacted in a chain of causes, including the first error. */
const MAX_CAUSES = 10;

/** Redacts a string, or a value that can be written as JSON; other values are returned unchanged. */
function redactValue(value: unknown): unknown {
  if (typeof value === "string") return redact(value);
  if (typeof value !== "object" || value === null || value instanceof Error) return value;
  try {
    const text = JSON.stringify(value);
    const redacted = redact(text);
    return redacted === text ? value : (JSON.parse(redacted) as unknown);
  } catch {
    return value;
  }
}

/** Redacts the fields of an error and of its causes in place, and returns the error. */
export function redactError<T>(error: T): T {
  let current: unknown = error;
  for (let depth = 0; depth < MAX_CAUSES && current instanceof Error; depth++) {
    for (const name of Object.getOwnPropertyNames(current)) {
      const value: unknown = Reflect.get(current, name);
      const redacted = redactValue(value);
      if (redacted !== value) Reflect.set(current, name, redacted);
    }
    current = current.cause;
  }
  return error;
}
