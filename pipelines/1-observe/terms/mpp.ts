import type { PayableEntry, PaymentChallenge } from "../../../infra/rails/rails.ts";
import type { Offer } from "../../record/bodies.ts";
import { clean, parseBase64Json } from "../../record/json.ts";
import type { Challenge } from "../../record/terms/challenges.ts";
import { readMppRequest } from "../../record/terms/mpp.ts";
import { decimalsOf, hasKnownAddresses, looksLikeAddress, mayBePayableIn } from "../../record/terms/networks.ts";
import type { DefectCode } from "../../record/vocabulary.ts";
import { type ParsedEntry, priceOf } from "./x402.ts";

/**
 * Time for which the protocol's own client makes a signature valid, seconds. The challenge's `expires` may end the
 * validity sooner. The rail, which knows the time, takes that into account.
 */
const STOCK_VALIDITY_S = 300;

const CHALLENGE_PARAMETERS = [
  "id",
  "realm",
  "method",
  "intent",
  "request",
  "expires",
  "digest",
  "opaque",
  "header",
] as const;

/**
 * Converts the challenge of one `WWW-Authenticate: Payment` to the form that a rail (our side of a payment network)
 * signs; null when a part is missing that any payment needs. The rail decides which methods it signs, so challenges of
 * all methods are passed to it.
 */
function toPayableEntry(params: ReadonlyMap<string, string>, offer: Offer): PayableEntry | null {
  const { network, asset, pay_to, amount_atomic, scheme } = offer;
  if (asset === null || pay_to === null || amount_atomic === null || !params.get("realm")) return null;
  const parameters = CHALLENGE_PARAMETERS.flatMap((name) => (params.has(name) ? [[name, params.get(name)!]] : []));
  const challenge = Object.fromEntries(parameters) as PaymentChallenge;
  return {
    x402Version: null,
    challenge,
    scheme,
    network,
    asset,
    payTo: pay_to,
    amountAtomic: BigInt(amount_atomic),
    maxTimeoutSeconds: STOCK_VALIDITY_S,
    extra: {},
    raw: challenge,
  };
}

/** Finds the defects of a challenge and of its decoded `request`, which is null when it cannot be read. */
function findDefects({ params, isRepeated }: Challenge, request: ReturnType<typeof readMppRequest>): DefectCode[] {
  const defects: DefectCode[] = [];
  if (!params.get("id") || !params.get("method") || !params.get("intent")) defects.push("bad_entry");
  if (request === null || isRepeated) defects.push("malformed_terms");
  if (request === null) return defects;
  const { atomic, isAmountMissing, asset, form, place, payTo } = request;
  if (atomic === null) defects.push(isAmountMissing ? "missing_amount" : "bad_amount");
  if (!mayBePayableIn(form, place, asset)) defects.push("bad_asset");
  if (hasKnownAddresses(place) && !(payTo !== null && looksLikeAddress(place, payTo))) defects.push("bad_pay_to");
  return defects;
}

/** Reads one mpp challenge as an offer. Never throws. */
export function readChallenge(challenge: Challenge): ParsedEntry {
  const { params } = challenge;
  const method = params.get("method") ?? "";
  const intent = params.get("intent") ?? "";
  const request = readMppRequest(method, parseBase64Json(params.get("request") ?? ""));
  const defects = findDefects(challenge, request);
  const { network = { id: "unknown", raw: "" }, asset = null, payTo = null, atomic = null } = request ?? {};
  const decimals = decimalsOf(network.id, asset);
  const offer: Offer = {
    scheme: clean(`${method}/${intent}`, 60),
    network: network.id,
    network_raw: network.raw,
    asset,
    pay_to: payTo,
    amount_atomic: atomic === null ? null : atomic.toString(),
    decimals,
    price: priceOf(atomic, decimals),
    max_timeout_s: null,
    payable: false,
  };
  // Each of these defects makes a challenge unpayable, and counts in a listing too.
  const isValid = defects.length === 0;
  return {
    offer,
    isValid,
    payable: isValid ? toPayableEntry(params, offer) : null,
    defects,
    defectsOfTermsOnly: [],
  };
}
