import type { Rail } from "../../infra/rails/rails.ts";
import type { BodyOf, Claims } from "../record/bodies.ts";
import { classOf } from "../record/classes/index.ts";
import { capId } from "../record/ids.ts";
import { fromBazaar, fromEntry, fromItem, mergeDeclared } from "./declared.ts";
import { get, isObject, keepable, text } from "./json.ts";
import { normalOrNull } from "./places.ts";
import { type ReadTerms, readListedOffers } from "./terms.ts";

/** One claim of one source about one endpoint, ready for the log. */
export interface ListedClaim {
  cap: string;
  body: BodyOf<"listing">;
}

const DYNAMIC = /dynamic|range|variable|quote|upto/i;

/** Does the item itself say that its price moves? Then no quote can differ from it. */
function movesItsPrice(item: unknown): boolean {
  const modes = [
    get(item, "pricingMode"),
    get(item, "pricing"),
    get(item, "price", "mode"),
    get(item, "pricing", "mode"),
  ];
  return (
    get(item, "dynamic") === true ||
    get(item, "fixed_price") === false ||
    modes.some((mode) => typeof mode === "string" && DYNAMIC.test(mode))
  );
}

/** Where an item says it lives, as written. */
export function urlOf(item: unknown): string | undefined {
  const named = get(item, "resource");
  const candidates = [
    named,
    get(named, "url"),
    get(item, "url"),
    get(item, "path"),
    get(item, "endpoint"),
    get(item, "href"),
  ];
  candidates.push(get(item, "accepts", "0", "resource"));
  for (const candidate of candidates) {
    const found = text(candidate, 4096);
    if (found) return found;
  }
  return undefined;
}

export interface Source {
  /** Address of the catalogue or of the seller's file, or "402". */
  name: string;
  /** Set when the item was read from a seller's own origin: only its own urls are under its control. */
  ownOrigin?: string;
}

/**
 * A catalogue row, or an item of a seller's own file, as a claim. Null when it names no address the record takes
 * (relative without a base, `monopoly://..`).
 */
export function claimOf(item: unknown, source: Source, rail: Pick<Rail, "canPay" | "network">): ListedClaim | null {
  const written = urlOf(item);
  if (!written || !isObject(item)) return null;
  const absolute =
    source.ownOrigin && !/^[a-z][a-z0-9+.-]*:/i.test(written) ? join(source.ownOrigin, written) : written;
  const url = absolute === null ? null : normalOrNull(absolute);
  if (url === null) return null;
  const listed = readListedOffers(item, rail);
  const said = mergeDeclared(
    fromItem(item),
    fromBazaar(get(item, "extensions", "bazaar") ?? get(item, "bazaar")),
    fromEntry(listed.first),
  );
  const exact = listed.offers.some((offer) => offer.scheme === "exact" && offer.amount_atomic !== null);
  const claims: Claims = {
    url: absolute!.slice(0, 4096),
    method: said.method,
    tool: said.tool,
    description: said.description,
    class: classOf({ named: said.named, example: queryOf(said.example) }),
    offers: listed.offers,
    fixed_price: exact && !movesItsPrice(item),
    example: said.example,
    ...schemas(said),
    output_mime: said.mime,
  };
  const method = said.method ?? (said.inputIn === "body" || said.tool ? "POST" : "GET");
  return {
    cap: capId(method, url, said.tool ?? ""),
    body: {
      source: source.name.slice(0, 300),
      source_id: `${said.method ?? ""} ${written}${said.tool ? ` ${said.tool}` : ""}`.trim().slice(0, 4096),
      seller_controlled: source.ownOrigin !== undefined && new URL(url).origin === source.ownOrigin,
      normalised_url: url,
      claims,
      defects: listed.defects,
    },
  };
}

/**
 * What a 402 declares of itself, as a claim. It makes the endpoint known and says how it is called. It carries no
 * offers: a quote is not a promise, so the next 402 is never held against this one.
 */
export function claimOf402(cap: string, url: string, method: Claims["method"], read: ReadTerms): ListedClaim {
  const said = read.declared;
  return {
    cap,
    body: {
      source: "402",
      source_id: `${method ?? ""} ${url}`.trim().slice(0, 4096),
      seller_controlled: false,
      normalised_url: url,
      claims: {
        url,
        method: method ?? said.method,
        tool: null,
        description: said.description,
        class: classOf({ named: said.named, example: queryOf(said.example) }),
        offers: [],
        fixed_price: false,
        example: said.example,
        ...schemas(said),
        output_mime: said.mime,
      },
      defects: [],
    },
  };
}

const queryOf = (example: Claims["example"]): { query?: Record<string, string> } | null =>
  example?.query ? { query: example.query } : null;

/** Only members that are there: the record keeps no `undefined`. */
function schemas(said: { inputSchema: unknown; inputIn: "query" | "body" | null; outputSchema: unknown }) {
  const input = keepable(said.inputSchema);
  const output = keepable(said.outputSchema);
  return {
    ...(input === undefined ? {} : { input_schema: input }),
    ...(said.inputIn === null ? {} : { input_in: said.inputIn }),
    ...(output === undefined ? {} : { output_schema: output }),
  };
}

function join(origin: string, path: string): string | null {
  try {
    return new URL(path, origin).href;
  } catch {
    return null;
  }
}
