import type { OwnershipGroup } from "../../infra/log/ownership.ts";

/** The topics of the log. The set is closed: a log is created with all of them. */
export const TOPICS = [
  "listings",
  "observations.free",
  "observations.paid",
  "observations.mcp",
  "asks",
  "corrections",
  "watchers",
  "orders",
] as const;
export type Topic = (typeof TOPICS)[number];

/**
 * Topics from which the log never drops a record. Records of the other topics are copied to segment files; after that
 * the log may drop them. Of these two topics the log has the only copy, and readers begin at the first record: a
 * watcher exists until it is stopped, a retried order gets its first answer again, a seller with an unpaid loss stays
 * blocked, and the accounts sum over all orders.
 */
export const PERMANENT_TOPICS = ["watchers", "orders"] as const satisfies readonly Topic[];

/** Topics whose records become segment files and database rows. */
export type IngestedTopic = Exclude<Topic, (typeof PERMANENT_TOPICS)[number]>;

/** The topics in the form that opening a log takes. */
export const LOG_TOPICS = { topics: TOPICS, kept: PERMANENT_TOPICS } as const;

/**
 * The group in which owners share the partitions. Records of its topics are keyed by capability, so the owner of a
 * partition reads all records of the partition's capabilities.
 */
export const OWNERS: OwnershipGroup = {
  name: "owners",
  topics: TOPICS.filter((topic) => !(PERMANENT_TOPICS as readonly Topic[]).includes(topic)),
};

/**
 * The group in which observers share the hosts. A host belongs to the partition that holds its asks (requests to probe
 * a url).
 */
export const OBSERVERS: OwnershipGroup = { name: "observers", topics: ["asks"] };
