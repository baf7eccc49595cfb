import type { DefectCode } from "../record/vocabulary.ts";
import { type ReadEntry, readEntry } from "./entries.ts";
import { get, isObject, parseBase64Json, parseJson } from "./json.ts";

/** Offers that are read of one 402; the rest are dropped (the record takes no more). */
export const MAX_OFFERS = 64;
/** Longest body that is read. */
export const MAX_BODY = 1024 * 1024;

/** Headers with lower-case names, and the body's bytes, of any answer with status 402. */
export interface Answer402 {
  headers: Record<string, string>;
  body: Uint8Array;
}

export interface Envelope {
  value: unknown;
  raw: string | Uint8Array;
  from: "header" | "body";
}

export const looksLikeEntry = (value: unknown): boolean =>
  isObject(value) && typeof value.scheme === "string" && value.network !== undefined;

const looksLikeTerms = (value: unknown): boolean =>
  isObject(value) && (value.accepts !== undefined || value.x402Version !== undefined || looksLikeEntry(value));

const headOf = (body: Uint8Array): string => Buffer.from(body.subarray(0, 4096)).toString("latin1");

/** Version 2 speaks in the header, version 1 in the body; some sellers put either in the other's place. */
function envelopes(answer: Answer402): { found: Envelope[]; malformed: boolean } {
  const found: Envelope[] = [];
  const header = answer.headers["payment-required"];
  let malformed = answer.body.length > MAX_BODY;
  if (header !== undefined) {
    const value = parseBase64Json(header) ?? parseJson(header);
    if (looksLikeTerms(value)) found.push({ value, raw: header, from: "header" });
    else malformed = true;
  }
  const body = answer.body.length <= MAX_BODY ? parseJson(answer.body) : undefined;
  const bare = Array.isArray(body) && looksLikeEntry(body[0]) ? { accepts: body } : body;
  if (looksLikeTerms(bare)) found.push({ value: bare, raw: answer.body, from: "body" });
  // JSON that broke off in the middle of its terms is not the same as having none.
  else if (body === undefined && /"(?:accepts|x402Version)"/.test(headOf(answer.body))) malformed = true;
  return { found, malformed };
}

export interface X402 {
  version: 1 | 2;
  entries: ReadEntry[];
  raw: Envelope | null;
  defects: DefectCode[];
}

function versionOf(value: unknown, first: unknown, from: "header" | "body"): { version: 1 | 2; stated: boolean } {
  const stated = get(value, "x402Version");
  if (stated === 1 || stated === 2) return { version: stated, stated: true };
  if (stated === "1" || stated === "2") return { version: stated === "1" ? 1 : 2, stated: false };
  if (get(first, "maxAmountRequired") !== undefined) return { version: 1, stated: false };
  const caip2 = /^[a-z0-9-]{3,8}:/.test(String(get(first, "network") ?? ""));
  const v2 = from === "header" || get(first, "amount") !== undefined || caip2;
  return { version: v2 ? 2 : 1, stated: false };
}

export function readEnvelope(envelope: Envelope): X402 {
  const accepts = get(envelope.value, "accepts");
  const bare = accepts === undefined && looksLikeEntry(envelope.value);
  const list = Array.isArray(accepts) ? accepts : isObject(accepts) ? [accepts] : bare ? [envelope.value] : [];
  const { version, stated } = versionOf(envelope.value, list[0], envelope.from);
  const defects: DefectCode[] = stated ? [] : ["bad_version"];
  if (accepts !== undefined && !Array.isArray(accepts)) defects.push("malformed_terms");
  if (list.length === 0) defects.push("no_terms");
  if (version === 2 && envelope.from === "body" && list.length > 0) defects.push("terms_in_body");
  const entries = list.slice(0, MAX_OFFERS).map((entry) => readEntry(entry, version));
  if (entries.length > 0 && !entries.some((entry) => entry.valid)) defects.push("no_payable_entry");
  return { version, entries, raw: envelope, defects };
}

/** Header before body; the other one only when the first holds nothing that anybody could pay. */
export function readX402(answer: Answer402): X402 {
  const { found, malformed } = envelopes(answer);
  const read = found.map(readEnvelope);
  const best = read.find((one) => one.entries.some((entry) => entry.valid)) ?? read[0];
  const defects: DefectCode[] = malformed ? ["malformed_terms"] : [];
  if (!best) return { version: 1, entries: [], raw: null, defects };
  return { ...best, defects: [...defects, ...best.defects] };
}
