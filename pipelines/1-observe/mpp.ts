import type { Offer } from "../record/bodies.ts";
import { parseAtomic } from "../record/money.ts";
import type { DefectCode } from "../record/vocabulary.ts";
import { payableChallenge } from "./challenge.ts";
import { priceOf, type ReadEntry } from "./entries.ts";
import { clean, get, isObject, parseBase64Json, text } from "./json.ts";
import { decimalsOf } from "./networks.ts";

/** Longest header that is read; egress refuses headers past 16 KiB anyway. */
const MAX_HEADER = 65_536;
const PARAM = /([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))/g;

/**
 * Parameters of every `Payment` challenge of a WWW-Authenticate header (RFC 9110 section 11.6.1). Tolerant: several
 * challenges may be folded into one line, other schemes may stand first, commas may be missing. Linear in the header.
 */
export function paymentChallenges(header: string): Map<string, string>[] {
  const line = header.slice(0, MAX_HEADER);
  // What stands in quotes is blanked for the search only, so that a realm called "Payment x" opens no challenge.
  const bare = line.replace(/"(?:[^"\\]|\\.)*"/g, (quoted) => `"${" ".repeat(quoted.length - 2)}"`);
  const starts = [...bare.matchAll(/(?:^|[\s,])([A-Za-z][A-Za-z0-9_-]*)\s+(?=[A-Za-z0-9_-]+\s*=)/g)];
  return starts.flatMap((start, i) => {
    if (start[1]!.toLowerCase() !== "payment") return [];
    const section = line.slice(start.index + start[0].length, starts[i + 1]?.index ?? line.length);
    const params = new Map<string, string>();
    for (const match of section.matchAll(PARAM)) {
      const name = match[1]!.toLowerCase();
      if (!params.has(name)) params.set(name, match[2]?.replace(/\\(.)/g, "$1") ?? match[3]!);
    }
    return [params];
  });
}

/** The chain a request names; the drafts disagree on what a missing chainId means, so it is never guessed. */
function networkOf(request: unknown): { id: string; raw: string } {
  const chainId = get(request, "methodDetails", "chainId");
  return Number.isSafeInteger(chainId) && (chainId as number) > 0
    ? { id: `eip155:${chainId}`, raw: String(chainId) }
    : { id: "unknown", raw: "" };
}

/** One mpp challenge as an offer. Never throws. What a rail may be asked to sign is up to `challenge.ts`. */
export function readChallenge(params: Map<string, string>): ReadEntry {
  const defects: DefectCode[] = [];
  const method = params.get("method");
  const intent = params.get("intent");
  if (!params.get("id") || !method || !intent) defects.push("bad_entry");
  const request = parseBase64Json(params.get("request") ?? "");
  if (!isObject(request)) defects.push("malformed_terms");
  const network = networkOf(request);
  const atomic = parseAtomic(get(request, "amount"));
  if (isObject(request) && atomic === null) {
    const amount = get(request, "amount");
    defects.push(amount == null || amount === "" ? "missing_amount" : "bad_amount");
  }
  const asset = text(get(request, "currency"), 200) ?? null;
  const decimals = decimalsOf(network.id, asset);
  const offer: Offer = {
    scheme: clean(`${method ?? ""}/${intent ?? ""}`, 60),
    network: network.id,
    network_raw: network.raw,
    asset,
    pay_to: text(get(request, "recipient"), 200) ?? null,
    amount_atomic: atomic === null ? null : atomic.toString(),
    decimals,
    price: priceOf(atomic, decimals),
    max_timeout_s: null,
    payable: false,
  };
  const valid = Boolean(params.get("id") && method && intent && isObject(request) && atomic !== null);
  return { offer, valid, payable: valid ? payableChallenge(params, offer) : null, defects };
}
