import type { DefectCode } from "../../pipelines/record/vocabulary.ts";

/** What a seller changes so that a defect goes away, in plain words: one sentence or two for every value of DEFECTS. */
export const MENDS: Readonly<Record<DefectCode, string>> = {
  malformed_terms:
    "Send the terms as JSON: for x402 version 2 base64 of it in the PAYMENT-REQUIRED header, for version 1 as the body, with `accepts` as an array.",
  no_terms: "Answer 402 with x402 terms (`x402Version` and `accepts`), or with an mpp challenge in WWW-Authenticate.",
  no_payable_entry:
    "Offer at least one entry with scheme, network, a whole amount above zero, the asset's contract and your payout address.",
  bad_version: "Set `x402Version` to the number 1 or 2, without quotes.",
  bad_entry: "Make every entry of `accepts` an object with `scheme` and `network` as text.",
  bad_amount:
    "Write the amount as a text of digits, in the asset's smallest units: 0.02 USDC is `20000`. No point, no currency sign.",
  missing_amount: "Name the price of each entry: `amount` in version 2, `maxAmountRequired` in version 1.",
  bad_pay_to:
    "Set `payTo` to your own payout address in the form of that network; no placeholder, not the zero address.",
  bad_asset:
    "Name the asset by its contract (or mint) on that same network, not by a symbol such as USDC, and not by a placeholder.",
  bad_network: "Write the network as a CAIP-2 id, such as `eip155:8453` for Base.",
  network_form:
    "Version 2 wants a CAIP-2 id (`eip155:8453`), version 1 wants the name (`base`): write the one that fits `x402Version`.",
  missing_domain:
    "Add `extra.name` and `extra.version` of the token's EIP-712 domain (for USDC on Base: `USD Coin` and `2`): nobody can sign without them.",
  bad_timeout: "Set `maxTimeoutSeconds` to a whole number from 1 to 86400; 60 is usual.",
  resource_differs: "Let `resource` name the very url that is called: scheme, host and path.",
  terms_in_body:
    "Send version 2 terms in the PAYMENT-REQUIRED header, as base64 of the JSON. A version 2 client does not look into the body.",
  both_amounts: "Keep one of `amount` and `maxAmountRequired`, or give both the same value.",
  testnet_only: "Add an entry on a main network, such as `eip155:8453`, once you want to be paid in real money.",
  price_differs:
    "Ask what your listing says, or list the price that you ask. A listed price may be undercut, never exceeded.",
  pay_to_differs: "Let the 402 and your listing name the same payout address on each network.",
  network_differs: "List the networks that the 402 offers, or offer one of those that you list.",
  asset_differs: "Let the 402 and your listing name the same asset on each network.",
  schema_differs: "Publish one output schema: let the 402 carry the one that your listing names.",
  paid_calls_refused:
    "Nothing is broken: take `paid_test_calls: false` out of your listing if you want a letter that paid calls stand behind.",
  no_402: "Answer 402 with terms to a request without payment, or take the url out of your list of paid endpoints.",
};

/** How to mend a defect; of one that this page does not know, what can be said of any. */
export const mendOf = (defect: string): string =>
  Object.hasOwn(MENDS, defect)
    ? MENDS[defect as DefectCode]
    : "Compare the answer with the specification of the protocol that it speaks.";
