import { randomBytes } from "node:crypto";
import { sha256hex } from "../../infra/canonical.ts";

/** What a bearer token of a watcher says: whose it is, where that watcher's record lies in the log, and the secret. */
export interface WatcherToken {
  id: string;
  /** Any replica can wait until it has read this far. */
  partition: number;
  offset: number;
  secret: string;
}

/** 32 random bytes; only their hash is kept. */
export const newSecret = (): string => randomBytes(32).toString("base64url");

export const hashOfSecret = (secret: string): string => sha256hex(secret);

export const tokenText = ({ id, partition, offset, secret }: WatcherToken): string =>
  `${id}.${partition}.${offset}.${secret}`;

const TOKEN = /^(wat_[0-9A-HJKMNP-TV-Z]{26})\.(\d{1,2})\.(\d{1,15})\.([A-Za-z0-9_-]{43})$/;

/** The token of an Authorization header (RFC 6750 section 2.1), or null when there is none of our form. */
export function bearerOf(headers: Headers): WatcherToken | null {
  const [scheme, text, ...rest] = (headers.get("authorization") ?? "").slice(0, 300).trim().split(/ +/);
  const match = scheme?.toLowerCase() === "bearer" && rest.length === 0 ? TOKEN.exec(text ?? "") : null;
  if (!match) return null;
  return { id: match[1]!, partition: Number(match[2]), offset: Number(match[3]), secret: match[4]! };
}
