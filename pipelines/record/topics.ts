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

/** Owners share the topics whose key is a capability: whoever holds a partition has all of what lies in it. */
export const OWNERS: OwnershipGroup = {
  name: "owners",
  topics: TOPICS.filter((topic) => topic !== "watchers" && topic !== "orders"),
};

/** Observers share the hosts: a host lies in the partition of its asks. */
export const OBSERVERS: OwnershipGroup = { name: "observers", topics: ["asks"] };
