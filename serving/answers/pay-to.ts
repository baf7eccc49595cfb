import { addressKey } from "../../pipelines/record/networks.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";

/** Result of comparing the address that a buyer is about to pay with the addresses that the endpoint names. */
export interface PayToVerdict {
  flags: ("pay_to_unknown" | "pay_to_differs")[];
  /** A sentence about the result; null when there is nothing to warn of. */
  says: string | null;
  /** Whether any 402 of this endpoint named the address; null when no 402 of it was read. */
  seenBefore: boolean | null;
}

/** Most addresses that one sentence names. */
const MAX_NAMED = 4;

const HEX = /^0x/i;

const joinAddresses = (addresses: readonly string[]): string => {
  const more = addresses.length - MAX_NAMED;
  return addresses.slice(0, MAX_NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
};

/**
 * Compares an address with those of the endpoint. When no address of the endpoint is known, there is no warning. A
 * listing may name fewer networks than the 402, so a listing contradicts the address only if it names an address of the
 * same form, and the newest 402 does not name the given one.
 */
export function payToVerdict(row: VolatileRow | undefined, payTo: string): PayToVerdict {
  const [now, before, listed] = [row?.pay_tos ?? [], row?.pay_tos_before ?? [], row?.pay_tos_listed ?? []];
  const key = addressKey(payTo);
  const has = (addresses: readonly string[]): boolean => addresses.some((address) => addressKey(address) === key);
  const asked402 = [...now, ...before];
  const seenBefore = asked402.length > 0 ? has(asked402) : null;
  if (asked402.length + listed.length === 0) return { flags: [], says: null, seenBefore };
  const sameForm = listed.filter((address) => HEX.test(address) === HEX.test(payTo));
  const agreed = new Set(now.map(addressKey));
  const listingDiffers = sameForm.length > 0 && !has(listed) && !sameForm.some((one) => agreed.has(addressKey(one)));
  const newestDiffers = now.length > 0 && !has(now);
  const unknown = !has(asked402) && !has(listed);
  const flags: PayToVerdict["flags"] = [];
  if (unknown) flags.push("pay_to_unknown");
  if (newestDiffers || listingDiffers) flags.push("pay_to_differs");
  if (flags.length === 0) return { flags, says: null, seenBefore };
  const facts = [
    unknown
      ? `no 402 of this endpoint and no listing of its seller's own ever named ${payTo}`
      : `${payTo} is another address than this endpoint names now`,
    ...(now.length > 0 ? [`its newest 402 names ${joinAddresses(now)}`] : []),
    ...(listed.length > 0 ? [`its seller's own listing names ${joinAddresses(listed)}`] : []),
    ...(before.length > 0 ? [`earlier 402s named ${joinAddresses(before)}`] : []),
  ];
  return { flags, says: `Do not pay yet: ${facts.join("; ")}.`, seenBefore };
}
