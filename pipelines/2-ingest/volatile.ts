import { forEachYielding } from "../../infra/concurrency.ts";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { get, isObject } from "../1-observe/json.ts";
import { buildRequest } from "../1-observe/probe/request.ts";
import { type CurrentListing, type CurrentRow, parseListing, toListedCap } from "../1-observe/probe/unplanned.ts";
import { windowStart } from "../3-grade/params.ts";
import { HISTORY_DAYS, type HistoryDay, type HistoryNames } from "../record/history.ts";
import { type ListedOffer, MAX_LISTED_OFFERS } from "../record/leaf.ts";
import { addressKey } from "../record/networks.ts";
import { sameAsset } from "../record/terms/networks.ts";
import { addDays, dayOf, dayStart, rfc3339 } from "../record/time.ts";
import type { Defect } from "../record/vocabulary.ts";
import {
  type CorrectionRecord,
  HANDSHAKE_REQUEST_MAX,
  type HandshakeRequest,
  isAnyPositionLower,
  MAX_PAY_TOS,
  type Positions,
  type VolatileRow,
} from "../record/volatile.ts";

/** An offer of the newest 402, as the lake keeps it. */
interface Offered {
  network: string | null;
  asset: string | null;
  payable: boolean | null;
  pay_to: string | null;
  price: string | null;
}

type AskedColumn = "price" | "asset" | "unit" | "asked_pay_to" | "networks" | "pay_tos" | "pay_tos_before";

interface Row extends Omit<VolatileRow, "asked_for_payment" | "defects" | "corrected" | "request" | AskedColumn> {
  asked: number;
  offers: Offered[];
  paid_to: string[];
  listing_defects: string | null;
  listing_t: number | null;
  terms_defects: string | null;
  differs: string | null;
  terms_t: number | null;
}

/** What published headline cards stood on. Without one nothing is newer than the card, and both counts are 0. */
export interface Published {
  /** `computed_at` (RFC 3339) of a capability's card, and {topic: next offset} of what its run had read. */
  get(cap: string): { at: string; read: Readonly<Record<string, number>> } | undefined;
}

/** Rows that are made between two turns of others: a few milliseconds. */
const ROWS_A_TURN = 64;

/**
 * Rows of the volatile table, ascending by capability; an endpoint whose address is not known has none.
 * @param corrections records of corrections that are not in the tree yet, by capability
 * @param caps endpoints that are asked for (default: all that the lake knows)
 */
export async function volatileRows(
  lake: Lake,
  published: Published,
  corrections: ReadonlyMap<string, readonly CorrectionRecord[]> = new Map(),
  caps?: readonly string[],
): Promise<VolatileRow[]> {
  const wanted = (caps ?? (await knownCaps(lake))).map((cap) => {
    const card = published.get(cap);
    if (!card) return { cap, at: null, since: null, read: null };
    const at = new Date(card.at);
    return { cap, at: at.getTime(), since: windowStart(at).getTime(), read: card.read };
  });
  const rows: VolatileRow[] = [];
  if (wanted.length === 0) return rows;
  for await (const batch of lake.stream<Row>(sql("queries/volatile"), { wanted: JSON.stringify(wanted) })) {
    await forEachYielding(batch, ROWS_A_TURN, (row) =>
      rows.push(volatileOf(row, corrections.get(row.capability_id) ?? [])),
    );
  }
  const requests = await requestsOf(lake, wanted);
  for (const row of rows) row.request = requests.get(row.capability_id) ?? null;
  return rows;
}

/** What handshakes have beside method and url, by capability; only where there is something to say. */
async function requestsOf(lake: Lake, wanted: readonly { cap: string }[]): Promise<Map<string, string>> {
  const requests = new Map<string, string>();
  const caps = JSON.stringify(wanted.map(({ cap }) => cap));
  for await (const batch of lake.stream<CurrentRow>(sql("queries/listings:current"), { caps })) {
    await forEachYielding(batch, ROWS_A_TURN, (row) => {
      const request = repeatable(parseListing(row));
      if (request !== null) requests.set(row.cap, request);
    });
  }
  return requests;
}

/** Every capability whose address the lake knows. */
export async function knownCaps(lake: Lake): Promise<string[]> {
  const caps: string[] = [];
  for await (const batch of lake.stream<{ cap: string }>("SELECT cap FROM endpoint")) {
    for (const { cap } of batch) caps.push(cap);
  }
  return caps;
}

/**
 * Endpoints that records came of since this was asked last, each once; all of them in a lake that was loaded anew. They are
 * told once: who asks keeps them until their rows are written.
 */
export async function takeStale(lake: Lake): Promise<string[]> {
  return lake.transaction(async (tx) => {
    const rows = await tx.all<{ cap: string }>(sql("queries/news:stale"));
    if (rows.length > 0) await tx.run("DELETE FROM stale");
    return rows.map(({ cap }) => cap);
  });
}

