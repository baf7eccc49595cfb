import type { RailCapabilities } from "../../../infra/rails/rails.ts";
import { parseUrl } from "../../../infra/url.ts";
import type { BodyOf, Claims } from "../../record/bodies.ts";
import { classOf } from "../../record/classes.ts";
import { capId } from "../../record/ids.ts";
import { defect, type Method } from "../../record/vocabulary.ts";
import { get, isObject, type JsonObject, text, valueIfKeepable } from "../json.ts";
import {
  type Declared,
  mergeDeclared,
  methodOf,
  readBazaar,
  readEntryDeclaration,
  readItemDeclaration,
} from "../terms/declared.ts";
import { chooseOffer, type Networks, type OfferList, type ReadTerms, readListedOffers } from "../terms/terms.ts";
import { normaliseOrNull } from "../urls.ts";
import { collectStatedPrices, entriesOfFlatRow, hasVariablePrice } from "./prices.ts";

/**
 * Reasons why a row of a catalogue, a seller's document or an operator's file is not accepted as a listing. Reasons may
 * be added.
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

/** A row that was not accepted, unchanged, with the reason. */
export interface Rejected {
  reason: Reason;
  says: string;
  row: unknown;
}

export const rejectRow = (reason: Reason, row: unknown, detail?: string): Rejected => ({
  reason,
  says: detail === undefined ? REASONS[reason] : `${REASONS[reason]}: ${detail.slice(0, 300)}`,
  row,
});

/** Counts the rejected rows by reason, in the order of {@link REASONS}. Reasons without a row are left out. */
export function countReasons(rows: readonly Rejected[]): Partial<Record<Reason, number>> {
  const counts: Partial<Record<Reason, number>> = {};
  for (const name of Object.keys(REASONS) as Reason[]) {
    const n = rows.reduce((sum, row) => sum + (row.reason === name ? 1 : 0), 0);
    if (n > 0) counts[name] = n;
  }
  return counts;
}

type Defects = BodyOf<"listing">["defects"];

/** One claim of one source about one endpoint, ready to be recorded. */
export interface ListedClaim {
  cap: string;
  body: BodyOf<"listing">;
}

/**
 * Returns the claim with this method and the capability id that follows from it, if the claim's row names neither a
 * method nor a tool; else the claim unchanged.
 */
export function withFoundMethod(claim: ListedClaim, method: Method): ListedClaim {
  const { claims, normalised_url: url } = claim.body;
  if (claims.method !== null || claims.tool !== null) return claim;
  return { cap: capId(method, url), body: { ...claim.body, claims: { ...claims, method } } };
}

/** Finds the address of an item, unchanged, under any of the member names that sellers use. */
export function urlOf(item: unknown): string | undefined {
  const resource = get(item, "resource");
  const candidates = [
    resource,
    get(resource, "url"),
    get(item, "url"),
    get(item, "path"),
    get(item, "route"),
    get(item, "endpoint"),
    get(item, "href"),
  ];
  candidates.push(get(item, "accepts", "0", "resource"));
  for (const candidate of candidates) {
    const address = text(candidate, 4096);
    if (address) return address;
  }
  return undefined;
}

export interface Source {
  /**
   * Address of the catalogue or of the seller's document; `operator:` and its name for an operator's file; "402" for
   * a claim made from a 402.
   */
  name: string;
  /**
   * Set when the item was read from a seller's own origin. Then only urls of that origin count as controlled by the
   * seller.
   */
  ownOrigin?: string;
  /** Base of relative addresses; default: `ownOrigin`. */
  base?: string;
  /** True for listings that an operator adds: the limit per domain does not apply. */
  byOperator?: boolean;
  /** True for an operator's file: a row that its payee signed counts as the seller's own claim. */
  signedRows?: boolean;
  /** Checks whether an address may be fetched. By default every http address may. */
  validate?: (url: string) => { ok: true } | { ok: false; reason: string; says: string };
}

/** An accepted claim, or a rejected row. `ownDefects` apply if the claim turns out to be the seller's own. */
export type ClaimResult = { claim: ListedClaim; ownDefects: Defects } | { rejected: Rejected };

/** Reads the address and the HTTP method of an item. The address may include the method ("POST /path"). */
function addressAndMethod(item: JsonObject): { writtenAddress: string | undefined; verb: unknown } {
  const writtenAddress = urlOf(item);
  const match = writtenAddress === undefined ? null : /^([A-Za-z]{3,10})\s+(\S+)$/.exec(writtenAddress);
  return match ? { writtenAddress: match[2], verb: match[1] } : { writtenAddress, verb: undefined };
}

