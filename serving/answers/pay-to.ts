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

/** Largest number of addresses that one sentence names. */
const MAX_NAMED = 4;

const HEX_PREFIX = /^0x/i;

const joinAddresses = (addresses: readonly string[]): string => {
  const more = addresses.length - MAX_NAMED;
  return addresses.slice(0, MAX_NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
};

/**
 * Compares an address with those that the endpoint's 402s and its seller's own listing name. When the record has none
 * of these, there is no warning. A listing may name fewer networks than the 402. It therefore contradicts the given
 * address only if it names addresses of the same form (with or without 0x), the given one is not among them, and none
 * of them is in the newest 402.
 */
export function payToVerdict(row: VolatileRow | undefined, payTo: string): PayToVerdict {
  const [newestPayTos, earlierPayTos, listedPayTos] = [
    row?.pay_tos ?? [],
    row?.pay_tos_before ?? [],
    row?.pay_tos_listed ?? [],
  ];
  const key = addressKey(payTo);
  const has = (addresses: readonly string[]): boolean => addresses.some((address) => addressKey(address) === key);
  const all402PayTos = [...newestPayTos, ...earlierPayTos];
  const seenBefore = all402PayTos.length > 0 ? has(all402PayTos) : null;
  if (all402PayTos.length + listedPayTos.length === 0) return { flags: [], says: null, seenBefore };
  const listedInSameForm = listedPayTos.filter((address) => HEX_PREFIX.test(address) === HEX_PREFIX.test(payTo));
  const newestKeys = new Set(newestPayTos.map(addressKey));
  const listingDiffers =
    listedInSameForm.length > 0 &&
    !has(listedPayTos) &&
    !listedInSameForm.some((one) => newestKeys.has(addressKey(one)));
  const newestDiffers = newestPayTos.length > 0 && !has(newestPayTos);
  const isUnknown = !has(all402PayTos) && !has(listedPayTos);
  const flags: PayToVerdict["flags"] = [];
  if (isUnknown) flags.push("pay_to_unknown");
  if (newestDiffers || listingDiffers) flags.push("pay_to_differs");
  if (flags.length === 0) return { flags, says: null, seenBefore };
  const facts = [
    isUnknown
      ? `no 402 of this endpoint and no listing of its seller's own ever named ${payTo}`
      : `${payTo} is another address than this endpoint names now`,
    ...(newestPayTos.length > 0 ? [`its newest 402 names ${joinAddresses(newestPayTos)}`] : []),
    ...(listedPayTos.length > 0 ? [`its seller's own listing names ${joinAddresses(listedPayTos)}`] : []),
    ...(earlierPayTos.length > 0 ? [`earlier 402s named ${joinAddresses(earlierPayTos)}`] : []),
  ];
  return { flags, says: `Do not pay yet: ${facts.join("; ")}.`, seenBefore };
}
