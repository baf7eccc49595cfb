import { isHex, recoverTypedDataAddress } from "viem";
import { parseUrl } from "../../../infra/url.ts";
import type { BodyOf, Terms } from "../../record/bodies.ts";
import { get, isObject, type JsonObject, parseBase64Json, text } from "../json.ts";

/**
 * Name of the x402 extension (version 1) with signed offers and receipts: a seller signs the price that it asks and the
 * payment that it received. The results are published beside the grade and change neither grade nor defects. EIP-712
 * signatures are checked. A JWS is only counted: its key would have to be fetched from an address that the seller
 * chooses (a DID).
 */
const EXTENSION = "offer-receipt";

/** Largest number of signed offers of one 402 that are checked. Each check costs some milliseconds. */
const MAX_CHECKED = 4;

type Field = { name: string; type: "uint256" | "string" };
const textFields = (...names: string[]): Field[] => names.map((name) => ({ name, type: "string" }));
const uintField = (name: string): Field => ({ name, type: "uint256" });

const PAYLOAD_KINDS = {
  Offer: {
    name: "x402 offer",
    fields: [
      uintField("version"),
      ...textFields("resourceUrl", "scheme", "network", "asset", "payTo", "amount"),
      uintField("validUntil"),
    ],
  },
  Receipt: {
    name: "x402 receipt",
    fields: [
      uintField("version"),
      ...textFields("network", "resourceUrl", "payer"),
      uintField("issuedAt"),
      ...textFields("transaction"),
    ],
  },
} as const;

/** Recovers the address that signed the payload, in lower case; null when the signature is not valid for this kind. */
async function recoverSigner(
  kind: keyof typeof PAYLOAD_KINDS,
  payload: JsonObject,
  signature: unknown,
): Promise<string | null> {
  const { name, fields } = PAYLOAD_KINDS[kind];
  const isComplete = fields.every(({ name: field, type }) =>
    type === "string" ? text(payload[field], 4096) !== undefined || payload[field] === "" : isCount(payload[field]),
  );
  if (!isComplete || !isHex(signature) || signature.length !== 132) return null;
  try {
    const signer = await recoverTypedDataAddress({
      // The EIP-712 domain is equal for all chains, since the signed payload names the chain.
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
const isSameText = (one: unknown, other: string | null | undefined): boolean =>
  typeof one === "string" && typeof other === "string" && one.toLowerCase() === other.toLowerCase();

/** Does the signed payload name this url, apart from the query? */
function isForUrl(resourceUrl: unknown, url: string): boolean {
  const parsedUrl = typeof resourceUrl === "string" ? parseUrl(resourceUrl) : null;
  if (parsedUrl === null) return false;
  const requestedUrl = new URL(url);
  return parsedUrl.origin === requestedUrl.origin && parsedUrl.pathname === requestedUrl.pathname;
}

/**
 * Does an offer of this 402 equal the signed offer? The network may be in the seller's own spelling, as in x402 version
 * 1.
 */
const isInOffers = (payload: JsonObject, offers: Terms["offers"]): boolean =>
  offers.some(
    ({ scheme, network, network_raw, asset, pay_to, amount_atomic }) =>
      payload.scheme === scheme &&
      (payload.network === network || payload.network === network_raw) &&
      isSameText(payload.asset, asset) &&
      isSameText(payload.payTo, pay_to) &&
      payload.amount === amount_atomic,
  );

type SignedOffers = NonNullable<BodyOf<"handshake">["signed_offers"]>;

/**
 * Checks the signed offers of a 402; null if there are none. `valid`: the signature covers an offer of this 402 for
 * this url and has not expired. `authorised`: the payee of that offer signed it itself. Never throws for anything that
 * the seller sent.
 * @param now unix seconds
 */
export async function checkSignedOffers(
  { terms, extensions }: { terms: Pick<Terms, "offers">; extensions: unknown },
  url: string,
  now: number,
): Promise<SignedOffers | null> {
  const signedOffers = get(extensions, EXTENSION, "info", "offers");
  if (!Array.isArray(signedOffers) || signedOffers.length === 0) return null;
  const counts: SignedOffers = { present: Math.min(signedOffers.length, 1_000), unread: 0, valid: 0, authorised: 0 };
  for (const signedOffer of signedOffers.slice(0, MAX_CHECKED)) {
    const payload = get(signedOffer, "payload");
    if (get(signedOffer, "format") !== "eip712" || !isObject(payload)) {
      counts.unread++;
      continue;
    }
    const signer = await recoverSigner("Offer", payload, get(signedOffer, "signature"));
    const validUntil = payload.validUntil as number;
    if (signer === null || !isForUrl(payload.resourceUrl, url) || !isInOffers(payload, terms.offers)) continue;
    if (validUntil !== 0 && validUntil < now) continue;
    counts.valid++;
    if (isSameText(payload.payTo, signer)) counts.authorised++;
  }
  counts.unread += Math.max(0, counts.present - MAX_CHECKED);
  return counts;
}

type SignedReceipt = NonNullable<BodyOf<"paid.result">["signed_receipt"]>;

/**
 * Checks the signed receipt of a paid answer (header `PAYMENT-RESPONSE`); null if there is none. `valid`: the signature
 * covers this url, this payer and the network of the payment. `authorised`: the payee signed it. The receipt never
 * proves a settlement; only the chain does.
 */
export async function checkSignedReceipt(
  headers: Readonly<Record<string, string>> | undefined,
  { url, wallet, quote }: Pick<BodyOf<"paid.intent">, "url" | "wallet" | "quote">,
): Promise<SignedReceipt | null> {
  const header = headers?.["payment-response"] ?? headers?.["x-payment-response"];
  const receipt = header && get(parseBase64Json(header), "extensions", EXTENSION, "info", "receipt");
  if (!isObject(receipt)) return null;
  const { payload } = receipt;
  if (receipt.format !== "eip712" || !isObject(payload)) return { read: false, valid: false, authorised: false };
  const signer = await recoverSigner("Receipt", payload, receipt.signature);
  const valid =
    signer !== null &&
    isForUrl(payload.resourceUrl, url) &&
    isSameText(payload.payer, wallet) &&
    payload.network === quote.network;
  return { read: true, valid, authorised: valid && isSameText(quote.pay_to, signer) };
}
