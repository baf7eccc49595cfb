import { createHmac, randomBytes } from "node:crypto";
import { crockford130 } from "../record/ids.ts";

/** What tells one payment of a buyer from every other: the token's contract lets a nonce of a wallet move money once. */
export interface Authorized {
  /** CAIP-2. */
  network: string;
  asset: string;
  from: string;
  nonce: string;
}

/** Key of everything that this payment can ever buy (orders.md, Claim). */
export const claimKey = ({ network, asset, from, nonce }: Authorized): string =>
  [network, asset, from, nonce].join("|").toLowerCase();

/** A new order's id. Nobody can guess it: whoever has it may read the order. */
export const newOrderId = (): string => `ord_${crockford130(randomBytes(17))}`;

/**
 * Names of client networks in the private record: an HMAC under a key of its own, so that every replica can tell what came
 * from one network, and nobody who reads the record learns the address.
 * @param secret of the whole service, at least 32 bytes
 */
export function clientNames(secret: Uint8Array): (client: string) => string {
  const key = createHmac("sha256", secret).update("touchstone/client-names/1").digest();
  return (client) => createHmac("sha256", key).update(client).digest("base64url").slice(0, 22);
}
