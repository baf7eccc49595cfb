import { isHex, recoverTypedDataAddress } from "viem";
import { parseUrl } from "../../../infra/url.ts";
import type { BodyOf, Terms } from "../../record/bodies.ts";
import { get, isObject, type JsonObject, parseBase64Json, text } from "../json.ts";

/**
 * Signed offers and receipts (x402 extension `offer-receipt`, version 1): a seller's signature of what it asks and of
 * what it was paid. They are facts beside the grade, and no figure and no defect follows from them. EIP-712 signatures
 * are checked. A JWS names its key by DID, which would have to be fetched from an address that the seller chooses: it
 * is only counted.
 */
const EXTENSION = "offer-receipt";

/** Most signed offers of one 402 that are checked: each costs some milliseconds. */
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

/** The address that signed the payload (lower case); null when it is no valid signature of this kind. */
async function signerOf(kind: keyof typeof KINDS, payload: JsonObject, signature: unknown): Promise<string | null> {
  const { name, fields } = KINDS[kind];
  const isWhole = fields.every(({ name: field, type }) =>
    type === "string" ? text(payload[field], 4096) !== undefined || payload[field] === "" : isCount(payload[field]),
  );
  if (!isWhole || !isHex(signature) || signature.length !== 132) return null;
  try {
    const signer = await recoverTypedDataAddress({
      // All chains share one domain; the signed text names the chain.
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

/** Does the signed text name this url, apart from the query? */
function isHere(named: unknown, url: string): boolean {
  const theirs = typeof named === "string" ? parseUrl(named) : null;
  if (theirs === null) return false;
  const ours = new URL(url);
  return theirs.origin === ours.origin && theirs.pathname === ours.pathname;
}

/** Does an offer of this 402 equal the signed one? The network may be in the seller's own spelling, as in version 1. */
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
 * Checks the signed offers of a 402; null where there are none. Valid: the signature is over an offer of this 402 for
 * this url, and has not expired. Authorised: the payee of that offer signed it itself. Never throws for what the seller
 * sent.
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
 * Checks the signed receipt of a paid answer (header `PAYMENT-RESPONSE`); null where there is none. Valid: the
 * signature is over this url, this payer and the network that was paid on. Authorised: the payee signed it. Whatever it
 * states, settlement is believed from the chain alone.
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
