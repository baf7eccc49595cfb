import type { Clock } from "../../../infra/clock.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { createReader } from "../../../infra/rails/rpc.ts";
import { numeric, RandomDraws, type Sources } from "../../record/classes/checker.ts";
import { valueAt } from "../../record/classes/mapping.ts";
import { factsOf, plantedPage, plantedToken } from "../../record/classes/planted.ts";
import { parseJson } from "../json.ts";

/**
 * Where planted pages are reached, and the secret that serving shares with whoever plants them.
 * @param base address of the service, without a slash at its end
 */
export const pageSource =
  (base: string, secret: Uint8Array, clock: Pick<Clock, "now">): NonNullable<Sources["page"]> =>
  (seed) => {
    const at = clock.now();
    const token = plantedToken(secret, seed, at);
    return { url: `${base}/p/${token}`, facts: factsOf(plantedPage(secret, token, at)!) };
  };

/** Heights that are asked for lie at most so far below the last final one: nodes forget what is older. */
const DEEPEST = 10_000;

/** Blocks of the chain of these nodes, at heights that they call final. */
export function blockSource(rpcUrls: readonly string[], network: string): NonNullable<Sources["block"]> {
  const reader = createReader(rpcUrls);
  return async (seed) => {
    const final = Number((await reader.getBlock({ blockTag: "finalized" })).number);
    if (final < 1) return null;
    const number = final - new RandomDraws(seed).below(Math.min(final, DEEPEST));
    const { hash, timestamp } = await reader.getBlock({ blockNumber: BigInt(number) });
    return { network, number, hash, time: Number(timestamp) };
  };
}

/** A reference of prices: where it is asked, with `{base}` and `{quote}` in the url, and where its answer lies. */
export interface PriceReference {
  url: string;
  answer: string;
}

/** Prices of an operator's own choice of reference; null where it has none for a pair. */
export function priceSource(
  egress: Pick<Egress, "fetch">,
  { url, answer }: PriceReference,
): NonNullable<Sources["price"]> {
  return async (base, quote) => {
    const at = url.replaceAll("{base}", encodeURIComponent(base)).replaceAll("{quote}", encodeURIComponent(quote));
    const headers = { accept: "application/json" };
    const result = await egress.fetch({ url: at, method: "GET", headers, profile: "evidence" });
    if (result.outcome !== "answered") throw new Error(`the reference of prices: ${result.says}`);
    const price = result.status === 200 ? numeric(valueAt(parseJson(result.body), answer)) : undefined;
    return price !== undefined && price > 0 ? price : null;
  };
}
