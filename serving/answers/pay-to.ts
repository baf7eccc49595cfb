import { addressKey } from "../../pipelines/record/networks.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";

/** Compares the address that a buyer is about to pay with those that the endpoint names. */
export interface PayToVerdict {
  flags: ("pay_to_unknown" | "pay_to_differs")[];
  /** A sentence about it; null where there is nothing to warn of. */
  says: string | null;
  /** Did a 402 of this endpoint ever name the address? null where no 402 of it was read. */
  seenBefore: boolean | null;
}

/** Most addresses that one sentence names. */
const NAMED = 4;

const HEX = /^0x/i;

const named = (addresses: readonly string[]): string => {
  const more = addresses.length - NAMED;
  return addresses.slice(0, NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
};

/**
 * Is this an address of the endpoint? Where no address of the endpoint is known there is no warning, since unknown is
 * not different. A listing may name fewer networks than the 402, so it contradicts the address only where it names one
 * of the same form that the newest 402 does not name.
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
    ...(now.length > 0 ? [`its newest 402 names ${named(now)}`] : []),
    ...(listed.length > 0 ? [`its seller's own listing names ${named(listed)}`] : []),
    ...(before.length > 0 ? [`earlier 402s named ${named(before)}`] : []),
  ];
  return { flags, says: `Do not pay yet: ${facts.join("; ")}.`, seenBefore };
}
