/**
 * Headers of everything that a page of any origin may read, and every header of it (Fetch, CORS protocol: a wildcard names all
 * headers where no credentials are sent). Nothing here depends on credentials that a browser adds by itself.
 */
export const OPEN: Readonly<Record<string, string>> = {
  "x-content-type-options": "nosniff",
  "access-control-allow-origin": "*",
  "access-control-expose-headers": "*",
};
