import { createHmac, randomBytes } from "node:crypto";
import { crockford130 } from "../record/ids.ts";

/** Identifies one payment of a buyer, since the token's contract lets each nonce of a wallet move money only once. */
export interface PaymentAuthorization {
  /** CAIP-2. */
  network: string;
  asset: string;
  from: string;
  nonce: string;
}

/**
 * Returns the key of a payment in the log. At most one order (call that a buyer buys) exists for each key (orders.md,
 * Claim).
 */
export const claimKey = ({ network, asset, from, nonce }: PaymentAuthorization): string =>
  [network, asset, from, nonce].join("|").toLowerCase();

/** Draws the id of a new order. It is random, since anyone who knows the id may read the order. */
export const createOrderId = (): string => `ord_${crockford130(randomBytes(17))}`;

/**
 * Returns a function that turns a client's IP network (an IPv4 address or an IPv6 prefix, as text) into an opaque name
 * for the private log. The name is an HMAC whose key is used for nothing else: every replica computes the same name,
 * and a reader of the log cannot learn the address.
 * @param secret of the whole service, at least 32 bytes
 */
export function createClientNames(secret: Uint8Array): (client: string) => string {
  const key = createHmac("sha256", secret).update("touchstone/client-names/1").digest();
  return (client) => createHmac("sha256", key).update(client).digest("base64url").slice(0, 22);
}
