import { listingDrafts } from "../../pipelines/4-publish/known.ts";
import type { Publisher } from "../../pipelines/4-publish/publisher.ts";
import type { ListingFacts } from "../../pipelines/published/endpoint.ts";

/** What a run says of listings, published alone: a new leaf only where it differs from the published one. */
export const publishListings = (
  publisher: Pick<Publisher, "publishLeaves">,
  listed: readonly ListingFacts[],
  unlisted: readonly string[] = [],
) => publisher.publishLeaves(listingDrafts(listed, unlisted));
