import type { RailCapabilities } from "../../../infra/rails/rails.ts";
import { parseUrl } from "../../../infra/url.ts";
import type { BodyOf, Claims } from "../../record/bodies.ts";
import { classOf } from "../../record/classes.ts";
import { capId } from "../../record/ids.ts";
import { defect, type Method } from "../../record/vocabulary.ts";
import { get, isObject, type JsonObject, keepable, text } from "../json.ts";
import { type Declared, fromBazaar, fromEntry, fromItem, mergeDeclared, methodOf } from "../terms/declared.ts";
import { choose, type Networks, type Offered, type ReadTerms, readOffered } from "../terms/terms.ts";
import { normalOrNull } from "../urls.ts";
import { flatEntries, movesItsPrice, pricesSaid } from "./prices.ts";

/**
 * Why a row of a catalogue, a seller's document or an operator's file is not taken as a listing. Reasons may be added.
 */
export const REASONS = {
  not_json: "the line is not JSON",
  not_an_item: "the row is neither an object nor an address",
  no_list: "the document names no paid endpoint in any form that is read",
  no_address: "the row names no address",
  relative: "the address is relative, and nothing says what to",
  not_http: "the address is not http or https",
  bad_url: "the address cannot be parsed, or is longer than the record takes",
  not_public: "the address is not one of the public internet",
  verb: "the method is none that is ever sent",
  domain_full: "its domain has as many endpoints as discovery may bring; an operator may add more",
  too_many: "the source names more rows than are read",
  unreadable: "the row cannot be read within the time and the memory that one gets",
  unkeepable: "the row cannot be written in one way: nested too deep, or a number past 2^53",
} as const;
export type Reason = keyof typeof REASONS;

/** A row that was not taken, as it came, with the reason. */
export interface Rejected {
  reason: Reason;
  says: string;
  row: unknown;
}

export const rejected = (reason: Reason, row: unknown, more?: string): Rejected => ({
  reason,
  says: more === undefined ? REASONS[reason] : `${REASONS[reason]}: ${more.slice(0, 300)}`,
  row,
});

/** Counts the rows of each reason, in the order of the table. */
export function countReasons(rows: readonly Rejected[]): Partial<Record<Reason, number>> {
  const counts: Partial<Record<Reason, number>> = {};
  for (const name of Object.keys(REASONS) as Reason[]) {
    const n = rows.reduce((sum, row) => sum + (row.reason === name ? 1 : 0), 0);
    if (n > 0) counts[name] = n;
  }
  return counts;
}

type Defects = BodyOf<"listing">["defects"];

/** One claim of one source about one endpoint, ready for the log. */
export interface ListedClaim {
  cap: string;
  body: BodyOf<"listing">;
}

