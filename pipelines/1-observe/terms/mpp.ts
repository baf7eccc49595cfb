import type { PayableEntry, PaymentChallenge } from "../../../infra/rails/rails.ts";
import type { Offer } from "../../record/bodies.ts";
import { parseAtomic } from "../../record/money.ts";
import type { DefectCode } from "../../record/vocabulary.ts";
import { clean, get, isObject, parseBase64Json, text } from "../json.ts";
import { assetForm, decimalsOf, hasKnownAddresses, looksLikeAddress, readNetwork, usdcOf } from "./networks.ts";
import { isPayableIn, priceOf, type ReadEntry } from "./x402.ts";

/** Longest header that is read; egress refuses longer ones anyway, and a tool's challenges are put into one as well. */
const MAX_HEADER = 16_384;
/** Challenges of one header that are read: the record takes no more offers. */
const MAX_CHALLENGES = 64;
/** A word, a quoted text (one that is not closed runs to the end), white space, or any one character. It never goes back. */
const TOKEN = /[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"?|\s+|./gs;

const QUOTED = /^"((?:[^"\\]|\\.)*)"$/s;

const isWord = (token: string | undefined): token is string => token !== undefined && /^[A-Za-z0-9_-]/.test(token);
const isSpace = (token: string | undefined): boolean => token !== undefined && /^\s/.test(token);
const afterSpace = (tokens: readonly string[], at: number): number => (isSpace(tokens[at]) ? at + 1 : at);

/** Does the word at `at` name a scheme: does it stand by itself before `name =`? */
function isScheme(tokens: readonly string[], at: number): boolean {
  const before = tokens[at - 1];
  const alone = before === undefined || before === "," || isSpace(before);
  if (!alone || !/^[A-Za-z]/.test(tokens[at] ?? "") || !isSpace(tokens[at + 1]) || !isWord(tokens[at + 2]))
    return false;
  return tokens[afterSpace(tokens, at + 3)] === "=";
}

/** What stands behind `=`: quoted, or up to the next space, comma or quote; null when it is nothing. And what follows. */
function valueAt(tokens: readonly string[], from: number): { value: string | null; next: number } {
  const at = afterSpace(tokens, from);
  const first = tokens[at] ?? "";
  if (first.startsWith('"')) {
    const inner = QUOTED.exec(first)?.[1];
    return { value: inner?.replace(/\\(.)/g, "$1") ?? null, next: at + 1 };
  }
  if (at > from && isScheme(tokens, at)) return { value: null, next: at };
  let next = at;
  while (next < tokens.length && !/^[\s,"]/.test(tokens[next]!)) next++;
  return { value: next > at ? tokens.slice(at, next).join("") : null, next };
}

/**
 * Parameters of every `Payment` challenge of a WWW-Authenticate header (RFC 9110 section 11.6.1); of a name that is
 * repeated the first. Tolerant: several challenges may be folded into one line, other schemes may stand first, commas
 * may be missing. Linear in the header, of which 16 KiB are read.
 */
export function paymentChallenges(header: string): Map<string, string>[] {
  const tokens = header.slice(0, MAX_HEADER).match(TOKEN) ?? [];
  const found: Map<string, string>[] = [];
  let current: Map<string, string> | null = null;
  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at];
    if (!isWord(token)) continue;
    const equals = afterSpace(tokens, at + 1);
    if (tokens[equals] === "=") {
      const { value, next } = valueAt(tokens, equals + 1);
      const name = token.toLowerCase();
      if (current && value !== null && !current.has(name)) current.set(name, value);
      at = next - 1;
    } else if (isScheme(tokens, at)) {
      current = token.toLowerCase() === "payment" && found.length < MAX_CHALLENGES ? new Map() : null;
      if (current) found.push(current);
    }
  }
  return found;
}

/** What Solana's method calls its clusters -> the name of the network. */
const CLUSTERS: Readonly<Record<string, string>> = { "mainnet-beta": "solana", devnet: "solana-devnet" };

/**
 * The chain a request names, as a number or as text; the drafts disagree on what a missing one means, so it is never
 * guessed.
 */
