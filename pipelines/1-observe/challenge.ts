import type { PayableEntry, PaymentChallenge } from "../../infra/rails/rails.ts";
import type { Offer } from "../record/bodies.ts";

/**
 * Seconds a challenge without terms of its own is given: what the protocol's stock client signs for. The challenge's
 * `expires` may end it sooner; that is the rail's to judge, which knows the time.
 */
const STOCK_VALIDITY_S = 300;

const KEPT = ["id", "realm", "method", "intent", "request", "expires", "digest", "opaque", "header"] as const;

/**
 * The challenge of one `WWW-Authenticate: Payment`, as a rail may be asked to sign it; null when a part is missing that
 * any payment needs. Which methods are signed is the rail's to say: `tempo` and `stripe` come here too, as data.
 */
export function payableChallenge(params: ReadonlyMap<string, string>, offer: Offer): PayableEntry | null {
  const { network, asset, pay_to, amount_atomic, scheme } = offer;
  if (asset === null || pay_to === null || amount_atomic === null || !params.get("realm")) return null;
  const said = KEPT.flatMap((name) => (params.has(name) ? [[name, params.get(name)!]] : []));
  const challenge = Object.fromEntries(said) as PaymentChallenge;
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

/** Is the first paid rather than the second? x402 before mpp, then the cheaper one. */
export function goesBefore(one: PayableEntry, other: PayableEntry): boolean {
  const rank = (entry: PayableEntry): number => (entry.challenge ? 1 : 0);
  if (rank(one) !== rank(other)) return rank(one) < rank(other);
  return one.amountAtomic < other.amountAtomic;
}
