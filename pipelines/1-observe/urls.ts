import { compileTemplate } from "../record/template.ts";
import { normaliseUrl, pathKey } from "../record/url.ts";

/** Normalises a url; null when the record cannot hold it. */
export const normaliseOrNull = (url: string): string | null => {
  try {
    return normaliseUrl(url);
  } catch {
    return null;
  }
};

/**
 * Do two urls name one resource, apart from their queries? A url template names every url that begins with the
 * template's literal prefix.
 */
export function isSameResource(claimedUrl: string, askedUrl: string): boolean {
  const left = normaliseOrNull(claimedUrl);
  const right = normaliseOrNull(askedUrl);
  if (left === null || right === null) return false;
  const [claimedTemplate, askedTemplate] = [compileTemplate(left), compileTemplate(right)];
  if (claimedTemplate) return right.startsWith(claimedTemplate.prefix);
  return askedTemplate ? left.startsWith(askedTemplate.prefix) : pathKey(left) === pathKey(right);
}

/** Returns scheme, host and port of a url that is known to be valid. */
export const originOf = (url: string): string => new URL(url).origin;
