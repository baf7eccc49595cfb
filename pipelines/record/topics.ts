import type { OwnershipGroup } from "../../infra/log/ownership.ts";

/** The topics of the record. The set is closed: a log is created with all of them. */
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
 * Topics of which nothing is ever dropped. Records of the other topics become segments, after which the log may drop
 * them. Of these two topics the log is the only copy, and their readers begin at the first record: a watcher exists
 * until it is stopped, a retry gets an order's own bytes, a seller is not paid again until its loss is made good, and
 * the books sum over every order that ever was.
 */
export const KEPT = ["watchers", "orders"] as const satisfies readonly Topic[];

/** Topics that become segments and rows. */
export type IngestedTopic = Exclude<Topic, (typeof KEPT)[number]>;

/** The topics in the form in which a log is opened. */
export const LOG_TOPICS = { topics: TOPICS, kept: KEPT } as const;

/**
 * The owners' group. Its topics have the capability as key, so the owner of a partition has all records of its
 * capabilities.
 */
export const OWNERS: OwnershipGroup = {
  name: "owners",
  topics: TOPICS.filter((topic) => !(KEPT as readonly Topic[]).includes(topic)),
};

/** The observers' group. A host belongs to the partition in which its asks are. */
export const OBSERVERS: OwnershipGroup = { name: "observers", topics: ["asks"] };
