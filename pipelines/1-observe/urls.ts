import { compileTemplate } from "../record/template.ts";
import { normaliseUrl, pathKey } from "../record/url.ts";

/** The url in its normalised form, or null when the record cannot hold it. */
export const normalOrNull = (url: string): string | null => {
  try {
    return normaliseUrl(url);
  } catch {
    return null;
  }
};

/**
 * Do two urls name one resource, apart from their queries? A template names every url that begins with its literal
 * head.
 */
export function sameResource(claimed: string, asked: string): boolean {
  const left = normalOrNull(claimed);
  const right = normalOrNull(asked);
  if (left === null || right === null) return false;
  const [claims, asks] = [compileTemplate(left), compileTemplate(right)];
  if (claims) return right.startsWith(claims.prefix);
  return asks ? left.startsWith(asks.prefix) : pathKey(left) === pathKey(right);
}

/** Scheme, host and port of a url that is known to be valid. */
export const originOf = (url: string): string => new URL(url).origin;
