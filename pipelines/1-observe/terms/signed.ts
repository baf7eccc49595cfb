import { isHex, recoverTypedDataAddress } from "viem";
import { parseUrl } from "../../../infra/url.ts";
import type { BodyOf, Terms } from "../../record/bodies.ts";
import { get, isObject, type JsonObject, parseBase64Json, text } from "../json.ts";

/**
 * Signed offers and receipts (x402 extension `offer-receipt`, version 1): a seller's signature under what it asks, and
 * under what it was paid. Facts beside the grade: no figure and no defect follows from them. EIP-712 signatures are
 * checked. A JWS names a key by DID, which would have to be fetched from wherever the seller says: it is counted alone.
 */
const EXTENSION = "offer-receipt";

/** Signed offers of one 402 that are looked at: each costs some milliseconds. */
const MAX_LOOKED_AT = 4;

type Field = { name: string; type: "uint256" | "string" };
const texts = (...names: string[]): Field[] => names.map((name) => ({ name, type: "string" }));
const number = (name: string): Field => ({ name, type: "uint256" });

const KINDS = {
  Offer: {
    name: "x402 offer",
    fields: [
      number("version"),
      ...texts("resourceUrl", "scheme", "network", "asset", "payTo", "amount"),
      number("validUntil"),
    ],
  },
  Receipt: {
    name: "x402 receipt",
    fields: [
      number("version"),
      ...texts("network", "resourceUrl", "payer"),
      number("issuedAt"),
      ...texts("transaction"),
    ],
  },
} as const;

/** Address that signed it (lower case); null for anything that is no such signature. */
async function signerOf(kind: keyof typeof KINDS, payload: JsonObject, signature: unknown): Promise<string | null> {
  const { name, fields } = KINDS[kind];
  const isWhole = fields.every(({ name: field, type }) =>
    type === "string" ? text(payload[field], 4096) !== undefined || payload[field] === "" : isCount(payload[field]),
  );
  if (!isWhole || !isHex(signature) || signature.length !== 132) return null;
  try {
    const signer = await recoverTypedDataAddress({
      // One domain for every chain: which one is meant stands in the text that is signed.
      domain: { name, version: "1", chainId: 1 },
      types: { [kind]: fields },
      primaryType: kind,
      message: payload,
      signature,
    });
    return signer.toLowerCase();
  } catch {
    return null;
  }
}

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const same = (one: unknown, other: string | null | undefined): boolean =>
  typeof one === "string" && typeof other === "string" && one.toLowerCase() === other.toLowerCase();

/** What is signed speaks of this url, whatever query it was called with. */
function isHere(named: unknown, url: string): boolean {
  const theirs = typeof named === "string" ? parseUrl(named) : null;
  if (theirs === null) return false;
  const ours = new URL(url);
  return theirs.origin === ours.origin && theirs.pathname === ours.pathname;
}

/** Does an offer of this 402 say what was signed? Networks also in the seller's own spelling, as version 1 has them. */
const isAsked = (payload: JsonObject, offers: Terms["offers"]): boolean =>
  offers.some(
    ({ scheme, network, network_raw, asset, pay_to, amount_atomic }) =>
      payload.scheme === scheme &&
      (payload.network === network || payload.network === network_raw) &&
      same(payload.asset, asset) &&
      same(payload.payTo, pay_to) &&
      payload.amount === amount_atomic,
  );

type SignedOffers = NonNullable<BodyOf<"handshake">["signed_offers"]>;

/**
 * The signed offers of a 402; null where there are none. Valid: the signature is over what this 402 asks, at this url, and
 * has not run out. Authorised: the payee of that offer signed it itself. Never throws for what the seller sent.
 * @param now unix seconds
 */
export async function signedOffers(
  { terms, extensions }: { terms: Pick<Terms, "offers">; extensions: unknown },
  url: string,
  now: number,
): Promise<SignedOffers | null> {
  const listed = get(extensions, EXTENSION, "info", "offers");
  if (!Array.isArray(listed) || listed.length === 0) return null;
  const seen: SignedOffers = { present: Math.min(listed.length, 1_000), unread: 0, valid: 0, authorised: 0 };
  for (const one of listed.slice(0, MAX_LOOKED_AT)) {
    const payload = get(one, "payload");
    if (get(one, "format") !== "eip712" || !isObject(payload)) {
      seen.unread++;
      continue;
    }
    const signer = await signerOf("Offer", payload, get(one, "signature"));
    const until = payload.validUntil as number;
    if (signer === null || !isHere(payload.resourceUrl, url) || !isAsked(payload, terms.offers)) continue;
    if (until !== 0 && until < now) continue;
    seen.valid++;
    if (same(payload.payTo, signer)) seen.authorised++;
  }
  seen.unread += Math.max(0, seen.present - MAX_LOOKED_AT);
  return seen;
}

type SignedReceipt = NonNullable<BodyOf<"paid.result">["signed_receipt"]>;

/**
 * The signed receipt of a paid answer (header `PAYMENT-RESPONSE`); null where there is none. Valid: the signature is over
 * this url, this payer and the network that was paid on. Authorised: the payee signed it. Settlement is believed from the
 * chain alone, whatever it says.
 */
export async function signedReceipt(
  headers: Readonly<Record<string, string>> | undefined,
  { url, wallet, quote }: Pick<BodyOf<"paid.intent">, "url" | "wallet" | "quote">,
): Promise<SignedReceipt | null> {
  const header = headers?.["payment-response"] ?? headers?.["x-payment-response"];
  const receipt = header && get(parseBase64Json(header), "extensions", EXTENSION, "info", "receipt");
  if (!isObject(receipt)) return null;
  const { payload } = receipt;
  if (receipt.format !== "eip712" || !isObject(payload)) return { read: false, valid: false, authorised: false };
  const signer = await signerOf("Receipt", payload, receipt.signature);
  const valid =
    signer !== null &&
    isHere(payload.resourceUrl, url) &&
    same(payload.payer, wallet) &&
    payload.network === quote.network;
  return { read: true, valid, authorised: valid && same(quote.pay_to, signer) };
}
