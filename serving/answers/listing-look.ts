import type { Clock } from "../../infra/clock.ts";
import { type SigningDomain, signingDomain } from "../../infra/rails/charge.ts";
import { type LiveProbeResult, probeLive } from "../../pipelines/1-observe/probe/look.ts";
import type { Probe, ProbeDeps } from "../../pipelines/1-observe/probe/probe.ts";
import { isSignedForToken } from "../../pipelines/1-observe/terms/x402.ts";
import type { Offer } from "../../pipelines/record/bodies.ts";
import { clean } from "../../pipelines/record/json.ts";
import { networkName } from "../../pipelines/record/networks.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import type { DefectCode } from "../../pipelines/record/vocabulary.ts";
import type { ListingAnswer } from "../schemas/listing.ts";
import { type StockVerdict, tryStockClient } from "./stock-client.ts";

/** What a seller should change to remove a defect: one or two plain sentences for each code of DEFECTS. */
export const DEFECT_ADVICE: Readonly<Record<DefectCode, string>> = {
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
  missing_domain: "Add `extra.name` and `extra.version` of the token's EIP-712 domain: nobody can sign without them.",
  missing_fee_payer:
    "Add `extra.feePayer`: the account, your facilitator's as a rule, that signs as fee payer of the transaction. Clients build no payment without it.",
  bad_timeout: "Set `maxTimeoutSeconds` to a whole number from 1 to 86400; 60 is usual.",
  resource_differs: "Let `resource` name the very url that is called: scheme, host and path.",
  resource_scheme_differs:
    "Let `resource` begin with `https`: behind a proxy that ends TLS, let the server believe its `X-Forwarded-Proto`.",
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

/** Returns the advice for a defect; for an unknown code, a general hint. */
export const adviceOf = (defect: string): string =>
  Object.hasOwn(DEFECT_ADVICE, defect)
    ? DEFECT_ADVICE[defect as DefectCode]
    : "Compare the answer with the specification of the protocol that it speaks.";

const STOCK_CLIENT_NAME = "@x402/core 2.27 with the exact scheme of @x402/evm, as it comes";
const NOTHING_TO_SIGN: StockVerdict = {
  verdict: "cannot_be_told",
  offer: null,
  says: "There was no 402 for it to read.",
};

/** What a seller should change whose endpoint sent no whole answer, by how the probe ended; the first match counts. */
const SILENCE_ADVICE: readonly (readonly [RegExp, string])[] = [
  // The codes of zlib's and brotli's errors.
  [
    /^cut: .*: (?:Z_|ERR__ERROR_)/,
    "Encode the body as `content-encoding` names it, and send it whole; or leave that header out and send the body as it is.",
  ],
  [/^cut: /, "Send the body whole, as long as `content-length` says, before you close the connection."],
  [/^too_large: /, "Answer with at most 1 MiB."],
  [/^timeout: /, "Answer, with the whole body, within 10 seconds."],
];
const silenceAdviceOf = (says: string): string =>
  SILENCE_ADVICE.find(([pattern]) => pattern.test(says))?.[1] ??
  "Answer within 10 seconds, over https with a certificate that is valid, in at most 1 MiB.";

/** Describes what the endpoint answered, and what the seller should change when it sent no payment terms. */
function stateWords(
  { state, status, says, fault }: Probe["body"],
  { method, redirectsTo }: Pick<LiveProbeResult, "method" | "redirectsTo">,
  isSignedByStock: boolean,
): { says: string; mend: string | null } {
  const isRedirect = status !== null && status >= 300 && status < 400;
  const ourFaultHint = fault === "ours" ? " The fault may be ours: ask again." : "";
  switch (state) {
    case "asked":
      return { says: "It answered 402 with terms that can be read.", mend: null };
    case "malformed":
      return {
        says: isSignedByStock
          ? "It answered 402 with terms that break the specification: the stock client signs them, and others cannot pay."
          : "It answered 402 with terms that nobody could pay.",
        mend: "Fix the defects below, the first one first.",
      };
    case "free":
      return { says: "It answered without asking for payment.", mend: adviceOf("no_402") };
    case "wall":
      return {
        says: `It answered ${status}, as a wall against robots does.`,
        mend: "Let requests without a browser through to the 402: those who pay here are programs.",
      };
    case "silent":
      return {
        says: `No whole answer came (${says ?? "silence"}).${ourFaultHint}`,
        mend: silenceAdviceOf(says ?? ""),
      };
    case "unfetchable":
      return {
        says: `It could not be asked: ${says ?? "no reason is known"}.`,
        mend: "Let its name lead to public addresses only.",
      };
    case "status":
      return {
        says: `It answered with status ${status}${redirectsTo === null ? "" : `, a redirect to ${redirectsTo}`}.${ourFaultHint}`,
        mend: isRedirect
          ? "Redirects are not followed by those who pay: list the address that it leads to."
          : status === 404 || status === 405
            ? `It does not serve ${method} here: ask again with the other method, or let your listing name the method.`
            : "Answer 402 before you look at the input: a request without payment need not be valid.",
      };
  }
}

/** Longest part of a seller's text that a finding repeats, characters. */
const MAX_QUOTED = 60;
const quote = (value: string): string => JSON.stringify(clean(value, MAX_QUOTED));

interface TokenOnNetwork {
  network: string;
  asset: string | null;
}

/** Returns a sentence with what to write in `extra` for each token whose EIP-712 domain is known; "" if none is. */
function domainsToWrite(tokens: readonly TokenOnNetwork[]): string {
  const sentences = tokens.flatMap(({ network, asset }) => {
    const domain = asset === null ? null : signingDomain(network, asset);
    if (domain === null) return [];
    return [` For USDC on ${networkName(network)}: \`${domain.name}\` and \`${domain.version}\`.`];
  });
  return [...new Set(sentences)].join("");
}

/**
 * Finds the offers whose `extra` names another EIP-712 domain than their token's contract has. A client signs them as
 * they come, and the token rejects every such signature. This is a finding of a look alone, and no defect of the record.
 */
function findWrongDomain(payables: LiveProbeResult["payables"]): ListingAnswer["defects"] {
  const wrongOffers = payables.flatMap((payable, i) => {
    if (payable === null || payable.challenge || payable.scheme !== "exact") return [];
    const { network, asset, extra } = payable;
    const { name, version } = extra as Partial<Record<keyof SigningDomain, unknown>>;
    const domain = isSignedForToken(network, extra) ? signingDomain(network, asset) : null;
    // Where one of the two is missing, the offer has the defect `missing_domain`.
    if (domain === null || typeof name !== "string" || typeof version !== "string" || !name.trim() || !version.trim())
      return [];
    if (name === domain.name && version === domain.version) return [];
    return [{ network, asset, words: `${quote(name)} and ${quote(version)} in offer ${i + 1}` }];
  });
  if (wrongOffers.length === 0) return [];
  const named = wrongOffers.map(({ words }) => words).join(", ");
  return [
    {
      defect: "wrong_domain",
      says: `extra.name and extra.version are not those of the token's EIP-712 domain (${named}): the token rejects every signature`,
      mend: `Write \`extra.name\` and \`extra.version\` as the token's contract has them.${domainsToWrite(wrongOffers)}`,
    },
  ];
}

const toShownOffer = ({ scheme, network, asset, pay_to, amount_atomic, price, max_timeout_s }: Offer) => ({
  scheme,
  network,
  asset,
  pay_to,
  amount_atomic,
  price,
  max_timeout_s,
});

/**
 * Probes an endpoint once, and returns how it answers, the defects of its terms, and whether the x402 project's own
 * client would pay it. Nothing is stored. Never throws, whatever the endpoint does.
 * @param url normalised
 * @param findCap returns the capability id that the record has for this url and a method, or null
 */
export async function listingAnswer(
  probeDeps: ProbeDeps,
  url: string,
  method: "GET" | "POST" | null,
  clock: Clock,
  findCap: (method: ListingAnswer["method"]) => string | null,
): Promise<ListingAnswer> {
  const probeResult = await probeLive(probeDeps, url, method, clock);
  const { answer402, probe } = probeResult;
  const { terms } = probe.body;
  const stock = answer402 && terms ? await tryStockClient(answer402, terms) : NOTHING_TO_SIGN;
  return answerOf(url, probeResult, stock, findCap(probeResult.method), clock.now());
}

function answerOf(
  url: string,
  { probe: { body }, method, listing, payables, redirectsTo }: LiveProbeResult,
  stock: StockVerdict,
  cap: string | null,
  now: Date,
): ListingAnswer {
  const { terms, differs } = body;
  const { says, mend } = stateWords(body, { method, redirectsTo }, stock.offer !== null);
  const allDefects = [...(terms?.defects ?? []), ...differs, ...(listing?.defects ?? [])];
  const saysByDefect = new Map(allDefects.map((one) => [one.defect, one.says]));
  const offers = terms?.offers ?? [];
  const mendOf = (defect: string): string =>
    defect === "missing_domain" ? `${adviceOf(defect)}${domainsToWrite(offers)}` : adviceOf(defect);
  return {
    schema: "svc.listing-check.v1",
    url,
    method,
    looked_at: rfc3339(now),
    state: body.state,
    says,
    mend,
    status: body.status,
    latency_ms: body.latency_ms,
    protocols: terms?.protocols ?? [],
    x402_version: terms?.x402_version ?? null,
    offers: offers.map(toShownOffer),
    defects: [
      ...[...saysByDefect].map(([defect, words]) => ({ defect, says: words, mend: mendOf(defect) })),
      ...findWrongDomain(payables),
    ],
    stock_client: { client: STOCK_CLIENT_NAME, ...stock },
    listing: listing && { document: listing.url, differs: differs.map(({ defect }) => defect) },
    capability_id: cap,
    kept: "nothing",
  };
}
