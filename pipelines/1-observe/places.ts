import { isTemplate, literalPrefix, normaliseUrl, pathKey } from "../record/url.ts";

const normal = (url: string): string | null => {
  try {
    return normaliseUrl(url);
  } catch {
    return null;
  }
};

/** Do two urls name one place, query aside? A template names the place of what stands in it, up to its literal head. */
export function samePlace(claimed: string, asked: string): boolean {
  const left = normal(claimed);
  const right = normal(asked);
  if (left === null || right === null) return false;
  if (isTemplate(left)) return right.startsWith(left.slice(0, literalPrefix(left)));
  if (isTemplate(right)) return left.startsWith(right.slice(0, literalPrefix(right)));
  return pathKey(left) === pathKey(right);
}

/** The url normalised, or null when the record cannot take it. */
export const normalOrNull = normal;

/** Scheme, host and port of a url that is known to be good. */
export const originOf = (url: string): string => new URL(url).origin;

/** Host and port: the unit of politeness. */
export const hostOf = (url: string): string => new URL(url).host;
