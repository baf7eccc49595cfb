import { randomBytes } from "node:crypto";
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