/**
 * Resolves an address, or returns the reason why that is not possible. `absolute`: the address with its base; `url`: the
 * same in the normalised form that the record accepts.
 */
function resolveAddress(
  writtenAddress: string,
  source: Source,
): { url: string; absolute: string } | Rejected["reason"] {
  let absolute = writtenAddress;
  if (!/^[a-z][a-z0-9+.-]*:/i.test(writtenAddress)) {
    const base = source.base ?? source.ownOrigin;
    if (base === undefined) return "relative";
    const resolved = parseUrl(writtenAddress, base);
    if (resolved === null) return "bad_url";
    absolute = resolved.href;
  }
  if (!/^https?:/i.test(absolute)) return "not_http";
  const url = normaliseOrNull(absolute);
  return url === null ? "bad_url" : { url, absolute };
}

/**
 * Returns why the address is not public; null if it is. A port that egress refuses is no reason, since the allowed
 * ports are a setting that may change.
 */
function whyNotPublic(url: string, source: Source): string | null {
  const verdict = source.validate?.(url) ?? { ok: true as const };
  return verdict.ok || verdict.reason === "port" ? null : verdict.says;
}

/**
 * Finds a method of an item that we never send (WEBSOCKET, HEAD), or null. A row with such a method must not be listed
 * as a GET.
 */
function findUnsendableMethod(item: JsonObject, verb: unknown): string | null {
  for (const methodName of [verb, item.method]) {
    if (typeof methodName === "string" && methodName.trim() && methodOf(methodName) === null) return methodName;
  }
  return null;
}

/** Reads the offers of an item: its entries in `accepts`, or those of a flat row (offer members in the item itself). */
function readItemOffers(item: JsonObject, railNetworks: Networks) {
  const flatEntries = item.accepts === undefined ? entriesOfFlatRow(item) : [];
  // The version is removed, so that a flat row is not checked as complete x402 terms: it lacks members of an entry.
  return readListedOffers(
    flatEntries.length > 0 ? { ...item, x402Version: undefined, accepts: flatEntries } : item,
    railNetworks,
  );
}

/**
 * The resource that an item names. One url may have several resources: one for each method, and for each tool of an MCP
 * server.
 */
interface Resource {
  /** The address as written in the item. */
  writtenAddress: string;
  /** HTTP method that was written before the address; undefined if none was. */
  verb: unknown;
  declared: Declared;
  /** The declared HTTP method, or the method that is assumed if none is declared. */
  method: Method;
  /** Identifies the resource within its source. */
  id: string;
}

/** Reads which resource an item names; null where it names no address. */
export function resourceOf(item: JsonObject): Resource | null {
  const { writtenAddress, verb } = addressAndMethod(item);
  if (writtenAddress === undefined) return null;
  const declared = mergeDeclared(
    readItemDeclaration(verb === undefined ? item : { ...item, method: verb }),
    readBazaar(get(item, "extensions", "bazaar") ?? get(item, "bazaar")),
    readEntryDeclaration(get(item, "accepts", "0")),
  );
  const method = declared.method ?? (declared.inputIn === "body" || declared.tool ? "POST" : "GET");
  const methodName = declared.method ?? (method === "GET" ? "" : method);
  const id = `${methodName} ${writtenAddress}${declared.tool ? ` ${declared.tool}` : ""}`.trim().slice(0, 4096);
  return { writtenAddress, verb, declared, method, id };
}

/**
 * A claim made from the item alone. It is plain data, since it is made in a worker thread, which has neither the
 * network (egress) nor the rail (our side of a payment network); {@link completeClaim} adds what depends on these.
 */
export type ReadClaim =
  | { claim: ListedClaim; payables: OfferList["payables"]; ownDefects: Defects }
  | { rejected: Rejected };

/**
 * Makes a claim from a catalogue's row or an item of a seller's own file, or rejects it with the reason (a relative
 * address without a base, `monopoly://..`, a method that is never sent). Never throws.
 * @param networks the networks on which our wallets can pay
 */
