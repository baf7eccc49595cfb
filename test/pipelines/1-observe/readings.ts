import type { Rail } from "../../../infra/rails/rails.ts";
import { readClaim, type Source, settleClaim } from "../../../pipelines/1-observe/listings/claims.ts";
import { type ReadTerms, readAskedTerms, withPayable } from "../../../pipelines/1-observe/terms/terms.ts";
import type { Answer402 } from "../../../pipelines/record/terms/entries.ts";

type OurRail = Pick<Rail, "canPay" | "network">;

/** Both readings of a 402 at once: what it asks, and what our rail would pay of it. */
export const readTerms = (answer: Answer402, rail: OurRail, url?: string): ReadTerms =>
  withPayable(readAskedTerms(answer, rail.network, url), rail);

/** A row read and settled at once, as intake does it in two threads. */
export const claimOf = (item: unknown, source: Source, rail: OurRail) =>
  settleClaim(readClaim(item, source, rail.network), item, source, rail);
