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
 * Topics that nothing is ever dropped of. The others become segments, and the log may forget a record that is committed; of
 * these the log is the only copy, and who folds them begins at the first record: a watcher stands until it is stopped, a
 * retry gets an order's own bytes, a loss that nobody made good keeps its seller from being paid again, and the books sum
 * over every order there ever was.
 */
export const KEPT = ["watchers", "orders"] as const satisfies readonly Topic[];

/** Topics that become segments and rows. */
export type IngestedTopic = Exclude<Topic, (typeof KEPT)[number]>;

/** What a log is opened with. */
export const LOG_TOPICS = { topics: TOPICS, kept: KEPT } as const;

/** Owners share the topics whose key is a capability: whoever holds a partition has all of what lies in it. */
export const OWNERS: OwnershipGroup = {
  name: "owners",
  topics: TOPICS.filter((topic) => !(KEPT as readonly Topic[]).includes(topic)),
};

/** Observers share the hosts: a host lies in the partition of its asks. */
export const OBSERVERS: OwnershipGroup = { name: "observers", topics: ["asks"] };
