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
 * the log may drop them. Of these two topics the log has the only copy, and a reader begins at the first record,
 * since old records still count. A watcher (a client's request to be notified when grades change) exists until it is
 * stopped. A buyer that repeats an order gets the order's answer again, no call is bought from a seller that still
 * owes us money, and the accounts sum over all orders.
 */
export const PERMANENT_TOPICS = ["watchers", "orders"] as const satisfies readonly Topic[];

/** Topics whose records become segment files and database rows. */
export type IngestedTopic = Exclude<Topic, (typeof PERMANENT_TOPICS)[number]>;

/** The topics as an argument for opening a log. `kept`: the topics from which no record is dropped. */
export const LOG_TOPIC_OPTIONS = { topics: TOPICS, kept: PERMANENT_TOPICS } as const;

/**
 * The consumer group whose members are owners: processes that ingest and grade, each for some of the partitions.
 * Almost all records of these topics are keyed by capability (one priced endpoint: method, url and tool), so the
 * owner of a partition reads all records of the partition's capabilities. The key of an ask is its host.
 */
export const OWNER_GROUP: OwnershipGroup = {
  name: "owners",
  topics: TOPICS.filter((topic) => !(PERMANENT_TOPICS as readonly Topic[]).includes(topic)),
};

/**
 * The consumer group whose members are observers: processes that probe and pay endpoints, each for some of the hosts.
 * A host belongs to the partition that holds its asks (clients' requests to probe a url of the host).
 */
export const OBSERVER_GROUP: OwnershipGroup = { name: "observers", topics: ["asks"] };
