import type { NewRecord } from "../../../infra/log/log.ts";
import type { BodyOf, RecordType } from "../../../pipelines/record/bodies.ts";
import { sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../../pipelines/record/ids.ts";
import { PARTITIONS } from "./world.ts";

export const SHA = "ab".repeat(32);
export const PAY_TO = "0x1111111111111111111111111111111111111111";
export const urlOf = (name: string): string => `https://${name}.example/paid`;
export const capOf = (name: string): string => capId("GET", urlOf(name));
/** A moment of the test's day. */
export const at = (time: string, day = "2026-11-10"): string => `${day}T${time}.000Z`;
export const later = (time: string, ms: number): string => new Date(Date.parse(time) + ms).toISOString();
const blockOf = (time: string): number => Math.floor(Date.parse(time) / 21_600_000);

interface Sealed extends NewRecord {
  eventId: string;
}

export function seal<T extends RecordType>(
  type: T,
  key: string,
  slot: string,
  observed_at: string,
  body: BodyOf<T>,
  cap?: string,
): Sealed {
  const event_id = recordId(type, key, slot);
  return sealEnvelope(
    { v: 1, type, event_id, ...(cap && { cap }), key, observed_at, producer: "test/1", body },
    PARTITIONS,
  );
}

export const OFFER = {
  scheme: "exact",
  network: "eip155:8453",
  network_raw: "base",
  asset: "0xasset",
  pay_to: PAY_TO,
  amount_atomic: "20000",
  decimals: 6,
  price: "0.020000",
  max_timeout_s: 60,
  payable: true,
};
export const TERMS = {
  sha256: SHA,
  protocols: ["x402" as const],
  x402_version: 1,
  offers: [OFFER],
  defects: [{ defect: "network_form", says: "other version's form" }],
  schema_sha256: null,
};

export function handshake(name: string, time: string, over: Partial<BodyOf<"handshake">> = {}, slot = ""): Sealed {
  const cap = capOf(name);
  const minute = Math.floor((Date.parse(time) % 21_600_000) / 60_000);
  const offer = { ...OFFER, ...(over.price && { price: over.price }) };
  const body: BodyOf<"handshake"> = {
    slot: { block: blockOf(time), minute },
    planned: "free",
    state: "asked",
    live: true,
    honest: true,
    wall: false,
    fault: null,
    status: 402,
    latency_ms: 120.5,
    price: "0.020000",
    pay_to: PAY_TO,
    terms: { ...TERMS, offers: [offer] },
    differs: [],
    ...over,
  };
  return seal("handshake", cap, slot || `${body.slot.block}/${body.slot.minute}`, time, body, cap);
}

export function intent(name: string, time: string, over: Partial<BodyOf<"paid.intent">> = {}): Sealed {
  const cap = capOf(name);
  const minute = Math.floor((Date.parse(time) % 21_600_000) / 60_000);
  const body: BodyOf<"paid.intent"> = {
    slot: { block: blockOf(time), minute },
    attempt: 0,
    planned_at: time,
    w: 1,
    retest: false,
    blind: false,
    wallet: "known-1",
    input: "example",
    url: urlOf(name),
    method: "GET",
    request_sha256: SHA,
    schema_sha256: null,
    listing_record: null,
    quote: {
      price: "0.020000",
      amount_atomic: "20000",
      asset: "0xasset",
      network: "eip155:8453",
      pay_to: PAY_TO,
      max_timeout_s: 60,
      x402_version: 1,
    },
    first_leg: { honest: true, latency_ms: 90, terms: TERMS, differs: [] },
    header_name: "x-payment",
    signed_bytes: "c2lnbmVk",
    nonce: "0x01",
    valid_before: Math.floor(Date.parse(time) / 1000) + 120,
    since_block: 1,
    deadline: later(time, 60_000),
    ...over,
  };
  return seal("paid.intent", cap, `${body.slot.block}/${body.slot.minute}`, time, body, cap);
}

export const CAME = {
  status: 200,
  delivered: true,
  delivery: 1,
  outcome: null,
  schema_ok: true,
  latency_ms: 500,
  checks: [],
  response_sha256: SHA,
  response_bytes: 10,
};
export const NOTHING = {
  ...CAME,
  status: null,
  delivered: false,
  delivery: null,
  schema_ok: null,
  response_sha256: null,
  response_bytes: 0,
};

export function result(name: string, of: string, time: string, over: Partial<BodyOf<"paid.result">> = {}): Sealed {
  const body: BodyOf<"paid.result"> = {
    intent: of,
    watched: true,
    ended: "closed",
    fault: null,
    live: true,
    honest: true,
    wall: false,
    ...CAME,
    differs: [],
    control: null,
    ...over,
  };
  return seal("paid.result", capOf(name), JSON.stringify([of, body, time]), time, body, capOf(name));
}

export function settlement(name: string, of: string, time: string, over: Partial<BodyOf<"settlement">> = {}): Sealed {
  const body: BodyOf<"settlement"> = {
    intent: of,
    tx: "0xtx",
    block_number: 7,
    block_time: Math.floor(Date.parse(time) / 1000),
    from: "0xus",
    to: PAY_TO,
    amount_atomic: "20000",
    price: "0.020000",
    asset: "0xasset",
    network: "eip155:8453",
    nonce: "0x01",
    final: true,
    as_quoted: true,
    ...over,
  };
  return seal("settlement", capOf(name), JSON.stringify([body, time]), time, body, capOf(name));
}

export function followup(name: string, of: string, time: string, over: Partial<BodyOf<"paid.followup">>): Sealed {
  const body: BodyOf<"paid.followup"> = { of, kind: "finality", ...over };
  return seal("paid.followup", capOf(name), JSON.stringify([body, time]), time, body, capOf(name));
}

/** Who else pays where an endpoint is paid. */
export function buyers(name: string, time: string, over: Partial<BodyOf<"payee.buyers">> = {}): Sealed {
  const body: BodyOf<"payee.buyers"> = {
    ...{ network: "eip155:8453", asset: "0xasset", pay_to: PAY_TO, since: 1_762_473_600, until: 1_763_078_400 },
    ...{ from_block: 100, to_block: 302_499, whole: true, payers: 2, transfers: 3, total: "4.000000" },
    ...{ largest_share: 0.75, effective_payers: 1.6, ours: { transfers: 12, total: "0.240000" } },
    ...over,
  };
  return seal("payee.buyers", capOf(name), JSON.stringify([body, time]), time, body, capOf(name));
}

/** A call that a buyer published. @param n which one of that moment's */
export function published(name: string, time: string, n: number, over: Partial<BodyOf<"paid.published">> = {}): Sealed {
  const order = `ord_${"0123456789ABCDEFGHJKMNPQRS".slice(0, 20)}${String(n).padStart(6, "0")}`;
  const body: BodyOf<"paid.published"> = {
    ...{ order, leg: 0, payer: "buyer_0123456789ABCDEFGHJKMNPQRS", url: urlOf(name), method: "GET" },
    ...{ price: "0.020000", pay_to: PAY_TO, network: "eip155:8453", asset: "0xasset", tx: "0xsold", pass: true },
    ...{ status: 200, delivered: true, delivery: 1, schema_ok: true, latency_ms: 500, checks: [], content_type: null },
    ...{ request_sha256: SHA, request_bytes: 30, response_sha256: SHA, response_bytes: 10 },
    ...over,
  };
  return seal("paid.published", capOf(name), `${order}/0`, time, body, capOf(name));
}

export function listing(name: string, time: string, over: Partial<BodyOf<"listing">> = {}): Sealed {
  const body: BodyOf<"listing"> = {
    source: "https://catalogue.example",
    source_id: name,
    seller_controlled: false,
    normalised_url: urlOf(name),
    claims: {
      url: urlOf(name),
      method: null,
      tool: null,
      description: null,
      class: "any",
      offers: [],
      fixed_price: false,
      example: null,
      output_mime: null,
    },
    defects: [],
    ...over,
  };
  return seal("listing", capOf(name), JSON.stringify([body, time]), time, body, capOf(name));
}

export function classMapped(name: string, time: string, body: BodyOf<"class.mapped">): Sealed {
  return seal("class.mapped", capOf(name), JSON.stringify(body), time, body, capOf(name));
}

export function delisting(name: string, time: string, over: Partial<BodyOf<"delisting">> = {}): Sealed {
  const body = { source: "https://catalogue.example", source_id: name, reason: "gone", ...over };
  return seal("delisting", capOf(name), JSON.stringify([body, time]), time, body, capOf(name));
}

export function ask(name: string, time: string): Sealed {
  const host = new URL(urlOf(name)).host;
  const body = { url: urlOf(name), normalised_url: urlOf(name), method: null, host, cap: capOf(name) };
  return seal("ask", host, `${name} ${time.slice(0, 13)}`, time, body);
}

export function correction(name: string, time: string, over: Partial<BodyOf<"correction">> = {}): Sealed {
  const body = {
    id: "c1",
    record_id: null,
    grade_at: null,
    fault: "ours",
    says: "our fault",
    issued_at: time,
    ...over,
  };
  return seal("correction", capOf(name), JSON.stringify(body), time, body, capOf(name));
}

export function dispute(name: string, time: string, record_id: string | null = null): Sealed {
  const body = { id: "d1", record_id, says: "not so", pay_to: PAY_TO, signature: "0x" };
  return seal("dispute", capOf(name), JSON.stringify(body), time, body, capOf(name));
}

export function reinstated(name: string, time: string, of: string): Sealed {
  const body = { correction: of, says: "it was right" };
  return seal("reinstated", capOf(name), JSON.stringify(body), time, body, capOf(name));
}

/** Bytes that no reader of today takes, in the place of a handshake. */
export function garbage(name: string, text: string): Sealed {
  const record = handshake(name, at("00:00:00"), {}, text);
  return { ...record, value: Buffer.from(text) };
}