function volatileOf(row: Row, corrections: readonly CorrectionRecord[]): VolatileRow {
  const { asked, offers, paid_to, listing_defects, listing_t, terms_defects, differs, terms_t, ...same } = row;
  const defects = [
    ...seenAt(listing_defects, listing_t),
    ...seenAt(terms_defects, terms_t),
    ...seenAt(differs, terms_t),
  ];
  return {
    ...same,
    asked_for_payment: asked,
    ...askedOf(offers, paid_to),
    defects: JSON.stringify(lastOfEach(defects)),
    corrected: JSON.stringify(corrections),
    request: null,
  };
}

type Said = Pick<Defect, "defect" | "says">;
const saidIn = (defects: string | null): Said[] =>
  (JSON.parse(defects ?? "[]") as Said[]).map(({ defect, says }) => ({ defect, says }));

const seenAt = (defects: string | null, at: number | null): Defect[] =>
  at === null ? [] : saidIn(defects).map((one) => ({ ...one, seenAt: rfc3339(new Date(at)) }));

/** A 402 is newer than any listing that spoke of it and stands behind it here, so of two with one name its words stay. */
const lastOfEach = <T extends Said>(defects: readonly T[]): T[] => [
  ...new Map(defects.map((one) => [one.defect, one])).values(),
];

/** CAIP-2: namespace and reference, in the grammar's own lengths. */
const CAIP2 = /^[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}$/;

/** Once each, in order, as written where it stood first. */
function distinct(texts: readonly (string | null)[], key = (text: string) => text): string[] {
  const first = new Map<string, string>();
  for (const text of texts) if (text && !first.has(key(text))) first.set(key(text), text);
  return [...first.values()];
}

/** A unit of it is a dollar: our rail's own asset, USDC by contract or symbol, or the currency code itself. */
const isDollar = ({ network, asset, payable }: Offered): boolean =>
  payable === true || /^(?:usd|usdc)$/i.test(asset ?? "") || sameAsset(network ?? "", asset ?? "", "usdc") === true;

/** What the newest 402 asked, whether or not our rail could pay it. @param paidTo addresses of all 402s, seen last first */
function askedOf(offers: readonly Offered[], paidTo: readonly string[]): Pick<VolatileRow, AskedColumn> {
  const readable = offers.find(({ asset, price }) => asset !== null && price !== null);
  const named = readable ?? offers.find(({ asset }) => asset !== null);
  const payTos = distinct(
    offers.map(({ pay_to }) => pay_to),
    addressKey,
  );
  const now = new Set(payTos.map(addressKey));
  const before = paidTo.filter((address) => !now.has(addressKey(address)));
  return {
    price: readable?.price ?? null,
    asset: named?.asset ?? null,
    unit: named && isDollar(named) ? "USD" : null,
    asked_pay_to: (readable ?? offers.find(({ pay_to }) => pay_to))?.pay_to ?? null,
    networks: distinct(offers.map(({ network }) => network)).filter((id) => CAIP2.test(id)),
    pay_tos: payTos,
    pay_tos_before: before.slice(0, Math.max(0, MAX_PAY_TOS - payTos.length)),
  };
}

/** What a shortened schema keeps: members of an object, values of an enum, characters of a text, levels, and all in all. */
const SHORT = { members: 20, values: 8, text: 80, depth: 3, all: 1_024 };

/**
 * What somebody who is about to call an endpoint needs of a declared schema: types, members, which are required, short
 * enums and descriptions; without descriptions if it would be too long with them; null if there is nothing to keep.
 */
export function shortSchema(schema: unknown): Record<string, unknown> | null {
  for (const described of [true, false]) {
    const short = shortened(schema, described, SHORT.depth);
    if (short === null || Object.keys(short).length === 0) return null;
    if (JSON.stringify(short).length <= SHORT.all) return short;
  }
  return null;
}

function shortened(schema: unknown, described: boolean, depth: number): Record<string, unknown> | null {
  if (!isObject(schema)) return null;
  const { type, format, description, required, properties, items } = schema;
  const values = Array.isArray(schema.enum) && schema.enum.length <= SHORT.values ? schema.enum : undefined;
  const names = isObject(properties) && depth > 0 ? Object.keys(properties).slice(0, SHORT.members) : null;
  const members = names?.map((name) => [name, shortened(get(properties, name), described, depth - 1) ?? {}]);
  const of = depth > 0 ? shortened(items, described, depth - 1) : null;
  const needed = Array.isArray(required) ? required.filter((name) => names?.includes(name as string)) : [];
  return {
    ...(typeof type === "string" || Array.isArray(type) ? { type } : {}),
    ...(typeof format === "string" ? { format: format.slice(0, SHORT.text) } : {}),
    ...(described && typeof description === "string" ? { description: description.slice(0, SHORT.text) } : {}),
    ...(values === undefined ? {} : { enum: values }),
    ...(members ? { properties: Object.fromEntries(members) } : {}),
    ...(needed.length > 0 ? { required: needed } : {}),
    ...(of ? { items: of } : {}),
  };
}

