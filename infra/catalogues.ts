import { z } from "zod";
import { isLoopbackHost } from "./url.ts";

/**
 * Kinds of catalogue: a Bazaar (the discovery list of an x402 facilitator, read page by page); a single document; or
 * the documents that a seller publishes at its own origin.
 */
const CATALOGUE_KINDS = ["bazaar", "document", "seller"] as const;

/** A catalogue of listings, with every default filled in. */
export interface Catalogue {
  url: string;
  kind: (typeof CATALOGUE_KINDS)[number];
  /**
   * Headers that are sent with each request to this catalogue and to no other address. They may hold keys, so they
   * count as secrets.
   */
  headers: Readonly<Record<string, string>>;
  /** Pause between the requests for two pages, ms. */
  pause_ms: number;
  /**
   * True if the catalogue's operator reviews each listing. Then the limit on endpoints of one domain does not apply to
   * the catalogue.
   */
  curated: boolean;
}

/** A catalogue as it is written in the settings: an object, or only the address of a Bazaar. */
export type NamedCatalogue = string | Catalogue;

/** Default of `pause_ms`, so that reading a catalogue does not burden its host. */
const PAGE_PAUSE_MS = 250;
const CATALOGUE_DEFAULTS = { kind: "bazaar", headers: {}, pause_ms: PAGE_PAUSE_MS, curated: false } as const;

/** Well-known catalogues by the names that the settings accept. */
export const KNOWN_CATALOGUES: Readonly<Record<string, Catalogue>> = {
  "cdp-bazaar": { ...CATALOGUE_DEFAULTS, url: "https://api.cdp.coinbase.com/platform/v2/x402/discovery/resources" },
  "payai-bazaar": { ...CATALOGUE_DEFAULTS, url: "https://facilitator.payai.network/discovery/resources" },
  // Most entries of this directory are under one domain, and its operator reviews each entry.
  "mpp-directory": { ...CATALOGUE_DEFAULTS, url: "https://mpp.dev/api/services", kind: "document", curated: true },
};

/** Returns a catalogue with defaults filled in. */
export const toCatalogue = (setting: NamedCatalogue): Catalogue =>
  typeof setting === "string" ? { ...CATALOGUE_DEFAULTS, url: setting } : setting;

/**
 * Returns the name of a catalogue in the data that this service records and publishes: its url without user, password
 * and query, which may hold keys.
 */
export function sourceName(url: string): string {
  const { username, password, search, origin, pathname } = new URL(url);
  return username || password || search ? `${origin}${pathname}` : url;
}

/** Schema of a setting that is an http(s) address. */
export const addressSetting = z.url({
  protocol: /^https?$/,
  error: "expected an address such as https://host.example/",
});
const knownCatalogue = z
  .enum(Object.keys(KNOWN_CATALOGUES) as [string, ...string[]])
  .transform((name) => KNOWN_CATALOGUES[name]!);

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;

const catalogueObject = z
  .strictObject({
    url: addressSetting,
    kind: z.enum(CATALOGUE_KINDS).default(CATALOGUE_DEFAULTS.kind),
    headers: z.record(z.string().regex(HEADER_NAME), z.string().min(1).max(8_192)).default({}),
    pause_ms: z.int().min(0).max(60_000).default(PAGE_PAUSE_MS),
    curated: z.boolean().default(false),
  })
  .refine(
    ({ url, headers }) =>
      Object.keys(headers).length === 0 || url.startsWith("https:") || isLoopbackHost(new URL(url).hostname),
    {
      message: "headers are only sent over https, since they may hold keys",
      path: ["url"],
    },
  );

/** Error text for an entry of the setting `catalogues` that is not an address, a known name or an object. */
const EXPECTED_FORMS = `expected an http(s) address, ${Object.keys(KNOWN_CATALOGUES).join(", ")}, or {url, kind?, headers?, ..}`;
export const CatalogueSetting = z.union(
  [knownCatalogue, z.url({ protocol: /^https?$/, error: EXPECTED_FORMS }), catalogueObject],
  {
    error: EXPECTED_FORMS,
  },
);
