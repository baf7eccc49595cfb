import { z } from "zod";

/** How a catalogue is read: page by page, as one document, or as the documents of one seller at its own origin. */
const CATALOGUE_KINDS = ["bazaar", "document", "seller"] as const;

/** A catalogue as it is read. */
export interface Catalogue {
  url: string;
  kind: (typeof CATALOGUE_KINDS)[number];
  /** Sent with every page, and to nobody else: keys among them are secrets of the settings. */
  headers: Readonly<Record<string, string>>;
  /** Pause between two pages, ms. */
  pause_ms: number;
  /** Somebody looks at what is listed there: the limit of endpoints of one domain does not hold for it. */
  curated: boolean;
}

/** A catalogue as it is named: an address alone is a Bazaar's. */
export type NamedCatalogue = string | Catalogue;

/** A catalogue of three hundred pages takes minutes, and its host serves others meanwhile. */
const PAUSE_MS = 250;
const DEFAULTS = { kind: "bazaar", headers: {}, pause_ms: PAUSE_MS, curated: false } as const;

/** Addresses that their operators publish, by a name of ours. */
export const KNOWN_CATALOGUES: Readonly<Record<string, Catalogue>> = {
  "cdp-bazaar": { ...DEFAULTS, url: "https://api.cdp.coinbase.com/platform/v2/x402/discovery/resources" },
  "payai-bazaar": { ...DEFAULTS, url: "https://facilitator.payai.network/discovery/resources" },
  // Most of it stands under one domain, and each entry was looked at before it was let in.
  "mpp-directory": { ...DEFAULTS, url: "https://mpp.dev/api/services", kind: "document", curated: true },
};

export const asCatalogue = (named: NamedCatalogue): Catalogue =>
  typeof named === "string" ? { ...DEFAULTS, url: named } : named;

/** What stands in the record as the source: the address without what may be a key. */
export function sourceName(url: string): string {
  const { username, password, search, origin, pathname } = new URL(url);
  return username || password || search ? `${origin}${pathname}` : url;
}

const address = z.url({ protocol: /^https?$/ });
const known = z
  .enum(Object.keys(KNOWN_CATALOGUES) as [string, ...string[]])
  .transform((name) => KNOWN_CATALOGUES[name]!);

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
const isHere = (url: string): boolean => /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(new URL(url).hostname);

const full = z
  .strictObject({
    url: address,
    kind: z.enum(CATALOGUE_KINDS).default(DEFAULTS.kind),
    headers: z.record(z.string().regex(HEADER_NAME), z.string().min(1).max(8_192)).default({}),
    pause_ms: z.int().min(0).max(60_000).default(PAUSE_MS),
    curated: z.boolean().default(false),
  })
  .refine(({ url, headers }) => Object.keys(headers).length === 0 || url.startsWith("https:") || isHere(url), {
    message: "headers are sent over https alone: a key would be read on the way",
    path: ["url"],
  });

/** The setting: an address, a known name, or all that is to be said of it. */
const EXPECTED = `expected an http(s) address, ${Object.keys(KNOWN_CATALOGUES).join(", ")}, or {url, kind?, headers?, ..}`;
export const CatalogueSetting = z.union([known, z.url({ protocol: /^https?$/, error: EXPECTED }), full], {
  error: EXPECTED,
});
