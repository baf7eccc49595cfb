import { forEachYielding } from "../../infra/concurrency.ts";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { get, isObject } from "../1-observe/json.ts";
import { buildRequest, declaredHeadersOf } from "../1-observe/probe/request.ts";
import {
  type CurrentListing,
  type CurrentRow,
  parseCurrentListing,
  toListedCap,
} from "../1-observe/probe/unplanned.ts";
import { windowStart } from "../3-grade/params.ts";
import { HISTORY_DAYS, type HistoryDay, type HistoryNames } from "../record/history.ts";
import { type ListedOffer, MAX_LISTED_OFFERS } from "../record/leaf.ts";
import { addressKey } from "../record/networks.ts";
import { sameAsset } from "../record/terms/networks.ts";
import { addDays, dayOf, dayStart, rfc3339 } from "../record/time.ts";
import type { Defect } from "../record/vocabulary.ts";
import {
  type CorrectionRecord,
  type HandshakeRequest,
  isAnyPositionLower,
  MAX_HANDSHAKE_REQUEST_CHARS,
  MAX_PAY_TOS,
  type Positions,
  type VolatileRow,
} from "../record/volatile.ts";

/** An offer of the newest 402, as stored in the lake (the database of the log's rows). */
interface StoredOffer {
  network: string | null;
  asset: string | null;
  payable: boolean | null;
  pay_to: string | null;
  price: string | null;
}

type AskedColumn = "price" | "asset" | "unit" | "asked_pay_to" | "networks" | "pay_tos" | "pay_tos_before";

/**
 * A row of queries/volatile. The defects are JSON arrays: of the current listing, of the newest 402 (terms), and of its
 * differences from the seller's own listing; `listing_t` and `terms_t` are the times of listing and 402, Unix ms.
 */
interface Row
  extends Omit<VolatileRow, "asked_for_payment" | "card_leaf" | "defects" | "corrected" | "request" | AskedColumn> {
  asked: number;
  offers: StoredOffer[];
  /** The payTos that the endpoint's 402s named, the last seen first. */
  paid_to: string[];
  listing_defects: string | null;
  listing_t: number | null;
  terms_defects: string | null;
  differs: string | null;
  terms_t: number | null;
}

/**
 * The published headline cards. An endpoint without a card has 0 as `observations_since` and `withdrawn_since`, the
 * counts of what is newer than the card.
 */
export interface PublishedCards {
  /**
   * Returns the headline card of a capability (endpoint): `leaf` is the index of its leaf, `at` its `computed_at` (RFC
   * 3339), and `read` the log positions {topic: next offset} up to which its grading run had read.
   */
  get(cap: string): { leaf: number; at: string; read: Readonly<Record<string, number>> } | undefined;
}

/** Number of rows that are made before other work gets a turn of the event loop: a few milliseconds of work. */
const ROWS_PER_TURN = 64;

/**
 * Reads the rows of the volatile table (facts about an endpoint that change faster than its card), ascending by
 * capability. An endpoint whose address is not known has no row.
 * @param corrections records of corrections that are not published yet, by capability
 * @param caps ids of the endpoints to read (default: all that the lake knows)
 */
export async function volatileRows(
  lake: Lake,
  published: PublishedCards,
  corrections: ReadonlyMap<string, readonly CorrectionRecord[]> = new Map(),
  caps?: readonly string[],
): Promise<VolatileRow[]> {
  const cardLeaves = new Map<string, number>();
  const endpoints = (caps ?? (await knownCaps(lake))).map((cap) => {
    const card = published.get(cap);
    if (!card) return { cap, at: null, since: null, read: null };
    cardLeaves.set(cap, card.leaf);
    const at = new Date(card.at);
    return { cap, at: at.getTime(), since: windowStart(at).getTime(), read: card.read };
  });
  const rows: VolatileRow[] = [];
  if (endpoints.length === 0) return rows;
  for await (const batch of lake.stream<Row>(sql("queries/volatile"), { wanted: JSON.stringify(endpoints) })) {
    await forEachYielding(batch, ROWS_PER_TURN, (row) =>
      rows.push(volatileOf(row, corrections.get(row.capability_id) ?? [])),
    );
  }
  const requests = await readRequests(lake, endpoints);
  for (const row of rows) {
    row.card_leaf = cardLeaves.get(row.capability_id) ?? null;
    row.request = requests.get(row.capability_id) ?? null;
  }
  return rows;
}

/**
 * Reads what our handshakes (probes without payment) send besides method and url, by capability. Endpoints whose
 * handshake sends nothing else are left out.
 */
