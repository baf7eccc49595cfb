import { type Clock, systemClock } from "../../infra/clock.ts";
import { ConfigError } from "../../infra/config.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { sql } from "../../infra/lake/sql.ts";
import { type Network, tokenOn } from "../../infra/rails/networks.ts";
import { quorum } from "../../infra/rails/quorum.ts";
import { chainRead } from "../../infra/rails/rpc.ts";
import type { TokenAtNode } from "../../infra/rails/settlement.ts";
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
 * Opens what this machine needs to make questions of classes (kinds of endpoints with questions to which we know the
 * answers): the operator's file of classes, and sources of answers that cannot be computed. Pages are planted (served
 * to test endpoints that read pages) only if others can reach our own address.
 * @throws ConfigError for a file of classes or a price reference that cannot be used
 */
export function openClasses(
  parts: Pick<Parts, "config" | "egress" | "pages">,
  clock: Clock,
  { network, pagesAt }: { network: Network; pagesAt?: string },
): { classParts: NonNullable<ObserverParts["classes"]>; close(): void } {
  const { config, egress, pages } = parts;
  const baseUrl = (pagesAt ?? config.base_url).replace(/\/+$/, "");
  const reference = config.price_reference;
  if (reference && !isPointer(reference.answer)) {
    throw new ConfigError(["price_reference.answer: expected a JSON pointer such as /data/price"]);
  }
  const register = new Register({ path: registerPath(config.data_dir), clock: systemClock, memoryLimit: "128MB" });
  const sources: Sources = {
    ...(pages && egress.validate(baseUrl).ok ? { page: createPageSource(baseUrl, pages, clock) } : {}),
    block: createBlockSource(network),
    ...(reference ? { price: createPriceSource(egress, reference) } : {}),
    company: createCompanySource(register),
  };
  const maps = config.classes_file === null ? NO_CLASS_MAPS : readClassMaps(config.classes_file);
  return { classParts: { maps, sources }, close: () => register.close() };
}

/**
 * Opens what a machine that sells needs to find the right answers to buyers' own inputs: the operator's file of
 * classes, and sources as in {@link openClasses}.
 * @param pages secret from which planted pages are derived; null if there is none
 * @throws ConfigError for a file of classes that cannot be used
 */
export function openTruths(
  { config, egress }: Pick<Parts, "config" | "egress">,
  clock: Clock,
  { network, pages, pagesAt }: { network: Network; pages: Uint8Array | null; pagesAt?: string },
): { truthParts: TruthParts; close(): void } {
  const base = `${(pagesAt ?? config.base_url).replace(/\/+$/, "")}/p/`;
  const reference = config.price_reference;
  const register = new Register({ path: registerPath(config.data_dir), clock: systemClock, memoryLimit: "128MB" });
  const sources: TruthParts["sources"] = {
    page: (url) => {
      const page = pages && url.startsWith(base) ? plantedPage(pages, url.slice(base.length), clock.now()) : null;
      return page && factsOf(page);
    },
    block: createFinalBlockReader(network),
    ...(reference ? { price: createPriceSource(egress, reference) } : {}),
    company: (lei) =>
      firstRow<{ name: string }>(register, sql("register/search:named"), { lei }).then((row) => row?.name ?? null),
  };
  const maps = config.classes_file === null ? NO_CLASS_MAPS : readClassMaps(config.classes_file);
  return { truthParts: { maps, sources }, close: () => register.close() };
}

/**
 * Creates a source of planted pages. Observers, which make the addresses, and the processes that serve the pages use
 * the same `secret`.
 * @param baseUrl address of the service, without a slash at its end
 */
export const createPageSource =
  (baseUrl: string, secret: Uint8Array, clock: Pick<Clock, "now">): NonNullable<Sources["page"]> =>
  (seed) => {
    const now = clock.now();
    const token = plantedToken(secret, seed, now);
    return { url: `${baseUrl}/p/${token}`, facts: factsOf(plantedPage(secret, token, now)!) };
  };

/** How far before the last final block the block of a question may lie, in blocks: nodes drop older blocks. */
const MAX_BLOCK_DEPTH = 10_000;

/**
 * Returns functions that read the final blocks of a network. As for payments, enough of the network's nodes have to
 * agree on a block, so that one node that lies cannot falsify a right answer. Both functions throw ChainDown when too
 * few agree.
 */
function finalBlocksOf(network: Network) {
  const { nodes, agree } = tokenOn(network, network.assets[0]!);
  return {
    readFinalNumber: async (): Promise<number> => (await quorum.head({ nodes, agree }, "finalized")).number,
    readBlockAt(number: number) {
      const readBlock = async ({ reader }: TokenAtNode) => {
        const { hash, timestamp } = await chainRead("a block", () => reader.getBlock({ blockNumber: BigInt(number) }));
        return { network: network.id, number, hash, time: Number(timestamp) };
      };
      return quorum.same(nodes, agree, readBlock, ({ hash, time }) => `${hash} ${time}`);
    },
  };
}

/** Creates a source of final blocks of a network. */
function createBlockSource(network: Network): NonNullable<Sources["block"]> {
  const { readFinalNumber, readBlockAt } = finalBlocksOf(network);
  return async (seed) => {
    const last = await readFinalNumber();
    if (last < 1) return null;
    return readBlockAt(last - new RandomDraws(seed).below(Math.min(last, MAX_BLOCK_DEPTH)));
  };
}

/** Creates a reader of final blocks by number; null for a block that is not final, or too old for these nodes. */
function createFinalBlockReader(network: Network): NonNullable<TruthParts["sources"]["block"]> {
  const { readFinalNumber, readBlockAt } = finalBlocksOf(network);
  return async (number) => {
    const last = await readFinalNumber();
    return number > last || number < last - MAX_BLOCK_DEPTH ? null : readBlockAt(number);
  };
}

/**
 * A source of reference prices: its url, with the placeholders `{base}` and `{quote}`, and the JSON pointer to the
 * price in its answer.
 */
interface PriceReference {
  url: string;
  answer: string;
}

/**
 * Creates a function that reads a pair's price from the source that the operator chose. The function returns null if
 * the source has no price for the pair.
 */
function createPriceSource(
  egress: Pick<Egress, "fetch">,
  { url, answer }: PriceReference,
): NonNullable<Sources["price"]> {
  return async (base, quote) => {
    const requestUrl = url
      .replaceAll("{base}", encodeURIComponent(base))
      .replaceAll("{quote}", encodeURIComponent(quote));
    const headers = { accept: "application/json" };
    const result = await egress.fetch({ url: requestUrl, method: "GET", headers, profile: "evidence" });
    if (result.outcome !== "answered") throw new Error(`the reference of prices: ${result.says}`);
    const price = result.status === 200 ? toNumber(valueAt(parseJson(result.body), answer)) : undefined;
    return price !== undefined && price > 0 ? price : null;
  };
}

/**
 * Creates a function that draws a company from the register that the operator has imported. The function returns null
 * if there is no register.
 */
const createCompanySource =
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