/** The address of an item as it is written, under any of the names that are in use. */
export function urlOf(item: unknown): string | undefined {
  const named = get(item, "resource");
  const candidates = [
    named,
    get(named, "url"),
    get(item, "url"),
    get(item, "path"),
    get(item, "route"),
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
  /** Address of the catalogue or of the seller's file, "402", or the operator's file. */
  name: string;
  /**
   * Set when the item was read from a seller's own origin: only urls of that origin are then under the seller's
   * control.
   */
  ownOrigin?: string;
  /** Base of relative addresses; default: the own origin. */
  base?: string;
  /** Set for what an operator hands in: the limit per domain does not apply. */
  byHand?: boolean;
  /** Set for an operator's file: a row that is signed by its payee counts as the seller's own claim. */
  signedRows?: boolean;
  /** Is this an address that may be fetched? Default: every http address is. */
  validate?: (url: string) => { ok: true } | { ok: false; reason: string; says: string };
}

/** A claim that was taken. `own`: its defects in case the row turns out to be the seller's own claim. */
export type Taken = { claim: ListedClaim; own: Defects } | { rejected: Rejected };

/** Address and verb of an item. The verb may stand in the address ("POST /path"). */
function placeAndVerb(item: JsonObject): { written: string | undefined; verb: unknown } {
  const written = urlOf(item);
  const both = written === undefined ? null : /^([A-Za-z]{3,10})\s+(\S+)$/.exec(written);
  return both ? { written: both[2], verb: both[1] } : { written, verb: undefined };
}

/** The absolute address in the form that the record takes, or the reason why there is none. */
function addressOf(written: string, source: Source): { url: string; absolute: string } | Rejected["reason"] {
  let absolute = written;
  if (!/^[a-z][a-z0-9+.-]*:/i.test(written)) {
    const base = source.base ?? source.ownOrigin;
    if (base === undefined) return "relative";
    const whole = parseUrl(written, base);
    if (whole === null) return "bad_url";
    absolute = whole.href;
  }
  if (!/^https?:/i.test(absolute)) return "not_http";
  const url = normalOrNull(absolute);
  return url === null ? "bad_url" : { url, absolute };
}

/**
 * Why the address is not public, or null. A port that egress would refuse is no reason: that is a setting, which may
 * change later.
 */
function notPublic(url: string, source: Source): string | null {
  const verdict = source.validate?.(url) ?? { ok: true as const };
  return verdict.ok || verdict.reason === "port" ? null : verdict.says;
}

/** The verb of an item that we never send (WEBSOCKET, HEAD), or null: such a row must not be listed as a GET. */
function badVerb(item: JsonObject, verb: unknown): string | null {
  for (const named of [verb, item.method]) {
    if (typeof named === "string" && named.trim() && methodOf(named) === null) return named;
  }
  return null;
}

/** The offers of an item: entries of its own, or those of a flat row. */
function offersIn(item: JsonObject, own: Networks) {
  const flat = item.accepts === undefined ? flatEntries(item) : [];
  // A flat row is nobody's terms, whatever version its document names: it has no room for what an entry has.
  return readOffered(flat.length > 0 ? { ...item, x402Version: undefined, accepts: flat } : item, own);
}

/** The resource that an item names. One url may be several: one for each method, and for each tool of an MCP server. */
interface Resource {
  /** The address, as the item writes it. */
  written: string;
  verb: unknown;
  said: Declared;
  method: Method;
  /** Tells the resource from the others of its source. */
  id: string;
}

/** Reads which resource an item names; null where it names no address. */
export function resourceOf(item: JsonObject): Resource | null {
  const { written, verb } = placeAndVerb(item);
  if (written === undefined) return null;
  const said = mergeDeclared(
    fromItem(verb === undefined ? item : { ...item, method: verb }),
    fromBazaar(get(item, "extensions", "bazaar") ?? get(item, "bazaar")),
    fromEntry(get(item, "accepts", "0")),
  );
  const method = said.method ?? (said.inputIn === "body" || said.tool ? "POST" : "GET");
  const named = said.method ?? (method === "GET" ? "" : method);
  const id = `${named} ${written}${said.tool ? ` ${said.tool}` : ""}`.trim().slice(0, 4096);
  return { written, verb, said, method, id };
}

/**
 * A claim made from the item alone. It is plain data, so that it can be made in a worker thread, which has neither
 * egress nor a rail; {@link settleClaim} adds what depends on those.
 */
export type ReadClaim = { claim: ListedClaim; payables: Offered["payables"]; own: Defects } | { rejected: Rejected };

/**
 * Makes a claim from a catalogue's row, or from an item of a seller's own file; or rejects the row with the reason (an
 * address relative to nothing, `monopoly://..`, a verb that is never sent). Never throws.
 * @param networks the networks that our rail pays on
 */
export function readClaim(item: unknown, source: Omit<Source, "validate">, networks: Networks): ReadClaim {
  if (!isObject(item)) return { rejected: rejected("not_an_item", item) };
  const resource = resourceOf(item);
  if (resource === null) return { rejected: rejected("no_address", item) };
  const { written, verb, said, method, id } = resource;
  const address = addressOf(written, source);
  if (typeof address === "string") return { rejected: rejected(address, item, written) };
  const wrong = badVerb(item, verb);
  if (wrong !== null) return { rejected: rejected("verb", item, wrong) };
  const listed = offersIn(item, networks);
  const prices = pricesSaid(item);
  const claims: Claims = {
    ...claimsSaid(said, address.absolute.slice(0, 4096)),
    offers: listed.offers,
    fixed_price:
      listed.offers.some((offer) => offer.scheme === "exact" && offer.amount_atomic !== null) && !movesItsPrice(item),
    ...(prices.length > 0 ? { prices_said: prices } : {}),
    ...(refusesPaidCalls(item) ? { no_paid_calls: true } : {}),
  };
  const refused = refusesPaidCalls(item) ? [{ ...defect("paid_calls_refused") }] : [];
  const own = [...(listed.isTerms ? listed.defects : listed.stated), ...refused];
  const isOwn = source.ownOrigin !== undefined && new URL(address.url).origin === source.ownOrigin;
  const body = {
    source: source.name.slice(0, 300),
    source_id: id,
    seller_controlled: isOwn,
    normalised_url: address.url,
    claims,
    defects: isOwn ? own : listed.stated,
  };
  const cap = capId(method, address.url, said.tool ?? "");
  return { claim: { cap, body }, payables: listed.payables, own };
}

/** Completes a claim: marks the offers that our rail would pay. Rejects it when its address is not public. */
export function settleClaim(
  read: ReadClaim,
  item: unknown,
  source: Source,
  rail: Pick<RailCapabilities, "canPay" | "decimalsOf">,
): Taken {
  if ("rejected" in read) return read;
  const { cap, body } = read.claim;
  const unfetched = notPublic(body.normalised_url, source);
  if (unfetched !== null) return { rejected: rejected("not_public", item, unfetched) };
  const { offers } = choose({ offers: body.claims.offers, payables: read.payables }, rail);
  return { claim: { cap, body: { ...body, claims: { ...body.claims, offers } } }, own: read.own };
}

/**
 * Does this document, item or operation ask that its endpoints are not paid for tests? Only a seller's own listing may
 * ask that (docs/listings.md).
 */
export const refusesPaidCalls = (said: unknown): boolean =>
  get(said, "paid_test_calls") === false || get(said, "x-paid-test-calls") === false;

/** What is declared of a call and its answer, without the price. */
function claimsSaid(said: Declared, url: string): Claims {
  return {
    url,
    method: said.method,
    tool: said.tool,
    description: said.description,
    class: classOf({ named: said.named }),
    offers: [],
    fixed_price: false,
    example: said.example,
    ...schemas(said),
    output_mime: said.mime,
  };
}

/**
 * What a 402 declares of its endpoint, as a claim. It makes the endpoint known and describes how it is called. It holds
 * no offers, so the next 402 is never compared with this one: a quote is not a promise.
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
        ...claimsSaid(said, url),
        method: method ?? said.method,
        tool: null,
      },
      defects: [],
    },
  };
}

/** Schemas, without members that are undefined: the record cannot hold `undefined`. */
function schemas(said: { inputSchema: unknown; inputIn: "query" | "body" | null; outputSchema: unknown }) {
  const input = keepable(said.inputSchema);
  const output = keepable(said.outputSchema);
  return {
    ...(input === undefined ? {} : { input_schema: input }),
    ...(said.inputIn === null ? {} : { input_in: said.inputIn }),
    ...(output === undefined ? {} : { output_schema: output }),
  };
}