async function readRequests(lake: Lake, endpoints: readonly { cap: string }[]): Promise<Map<string, string>> {
  const requests = new Map<string, string>();
  const caps = JSON.stringify(endpoints.map(({ cap }) => cap));
  for await (const batch of lake.stream<CurrentRow>(sql("queries/listings:current"), { caps })) {
    await forEachYielding(batch, ROWS_PER_TURN, (row) => {
      const request = describeRequest(parseCurrentListing(row));
      if (request !== null) requests.set(row.cap, request);
    });
  }
  return requests;
}

/** Reads the ids of all capabilities whose address the lake knows. */
export async function knownCaps(lake: Lake): Promise<string[]> {
  const caps: string[] = [];
  for await (const batch of lake.stream<{ cap: string }>("SELECT cap FROM endpoint")) {
    for (const { cap } of batch) caps.push(cap);
  }
  return caps;
}

/**
 * Reads the list of endpoints that got records since the last call, each once, and empties the list; in a newly
 * loaded lake these are all endpoints. The caller keeps the ids until it has written the endpoints' rows.
 */
export async function takeStaleCaps(lake: Lake): Promise<string[]> {
  return lake.transaction(async (tx) => {
    const rows = await tx.all<{ cap: string }>(sql("queries/news:stale"));
    if (rows.length > 0) await tx.run("DELETE FROM stale");
    return rows.map(({ cap }) => cap);
  });
}

function volatileOf(row: Row, corrections: readonly CorrectionRecord[]): VolatileRow {
  const { asked, offers, paid_to, listing_defects, listing_t, terms_defects, differs, terms_t, ...sharedMembers } = row;
  const defects = [
    ...parseDefectsSeenAt(listing_defects, listing_t),
    ...parseDefectsSeenAt(terms_defects, terms_t),
    ...parseDefectsSeenAt(differs, terms_t),
  ];
  return {
    ...sharedMembers,
    asked_for_payment: asked,
    ...askedTermsOf(offers, paid_to),
    defects: JSON.stringify(keepLastOfEach(defects)),
    corrected: JSON.stringify(corrections),
    card_leaf: null,
    request: null,
  };
}

type DefectText = Pick<Defect, "defect" | "says">;
const parseDefects = (defects: string | null): DefectText[] =>
  (JSON.parse(defects ?? "[]") as DefectText[]).map(({ defect, says }) => ({ defect, says }));

const parseDefectsSeenAt = (defects: string | null, seenMs: number | null): Defect[] =>
  seenMs === null ? [] : parseDefects(defects).map((one) => ({ ...one, seenAt: rfc3339(new Date(seenMs)) }));

/**
 * Keeps the last of several defects with one name. Defects of a 402 are after those of a listing, so the text of the
 * 402, which is newer, is kept.
 */
const keepLastOfEach = <T extends DefectText>(defects: readonly T[]): T[] => [
  ...new Map(defects.map((one) => [one.defect, one])).values(),
];

/** Matches a CAIP-2 id, with the lengths of its grammar. */
const CAIP2 = /^[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}$/;

/**
 * Returns each text once, in order, in the spelling of its first occurrence.
 * @param key returns equal keys for texts that count as equal
 */
function distinct(texts: readonly (string | null)[], key = (text: string) => text): string[] {
  const firstByKey = new Map<string, string>();
  for (const text of texts) if (text && !firstByKey.has(key(text))) firstByKey.set(key(text), text);
  return [...firstByKey.values()];
}

/**
 * Is one unit of the offer's asset a dollar? It is for an offer that our wallets can pay, for USDC by contract or
 * symbol, and for the currency codes USD and USDC.
 */
const isDollar = ({ network, asset, payable }: StoredOffer): boolean =>
  payable === true || /^(?:usd|usdc)$/i.test(asset ?? "") || sameAsset(network ?? "", asset ?? "", "usdc") === true;

/**
 * Returns what the newest 402 asks for, even if our wallets cannot pay it.
 * @param allPayTos payTos of all 402s, the last seen first
 */
function askedTermsOf(offers: readonly StoredOffer[], allPayTos: readonly string[]): Pick<VolatileRow, AskedColumn> {
  const readableOffer = offers.find(({ asset, price }) => asset !== null && price !== null);
  const offerWithAsset = readableOffer ?? offers.find(({ asset }) => asset !== null);
  const payTos = distinct(
    offers.map(({ pay_to }) => pay_to),
    addressKey,
  );
  const currentKeys = new Set(payTos.map(addressKey));
  const earlierPayTos = allPayTos.filter((address) => !currentKeys.has(addressKey(address)));
  return {
    price: readableOffer?.price ?? null,
    asset: offerWithAsset?.asset ?? null,
    unit: offerWithAsset && isDollar(offerWithAsset) ? "USD" : null,
    asked_pay_to: (readableOffer ?? offers.find(({ pay_to }) => pay_to))?.pay_to ?? null,
    networks: distinct(offers.map(({ network }) => network)).filter((id) => CAIP2.test(id)),
    pay_tos: payTos,
    pay_tos_before: earlierPayTos.slice(0, Math.max(0, MAX_PAY_TOS - payTos.length)),
  };
}