/**
 * What our free handshake sends beside method and url, so that a reader can repeat it (VolatileRow.request). null: nothing.
 * "": it cannot be shown, because it is too long, or because the server's list of tools decides the arguments.
 */
export function repeatable(listing: CurrentListing): string | null {
  const { request } = buildRequest(toListedCap(listing), null, null);
  const { url, body, tool } = request;
  if (tool?.isInputUnknown) return "";
  const told: HandshakeRequest = tool
    ? { tool: tool.name, arguments: tool.arguments }
    : {
        ...(url === listing.url ? {} : { url }),
        ...(body && Buffer.from(body).toString("utf8") !== "{}" ? { body: Buffer.from(body).toString("utf8") } : {}),
      };
  const text = JSON.stringify(told);
  if (text.length > HANDSHAKE_REQUEST_MAX) return "";
  const schema = shortSchema(listing.claims.input_schema);
  const whole = schema === null ? text : JSON.stringify({ ...told, schema });
  return whole === "{}" ? null : whole.length > HANDSHAKE_REQUEST_MAX ? text : whole;
}

interface DayRow extends HistoryDay {
  bucket: number;
}

/**
 * Buckets with observations or corrections that the history in force does not know.
 * @param before positions of that history; null or ones that the lake is not up to: every bucket with a record.
 */
export async function changedBuckets(
  lake: Lake,
  before: HistoryNames["positions"] | null,
  now: Positions,
): Promise<number[]> {
  const known = before && !isAnyPositionLower(before, now) ? before : {};
  const list = Object.entries(known).flatMap(([topic, parts]) =>
    Object.entries(parts).map(([part, next]) => ({ topic, part: Number(part), next })),
  );
  const rows = await lake.all<{ bucket: number }>(sql("queries/history:changed"), { before: JSON.stringify(list) });
  return rows.map(({ bucket }) => bucket);
}

/**
 * The last 90 days of these buckets, one bucket at a time, ascending; a bucket without a row is left out. At most one
 * bucket's rows are held.
 */
export async function* historyOf(
  lake: Lake,
  buckets: readonly number[],
  now: Date,
): AsyncGenerator<{ bucket: number; rows: HistoryDay[] }> {
  if (buckets.length === 0) return;
  const since = dayStart(addDays(dayOf(now), 1 - HISTORY_DAYS)).getTime();
  let held: { bucket: number; rows: HistoryDay[] } | null = null;
  for await (const batch of lake.stream<DayRow>(sql("queries/history:days"), {
    buckets: JSON.stringify(buckets),
    since,
  })) {
    for (const { bucket, ...day } of batch) {
      if (held && held.bucket !== bucket) {
        yield held;
        held = null;
      }
      held ??= { bucket, rows: [] };
      held.rows.push(day);
    }
  }
  if (held) yield held;
}

/** What a listing leaf says of an endpoint: defects without the moment they were last seen. */
export interface ListingFact {
  capability_id: string;
  url: string;
  method: string;
  tool: string | null;
  class: string;
  description: string | null;
  seller_controlled: boolean;
  defects: Said[];
  offers: ListedOffer[];
}

interface FactRow {
  cap: string;
  url: string;
  method: string;
  tool: string | null;
  listed: boolean;
  own: boolean;
  class: string | null;
  description: string | null;
  listing_defects: string | null;
  terms_defects: string | null;
  differs: string | null;
  offers: Offered[];
  /** Distinct prices and payees of all 402s. */
  prices: number;
  payees: number;
}

/** With more prices than this an endpoint has none that holds until the next call. */
const FEW_PRICES = 3;
/** With so many payees beside those of its newest 402 an endpoint names another one in each call. */
const FEW_PAYEES = 3;

/**
 * The endpoints with news since the last grade, or all of them: what their listing leaves would say, and those that no
 * source names now. Costs by the number of endpoints with news; run it in the transaction that clears `dirty`.
 */
export async function listingFacts(
  tx: Statements,
  which: "changed" | "all",
): Promise<{ listed: ListingFact[]; unlisted: string[] }> {
  const rows = await tx.all<FactRow>(sql("queries/listings:facts"), { every: which === "all" });
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
  defects: lastOfEach([row.listing_defects, row.terms_defects, row.differs].flatMap(saidIn)),
  offers: listedOffers(row),
});

/**
 * What the newest 402 offers, for the leaf. Sellers that ask another price or name another address in each 402 would have a
 * leaf for each probe, so theirs is null.
 */
function listedOffers({ offers, prices, payees }: FactRow): ListedOffer[] {
  const now = new Set(offers.flatMap(({ pay_to }) => (pay_to ? [addressKey(pay_to)] : [])));
  const hasPrice = prices <= FEW_PRICES;
  const hasPayee = payees <= now.size + FEW_PAYEES;
  const listed = offers.map(({ network, asset, price, pay_to }) => {
    return { network, asset, price: hasPrice ? price : null, pay_to: hasPayee ? pay_to : null };
  });
  return [...new Map(listed.map((offer) => [JSON.stringify(offer), offer])).values()].slice(0, MAX_LISTED_OFFERS);
}
