/**
 * CORS headers for everything that pages of any origin may read, with all its headers (Fetch, CORS protocol: a wildcard
 * names all headers when no credentials are sent). No answer depends on credentials that a browser adds by itself.
 */
export const OPEN_HEADERS: Readonly<Record<string, string>> = {
  "x-content-type-options": "nosniff",
  "access-control-allow-origin": "*",
  "access-control-expose-headers": "*",
};