/**
 * Limits of a shortened JSON schema: properties of one object schema, values of an `enum` (a longer one is left out),
 * characters of a text, levels of nesting, and characters of the whole schema.
 */
const SHORT_SCHEMA_LIMITS = { members: 20, values: 8, text: 80, depth: 3, all: 1_024 };

/**
 * Shortens a JSON schema that a seller declared to the parts that a caller of the endpoint needs: types, properties,
 * which of them are required, short enums and descriptions. Descriptions are left out if the result would be too long
 * with them. null if there is nothing to keep.
 */
export function shortenSchema(schema: unknown): Record<string, unknown> | null {
  for (const withDescriptions of [true, false]) {
    const short = shortenLevel(schema, withDescriptions, SHORT_SCHEMA_LIMITS.depth);
    if (short === null || Object.keys(short).length === 0) return null;
    if (JSON.stringify(short).length <= SHORT_SCHEMA_LIMITS.all) return short;
  }
  return null;
}

function shortenLevel(schema: unknown, withDescriptions: boolean, depth: number): Record<string, unknown> | null {
  if (!isObject(schema)) return null;
  const { type, format, description, required, properties, items } = schema;
  const values =
    Array.isArray(schema.enum) && schema.enum.length <= SHORT_SCHEMA_LIMITS.values ? schema.enum : undefined;
  const names =
    isObject(properties) && depth > 0 ? Object.keys(properties).slice(0, SHORT_SCHEMA_LIMITS.members) : null;
  const members = names?.map((name) => [name, shortenLevel(get(properties, name), withDescriptions, depth - 1) ?? {}]);
  const shortItems = depth > 0 ? shortenLevel(items, withDescriptions, depth - 1) : null;
  const requiredNames = Array.isArray(required) ? required.filter((name) => names?.includes(name as string)) : [];
  return {
    ...(typeof type === "string" || Array.isArray(type) ? { type } : {}),
    ...(typeof format === "string" ? { format: format.slice(0, SHORT_SCHEMA_LIMITS.text) } : {}),
    ...(withDescriptions && typeof description === "string"
      ? { description: description.slice(0, SHORT_SCHEMA_LIMITS.text) }
      : {}),
    ...(values === undefined ? {} : { enum: values }),
    ...(members ? { properties: Object.fromEntries(members) } : {}),
    ...(requiredNames.length > 0 ? { required: requiredNames } : {}),
    ...(shortItems ? { items: shortItems } : {}),
  };
}

/**
 * Returns what our handshake (the probe without payment) sends besides method and url, so that a reader can repeat it
 * (VolatileRow.request). null: it sends nothing else. "": it cannot be shown, because it is too long, because the
 * arguments depend on the server's list of tools, or because the seller declares headers or a body that is not JSON.
 */
export function describeRequest(listing: CurrentListing): string | null {
  const { request } = buildRequest(toListedCap(listing), null, null);
  const { url, body, tool } = request;
  if (tool?.isInputUnknown || (!tool && Object.keys(declaredHeadersOf(request)).length > 0)) return "";
  const handshakeRequest: HandshakeRequest = tool
    ? { tool: tool.name, arguments: tool.arguments }
    : {
        ...(url === listing.url ? {} : { url }),
        ...(body && Buffer.from(body).toString("utf8") !== "{}" ? { body: Buffer.from(body).toString("utf8") } : {}),
      };
  const text = JSON.stringify(handshakeRequest);
  if (text.length > MAX_HANDSHAKE_REQUEST_CHARS) return "";
  const schema = shortenSchema(listing.claims.input_schema);
  const textWithSchema = schema === null ? text : JSON.stringify({ ...handshakeRequest, schema });
  return textWithSchema === "{}" ? null : textWithSchema.length > MAX_HANDSHAKE_REQUEST_CHARS ? text : textWithSchema;
}

interface DayRow extends HistoryDay {
  bucket: number;
}

/**
 * Finds the buckets (groups of capabilities that share one history file) with observations or corrections that the
 * current history lacks.
 * @param positionsBefore log positions up to which that history was made. If they are null, or beyond those of the
 * lake, every bucket with a record is returned
 */