export function readClaim(item: unknown, source: Omit<Source, "validate">, networks: Networks): ReadClaim {
  if (!isObject(item)) return { rejected: rejectRow("not_an_item", item) };
  const resource = resourceOf(item);
  if (resource === null) return { rejected: rejectRow("no_address", item) };
  const { writtenAddress, verb, declared: declaration, method, id } = resource;
  const address = resolveAddress(writtenAddress, source);
  if (typeof address === "string") return { rejected: rejectRow(address, item, writtenAddress) };
  const unsendableMethod = findUnsendableMethod(item, verb);
  if (unsendableMethod !== null) return { rejected: rejectRow("verb", item, unsendableMethod) };
  const listedOffers = readItemOffers(item, networks);
  const prices = collectStatedPrices(item);
  const claims: Claims = {
    ...createClaims(declaration, address.absolute.slice(0, 4096)),
    offers: listedOffers.offers,
    fixed_price:
      listedOffers.offers.some((offer) => offer.scheme === "exact" && offer.amount_atomic !== null) &&
      !hasVariablePrice(item),
    ...(prices.length > 0 ? { prices_said: prices } : {}),
    ...(refusesPaidCalls(item) ? { no_paid_calls: true } : {}),
  };
  const refusalDefects = refusesPaidCalls(item) ? [{ ...defect("paid_calls_refused") }] : [];
  const ownDefects = [...(listedOffers.isTerms ? listedOffers.defects : listedOffers.ownDefects), ...refusalDefects];
  const isFromSeller = source.ownOrigin !== undefined && new URL(address.url).origin === source.ownOrigin;
  const body = {
    source: source.name.slice(0, 300),
    source_id: id,
    seller_controlled: isFromSeller,
    normalised_url: address.url,
    claims,
    defects: isFromSeller ? ownDefects : listedOffers.ownDefects,
  };
  const cap = capId(method, address.url, declaration.tool ?? "");
  return { claim: { cap, body }, payables: listedOffers.payables, ownDefects };
}

/** Completes a claim: marks the offers that our rail would pay. Rejects the claim when its address is not public. */
export function completeClaim(
  parsedClaim: ReadClaim,
  item: unknown,
  source: Source,
  rail: Pick<RailCapabilities, "canPay" | "decimalsOf">,
): ClaimResult {
  if ("rejected" in parsedClaim) return parsedClaim;
  const { cap, body } = parsedClaim.claim;
  const notPublicReason = whyNotPublic(body.normalised_url, source);
  if (notPublicReason !== null) return { rejected: rejectRow("not_public", item, notPublicReason) };
  const { offers } = chooseOffer({ offers: body.claims.offers, payables: parsedClaim.payables }, rail);
  return { claim: { cap, body: { ...body, claims: { ...body.claims, offers } } }, ownDefects: parsedClaim.ownDefects };
}

/**
 * Does this document, item or operation ask us not to make paid test calls? Only a seller's own listing may ask that
 * (docs/listings.md).
 */
export const refusesPaidCalls = (declared: unknown): boolean =>
  get(declared, "paid_test_calls") === false || get(declared, "x-paid-test-calls") === false;

/** Makes claims from what is declared about input and answer, without offers. */
function createClaims(declared: Declared, url: string): Claims {
  return {
    url,
    method: declared.method,
    tool: declared.tool,
    description: declared.description,
    class: classOf({ named: declared.className }),
    offers: [],
    fixed_price: false,
    example: declared.example,
    ...keepableSchemas(declared),
    output_mime: declared.mime,
  };
}

/**
 * Makes a claim from what a 402 declares. The claim makes the endpoint known and describes its input. It has no offers,
 * so that a later 402 is never compared with this 402, whose price is no promise.
 */
export function createClaimFrom402(cap: string, url: string, method: Claims["method"], terms: ReadTerms): ListedClaim {
  const declared = terms.declared;
  return {
    cap,
    body: {
      source: "402",
      source_id: `${method ?? ""} ${url}`.trim().slice(0, 4096),
      seller_controlled: false,
      normalised_url: url,
      claims: {
        ...createClaims(declared, url),
        method: method ?? declared.method,
        tool: null,
      },
      defects: [],
    },
  };
}

/** Returns the schemas that the record can keep, without undefined members. */
function keepableSchemas(declared: { inputSchema: unknown; inputIn: "query" | "body" | null; outputSchema: unknown }) {
  const input = valueIfKeepable(declared.inputSchema);
  const output = valueIfKeepable(declared.outputSchema);
  return {
    ...(input === undefined ? {} : { input_schema: input }),
    ...(declared.inputIn === null ? {} : { input_in: declared.inputIn }),
    ...(output === undefined ? {} : { output_schema: output }),
  };
}
