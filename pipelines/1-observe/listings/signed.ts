import { isAddress, isHex, verifyMessage } from "viem";
import { canonicalText } from "../../../infra/canonical.ts";
import { get, isObject, type JsonObject, text } from "../json.ts";

/** What the payee signs with EIP-191 (personal_sign): the RFC 8785 form of the row without its member `signed`. */
export function listingStatement(row: JsonObject): string {
  const { signed: _, ...rest } = row;
  return canonicalText(rest);
}

/**
 * Is this row signed by an address that the endpoint's own 402s asked to be paid at? A row alone proves nothing: anybody
 * may write down somebody else's endpoint with an address of his own. Never throws for what the row holds.
 * @param payTos lower-case addresses that 402s of the endpoint named to us
 */
export async function isSignedByPayee(row: unknown, payTos: () => Promise<ReadonlySet<string>>): Promise<boolean> {
  const address = text(get(row, "signed", "pay_to"), 60);
  const signature = text(get(row, "signed", "signature"), 200);
  if (!isObject(row) || !address || !isAddress(address, { strict: false }) || !isHex(signature)) return false;
  try {
    const message = listingStatement(row);
    return (await verifyMessage({ address, message, signature })) && (await payTos()).has(address.toLowerCase());
  } catch {
    // No point of the curve, or a row without a canonical form: as wrong as any other signature.
    return false;
  }
}