export async function changedBuckets(
  lake: Lake,
  positionsBefore: HistoryNames["positions"] | null,
  currentPositions: Positions,
): Promise<number[]> {
  const knownPositions =
    positionsBefore && !isAnyPositionLower(positionsBefore, currentPositions) ? positionsBefore : {};
  const positionList = Object.entries(knownPositions).flatMap(([topic, parts]) =>
    Object.entries(parts).map(([part, next]) => ({ topic, part: Number(part), next })),
  );
  const rows = await lake.all<{ bucket: number }>(sql("queries/history:changed"), {
    before: JSON.stringify(positionList),
  });
  return rows.map(({ bucket }) => bucket);
}

/**
 * Yields the rows of the last 90 days of these buckets, one bucket at a time, ascending. A bucket without a row is
 * left out. Only one bucket's rows are in memory at a time.
 */
export async function* historyOf(
  lake: Lake,
  buckets: readonly number[],
  now: Date,
): AsyncGenerator<{ bucket: number; rows: HistoryDay[] }> {
  if (buckets.length === 0) return;
  const since = dayStart(addDays(dayOf(now), 1 - HISTORY_DAYS)).getTime();
  let currentBucket: { bucket: number; rows: HistoryDay[] } | null = null;
  for await (const batch of lake.stream<DayRow>(sql("queries/history:days"), {
    buckets: JSON.stringify(buckets),
    since,
  })) {
    for (const { bucket, ...day } of batch) {
      if (currentBucket && currentBucket.bucket !== bucket) {
        yield currentBucket;
        currentBucket = null;
      }
      currentBucket ??= { bucket, rows: [] };
      currentBucket.rows.push(day);
    }
  }
  if (currentBucket) yield currentBucket;
}

/**
 * The content of an endpoint's listing leaf (its entry in the published tree that contains no grade). Its defects
 * lack the time at which they were last seen.
 */
export interface ListingFact {
  /** Id of the endpoint. */
  capability_id: string;
  url: string;
  method: string;
  tool: string | null;
  class: string;
  description: string | null;
  seller_controlled: boolean;
  defects: DefectText[];
  offers: ListedOffer[];
}

/** A row of queries/listings (facts). Its defects are JSON arrays, as in {@link Row}. */
interface FactRow {
  cap: string;
  url: string;
  method: string;
  tool: string | null;
  /** Is the endpoint on the market, and does a source name it now? */
  listed: boolean;
  /** Is the current listing the seller's own? */
  own: boolean;
  class: string | null;
  description: string | null;
  listing_defects: string | null;
  terms_defects: string | null;
  differs: string | null;
  offers: StoredOffer[];
  /** Number of distinct prices, and of distinct payees, in all 402s of the endpoint. */
  prices: number;
  payees: number;
}

/** An endpoint with more distinct prices than this is taken to ask another price in each call. */
const FEW_PRICES = 3;
/**
 * An endpoint with more payees than this, besides those of its newest 402, is taken to name another payee in each
 * call.
 */
const FEW_PAYEES = 3;

/**
 * Reads the endpoints that changed since the last grading, or all endpoints: the content of their listing leaves, and
 * the ids of those that no source names now or that are not on the market. The cost grows with the number of endpoints
 * that changed. Run it in the transaction that empties the table `dirty`, the list of changed endpoints.
 */
export async function listingFacts(
  tx: Statements,
  scope: "changed" | "all",
): Promise<{ listed: ListingFact[]; unlisted: string[] }> {
  const rows = await tx.all<FactRow>(sql("queries/listings:facts"), { every: scope === "all" });
  return {
    listed: rows.filter((row) => row.listed).map(factOf),
    unlisted: rows.filter((row) => !row.listed).map(({ cap }) => cap),
  };
}

const factOf = (row: FactRow): ListingFact => ({
  capability_id: row.cap,
  url: row.url,
  method: row.method,
  tool: row.tool,
  class: row.class ?? "any",
  description: row.description,
  seller_controlled: row.own,
  defects: keepLastOfEach([row.listing_defects, row.terms_defects, row.differs].flatMap(parseDefects)),
  offers: listedOffers(row),
});

/**
 * Returns the offers of the newest 402 for the listing leaf. A price or payee that differs in each 402 becomes null,
 * since otherwise each probe would change the content, and a new leaf would be published.
 */
function listedOffers({ offers, prices, payees }: FactRow): ListedOffer[] {
  const currentPayees = new Set(offers.flatMap(({ pay_to }) => (pay_to ? [addressKey(pay_to)] : [])));
  const hasPrice = prices <= FEW_PRICES;
  const hasPayee = payees <= currentPayees.size + FEW_PAYEES;
  const leafOffers = offers.map(({ network, asset, price, pay_to }) => {
    return { network, asset, price: hasPrice ? price : null, pay_to: hasPayee ? pay_to : null };
  });
  return [...new Map(leafOffers.map((offer) => [JSON.stringify(offer), offer])).values()].slice(0, MAX_LISTED_OFFERS);
}
