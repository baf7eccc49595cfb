import { type Clock, systemClock } from "../../infra/clock.ts";
import { ConfigError } from "../../infra/config.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Network } from "../../infra/rails/networks.ts";
import { NO_MAPS, readMaps } from "../1-observe/classes/mapping-file.ts";
import { blockSource, pageSource, priceSource } from "../1-observe/classes/sources.ts";
import type { ObserverParts } from "../1-observe/observer.ts";
import { RandomDraws, type Sources } from "../record/classes/checker.ts";
import { isPointer } from "../record/classes/mapping.ts";
import { registerPath } from "../register/import.ts";
import { NoRegister, Register } from "../register/register.ts";
import type { Parts } from "./parts.ts";

/**
 * What questions of classes are made of on this machine: the operator's file, and a source each for what cannot be
 * computed. Nothing is planted where our own address could not be fetched by anybody else.
 * @throws ConfigError for a file of classes or a reference that cannot be used
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
  const maps = config.classes_file === null ? NO_MAPS : readMaps(config.classes_file);
  return { of: { maps, sources }, close: () => register.close() };
}

/** Rows of the register of companies that the operator has imported; none where there is no register. */
const companySource =
  (register: Register): NonNullable<Sources["company"]> =>
  async (seed) => {
    const draws = new RandomDraws(seed);
    const share = (draws.below(65_536) + draws.below(65_536) / 65_536) / 65_536;
    try {
      const [row] = await register.use((open) =>
        open.all<{ lei: string; name: string }>(sql("register/search:drawn"), { share }),
      );
      return row ?? null;
    } catch (error) {
      if (error instanceof NoRegister) return null;
      throw error;
    }
  };
