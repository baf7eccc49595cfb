import { type Clock, systemClock } from "../../infra/clock.ts";
import { ConfigError } from "../../infra/config.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Network } from "../../infra/rails/networks.ts";
import { createReader } from "../../infra/rails/rpc.ts";
import type { TruthParts } from "../1-observe/classes/bought.ts";
import { NO_CLASS_MAPS, readClassMaps } from "../1-observe/classes/mapping-file.ts";
import { parseJson } from "../1-observe/json.ts";
import type { ObserverParts } from "../1-observe/observer.ts";
import { RandomDraws, type Sources, toNumber } from "../record/classes/checker.ts";
import { isPointer, valueAt } from "../record/classes/mapping.ts";
import { factsOf, plantedPage, plantedToken } from "../record/classes/planted.ts";
import { registerPath } from "../register/import.ts";
import { NoRegister, Register } from "../register/register.ts";
import type { Parts } from "./parts.ts";

/**
 * Opens what class questions are made from on this machine: the operator's file, and sources for answers that cannot be
 * computed. Pages are planted only where others can reach our own address.
 * @throws ConfigError for a file of classes or a price reference that cannot be used
 */
export function classesOf(
  parts: Pick<Parts, "config" | "egress" | "pages">,
  clock: Clock,
  { network, pagesAt }: { network: Network; pagesAt?: string },
): { of: NonNullable<ObserverParts["classes"]>; close(): void } {
  const { config, egress, pages } = parts;
  const base = (pagesAt ?? config.base_url).replace(/\/+$/, "");
  const reference = config.price_reference;
  if (reference && !isPointer(reference.answer)) {
    throw new ConfigError(["price_reference.answer: expected a JSON pointer such as /data/price"]);
  }
  const register = new Register({ path: registerPath(config.data_dir), clock: systemClock, memoryLimit: "128MB" });
  const sources: Sources = {
    ...(pages && egress.validate(base).ok ? { page: pageSource(base, pages, clock) } : {}),
    block: blockSource(network.rpcUrls, network.id),
    ...(reference ? { price: priceSource(egress, reference) } : {}),
    company: companySource(register),
  };
  const maps = config.classes_file === null ? NO_CLASS_MAPS : readClassMaps(config.classes_file);
  return { of: { maps, sources }, close: () => register.close() };
}

/**
 * Opens what a machine that sells needs to find the right answers to buyers' inputs: the operator's file, and the
 * sources of {@link classesOf}.
 * @param pages the secret of planted pages; null: none are planted
 * @throws ConfigError for a file of classes that cannot be used
 */
export function truthsOf(
  { config, egress }: Pick<Parts, "config" | "egress">,
  clock: Clock,
  { network, pages, pagesAt }: { network: Network; pages: Uint8Array | null; pagesAt?: string },
): { of: TruthParts; close(): void } {
  const base = `${(pagesAt ?? config.base_url).replace(/\/+$/, "")}/p/`;
  const reference = config.price_reference;
  const register = new Register({ path: registerPath(config.data_dir), clock: systemClock, memoryLimit: "128MB" });
  const sources: TruthParts["sources"] = {
    page: (url) => {
      const page = pages && url.startsWith(base) ? plantedPage(pages, url.slice(base.length), clock.now()) : null;
      return page && factsOf(page);
    },
    block: finalBlock(network.rpcUrls, network.id),
    ...(reference ? { price: priceSource(egress, reference) } : {}),
    company: (lei) =>
      firstRow<{ name: string }>(register, sql("register/search:named"), { lei }).then((row) => row?.name ?? null),
  };
  const maps = config.classes_file === null ? NO_CLASS_MAPS : readClassMaps(config.classes_file);
  return { of: { maps, sources }, close: () => register.close() };
}

/**
 * A source of planted pages. Observers and serving share `secret`.
 * @param base address of the service, without a slash at its end
 */
export const pageSource =
  (base: string, secret: Uint8Array, clock: Pick<Clock, "now">): NonNullable<Sources["page"]> =>
  (seed) => {
    const at = clock.now();
    const token = plantedToken(secret, seed, at);
    return { url: `${base}/p/${token}`, facts: factsOf(plantedPage(secret, token, at)!) };
  };

/** Most blocks below the last final block that a question may ask about; nodes drop older ones. */
const MAX_BLOCK_DEPTH = 10_000;

/** A source of blocks from these nodes, at heights that they call final. */
function blockSource(rpcUrls: readonly string[], network: string): NonNullable<Sources["block"]> {
  const reader = createReader(rpcUrls);
  return async (seed) => {
    const final = Number((await reader.getBlock({ blockTag: "finalized" })).number);
    if (final < 1) return null;
    const number = final - new RandomDraws(seed).below(Math.min(final, MAX_BLOCK_DEPTH));
    const { hash, timestamp } = await reader.getBlock({ blockNumber: BigInt(number) });
    return { network, number, hash, time: Number(timestamp) };
  };
}

/** Reads a block that these nodes call final and still store; null for any other height. */
function finalBlock(rpcUrls: readonly string[], network: string): NonNullable<TruthParts["sources"]["block"]> {
  const reader = createReader(rpcUrls);
  return async (number) => {
    const final = Number((await reader.getBlock({ blockTag: "finalized" })).number);
    if (number > final || number < final - MAX_BLOCK_DEPTH) return null;
    const { hash, timestamp } = await reader.getBlock({ blockNumber: BigInt(number) });
    return { network, number, hash, time: Number(timestamp) };
  };
}

/** A source of reference prices: its url, with `{base}` and `{quote}`, and the place of the price in its answer. */
interface PriceReference {
  url: string;
  answer: string;
}

/** Reads prices from the reference that the operator chose; null where it has none for a pair. */
function priceSource(egress: Pick<Egress, "fetch">, { url, answer }: PriceReference): NonNullable<Sources["price"]> {
  return async (base, quote) => {
    const at = url.replaceAll("{base}", encodeURIComponent(base)).replaceAll("{quote}", encodeURIComponent(quote));
    const headers = { accept: "application/json" };
    const result = await egress.fetch({ url: at, method: "GET", headers, profile: "evidence" });
    if (result.outcome !== "answered") throw new Error(`the reference of prices: ${result.says}`);
    const price = result.status === 200 ? toNumber(valueAt(parseJson(result.body), answer)) : undefined;
    return price !== undefined && price > 0 ? price : null;
  };
}

/** Reads companies from the register that the operator has imported; null where there is no register. */
const companySource =
  (register: Register): NonNullable<Sources["company"]> =>
  async (seed) => {
    const draws = new RandomDraws(seed);
    const share = (draws.below(65_536) + draws.below(65_536) / 65_536) / 65_536;
    return firstRow<{ lei: string; name: string }>(register, sql("register/search:drawn"), { share });
  };

/** Reads the first row of a statement on the register of companies; null when there is no row or no register. */
async function firstRow<T>(
  register: Register,
  statement: string,
  values: Record<string, string | number>,
): Promise<T | null> {
  try {
    const [row] = await register.use((open) => open.all<T>(statement, values));
    return row ?? null;
  } catch (error) {
    if (error instanceof NoRegister) return null;
    throw error;
  }
}
