import { parseUrl } from "./url.ts";

/**
 * Texts of this process that nobody else may read: passwords and keys of the settings, and what an address carries of them.
 * Client libraries put the address they asked into their errors, and nodes echo the key that they refuse. So whatever is
 * written down for others goes through `redact`: log lines, last words, and errors of the chain's client before anybody
 * takes a message out of them for the record.
 */
const kept = new Set<string>();
/** Longest first, so that nothing of a text is left beside a part of it that was taken out. */
let longestFirst: string[] = [];

/** Shorter texts stand in any line by chance. As a part of a longer one (`key=abc`) they are kept all the same. */
const SHORTEST = 6;
const HIDDEN = "[hidden]";

/** From now on these are taken out of every text. Null and what is too short are ignored. */
export function keepSecret(...texts: readonly (string | null | undefined)[]): void {
  for (const text of texts) {
    if (!text || text.length < SHORTEST) continue;
    kept.add(text);
    // As it stands inside a line of JSON.
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
 * Keep what an address may carry of a key: user and password, the query and its values. @param withPath the path and its
 * segments too, as nodes of chains have it
 */
export function keepAddress(address: string | null, withPath = false): void {
  const url = address === null ? null : parseUrl(address);
  if (url === null) return;
  const { username, password, pathname, search, searchParams } = url;
  const user = `${decoded(username)}:${decoded(password)}`;
  const parts = [username, password, search.slice(1), ...searchParams.values()];
  if (username || password) parts.push(`${username}:${password}`, user, Buffer.from(user).toString("base64"));
  // Segments as short as `v2` or `rpc` are words, not keys.
  if (withPath)
    parts.push(pathname + search, pathname, ...pathname.split("/").filter((part) => part.length > SHORTEST));
  keepSecret(...parts, ...parts.map(decoded));
}

/** The text without the secrets of this process. */
export function redact(text: string): string {
  let left = text;
  for (const secret of longestFirst) if (left.includes(secret)) left = left.replaceAll(secret, HIDDEN);
  return left;
}

/** How far an error's causes are followed. */
const DEPTH = 10;

/** Text, and what is made of text and can be written as JSON; anything else is left as it is. */
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

/** The same error without the secrets of this process, in its fields and in those of its causes. */
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
