import type { Rail } from "../../../infra/rails/rails.ts";
import { completeClaim, readClaim, type Source } from "../../../pipelines/1-observe/listings/claims.ts";
import { addPayable, type ReadTerms, readAskedTerms } from "../../../pipelines/1-observe/terms/terms.ts";
import type { Answer402 } from "../../../pipelines/record/terms/entries.ts";

type OurRail = Pick<Rail, "canPay" | "network">;

/** Both readings of a 402 at once: what it asks, and what our rail would pay of it. */
export const readTerms = (answer: Answer402, rail: OurRail, url?: string): ReadTerms =>
  addPayable(readAskedTerms(answer, rail.network, url), rail);

/** A row read and settled at once, as intake does it in two threads. */
export const claimOf = (item: unknown, source: Source, rail: OurRail) =>
  completeClaim(readClaim(item, source, rail.network), item, source, rail);