function networkOf(method: string, request: unknown): { id: string; raw: string } {
  const details = get(request, "methodDetails");
  const named = get(details, "chainId") ?? get(details, "evm", "chainId");
  const raw = typeof named === "string" ? clean(named.trim(), 120) : Number.isSafeInteger(named) ? String(named) : "";
  const chainId = /^(?:eip155:)?([1-9]\d{0,15})$/.exec(raw)?.[1];
  if (chainId !== undefined) return { id: `eip155:${chainId}`, raw };
  const cluster = method === "solana" ? text(get(details, "network"), 60) : undefined;
  if (cluster === undefined) return { id: "unknown", raw };
  const known = readNetwork(Object.hasOwn(CLUSTERS, cluster) ? CLUSTERS[cluster] : undefined);
  return { id: known?.id ?? "unknown", raw: cluster };
}

/**
 * Seconds a challenge without terms of its own is given: what the protocol's stock client signs for. The challenge's
 * `expires` may end it sooner; that is the rail's to decide, which knows the time.
 */
const STOCK_VALIDITY_S = 300;

const KEPT = ["id", "realm", "method", "intent", "request", "expires", "digest", "opaque", "header"] as const;

/**
 * The challenge of one `WWW-Authenticate: Payment`, as a rail may be asked to sign it; null when a part is missing that
 * any payment needs. Which methods are signed is the rail's to say: `tempo` and `stripe` come here too, as data.
 */
function payableChallenge(params: ReadonlyMap<string, string>, offer: Offer): PayableEntry | null {
  const { network, asset, pay_to, amount_atomic, scheme } = offer;
  if (asset === null || pay_to === null || amount_atomic === null || !params.get("realm")) return null;
  const said = KEPT.flatMap((name) => (params.has(name) ? [[name, params.get(name)!]] : []));
  const challenge = Object.fromEntries(said) as PaymentChallenge;
  return {
    x402Version: null,
    challenge,
    scheme,
    network,
    asset,
    payTo: pay_to,
    amountAtomic: BigInt(amount_atomic),
    maxTimeoutSeconds: STOCK_VALIDITY_S,
    extra: {},
    raw: challenge,
  };
}

/** Is the first paid rather than the second? x402 before mpp, then the cheaper one. */
export function goesBefore(one: PayableEntry, other: PayableEntry): boolean {
  const rank = (entry: PayableEntry): number => (entry.challenge ? 1 : 0);
  if (rank(one) !== rank(other)) return rank(one) < rank(other);
  return one.amountAtomic < other.amountAtomic;
}

/** One mpp challenge as an offer. Never throws. What a rail may be asked to sign is up to `challenge.ts`. */
export function readChallenge(params: Map<string, string>): ReadEntry {
  const defects: DefectCode[] = [];
  const method = params.get("method");
  const space = method ?? "";
  const intent = params.get("intent");
  if (!params.get("id") || !method || !intent) defects.push("bad_entry");
  const request = parseBase64Json(params.get("request") ?? "");
  if (!isObject(request)) defects.push("malformed_terms");
  const network = networkOf(space, request);
  const atomic = parseAtomic(get(request, "amount"));
  if (isObject(request) && atomic === null) {
    const amount = get(request, "amount");
    defects.push(amount == null || amount === "" ? "missing_amount" : "bad_amount");
  }
  const asset = text(get(request, "currency"), 200) ?? null;
  const payTo = text(get(request, "recipient"), 200) ?? null;
  const place = network.id === "unknown" ? `${space}:` : network.id;
  const form = asset === null ? "missing" : assetForm(place, asset, usdcOf(place) !== undefined);
  if (isObject(request)) {
    if (!isPayableIn(form)) defects.push("bad_asset");
    if (hasKnownAddresses(place) && !(payTo !== null && looksLikeAddress(place, payTo))) defects.push("bad_pay_to");
  }
  const decimals = decimalsOf(network.id, asset);
  const offer: Offer = {
    scheme: clean(`${method ?? ""}/${intent ?? ""}`, 60),
    network: network.id,
    network_raw: network.raw,
    asset,
    pay_to: payTo,
    amount_atomic: atomic === null ? null : atomic.toString(),
    decimals,
    price: priceOf(atomic, decimals),
    max_timeout_s: null,
    payable: false,
  };
  const named = Boolean(params.get("id") && method && intent && isObject(request));
  const valid = named && atomic !== null && isPayableIn(form) && !defects.includes("bad_pay_to");
  return { offer, valid, payable: valid ? payableChallenge(params, offer) : null, defects, ofTermsOnly: [] };
}
