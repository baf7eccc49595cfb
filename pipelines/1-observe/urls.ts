import { compileTemplate, segmentsOf } from "../record/template.ts";
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

/**
 * Does a request to the asked url reach the resource that is listed at the listed url? Both urls are normalised. A
 * listed template is reached by the urls of its origin whose path matches it, another url by its own path with any
 * query.
 */
export function reachesListed(listedUrl: string, askedUrl: string): boolean {
  if (pathKey(listedUrl) === pathKey(askedUrl)) return true;
  const template = compileTemplate(listedUrl);
  return template !== null && originOf(listedUrl) === originOf(askedUrl) && template.matches(segmentsOf(askedUrl));
}

/** Returns scheme, host and port of a url that is known to be valid. */
export const originOf = (url: string): string => new URL(url).origin;
