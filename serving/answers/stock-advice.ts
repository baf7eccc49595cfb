import type { ListingAnswer } from "../schemas/listing.ts";

/** What a seller should change, by what the x402 project's own client says; the first that matches counts. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [
    /Invalid payment required header/,
    "Send in the PAYMENT-REQUIRED header the base64 of the terms' JSON, not the JSON itself.",
  ],
  [
    /Invalid payment required response/,
    "Send version 2 terms as base64 of JSON in the PAYMENT-REQUIRED header; version 1 terms as JSON in the body, with `x402Version` as the number 1 and no byte order mark before it.",
  ],
  [/finds no terms/, "Let the PAYMENT-REQUIRED header be base64 of valid JSON in UTF-8."],
  [
    /Cannot convert (?:undefined|null) to a BigInt/,
    "Name the price of each entry by the member of its version: `amount` in version 2, `maxAmountRequired` in version 1.",
  ],
  [/to a BigInt/, "Write the amount as a text of digits, in the asset's smallest units: 0.02 USDC is `20000`."],
  [/EIP-712 domain parameters/, "Add `extra.name` and `extra.version` of the token's EIP-712 domain to each entry."],
  [/No client registered for x402 version/, "Set `x402Version` to the number 1 or 2, without quotes."],
  [
    /No network\/scheme registered/,
    "Add an entry of scheme `exact` on an EVM network, which version 2 names by its CAIP-2 id (`eip155:8453`) and version 1 by its name (`base`).",
  ],
  [
    /only default assets/,
    "Add an entry in USDC: without settings of its own this client pays in the dollar tokens that it knows alone.",
  ],
  [
    /rejected by spendControls/,
    "Nothing is broken: at this price a buyer has to raise the limits of this client first. Ask less, or say so to your buyers.",
  ],
  [/did not end within/, "Send fewer offers and shorter ones: this client needs too long to read them."],
];
const OTHER_ADVICE =
  "Mend the other findings first, then compare your terms with those that the server of `@x402/core` sends.";

/** Returns what a seller should change so that the client signs its offer as it comes; null where that is nothing. */
export function stockAdviceOf({
  verdict,
  says,
}: Pick<ListingAnswer["stock_client"], "verdict" | "says">): string | null {
  if (verdict === "signs" || verdict === "cannot_be_told") return null;
  return ADVICE.find(([pattern]) => pattern.test(says))?.[1] ?? OTHER_ADVICE;
}
