import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "..");

/**
 * Attacks on the money of buyers, sellers and the service that held once, and the test that each of them fails now. Whoever
 * renames such a test finds its row here; whoever finds another attack adds one.
 */
const ATTACKS: readonly [attack: string, file: string, says: string][] = [
  // What a buyer can do to us.
  [
    "settle payments that move nothing, at our cost",
    "infra/rails/settling",
    "of twelve payments of a wallet with money for one",
  ],
  ["have one drained order settled again and again", "pipelines/orders/attacks", "a drained order is charged once"],
  [
    "toggle a balance so that each settlement reverts",
    "pipelines/orders/attacks",
    "of one order three transactions are sent",
  ],
  ["waste transactions all day", "pipelines/orders/attacks", "a wallet that had so many transactions wasted"],
  [
    "have work of our own done for nothing",
    "pipelines/orders/attacks",
    "one balance pays for one piece of work at once",
  ],
  ["stand many orders on one balance", "pipelines/orders/attacks", "one balance behind many orders, at %i replicas"],
  [
    "close the shop to everybody by a day's losses",
    "pipelines/orders/attacks",
    "closes nothing but payment after delivery",
  ],
  ["close it to regulars too", "pipelines/orders/attacks", "a wallet that paid fees goes on"],
  ["fill what may be sold at once", "pipelines/orders/attacks", "far more than may be lost in a day is sold"],
  ["buy with many wallets of one network", "pipelines/orders/attacks", "one network with many wallets is one buyer"],
  ["be refused for an honest burst", "pipelines/orders/attacks", "an honest burst: a wallet that holds 18 totals"],
  ["take the till's money by a lagging node", "pipelines/orders/lagging", "is found once the node has caught up"],
  [
    "have a verdict of two nodes that disagree",
    "infra/rails/quorum",
    "a head of one node and a missing settlement of the next",
  ],
  ["have a refund signed twice", "pipelines/orders/lagging", "a refund that a lagging node does not show"],
  [
    "call a seller's payment unpaid",
    "pipelines/orders/lagging",
    "a seller's payment that a lagging node does not show",
  ],
  ["slow recovery by losses", "pipelines/orders/attacks", "those that no seller sends back are never looked for"],
  ["stop recovery by one node", "pipelines/orders/attacks", "a node that is down for one order keeps no other"],
  ["fill the disk by orders that are not charged", "pipelines/orders/order-objects", "never charged: below 10 kB"],
  ["fill it at a dust price", "pipelines/orders/attacks", "a call below the smallest price is not bought"],
  ["provoke refunds", "pipelines/orders/attacks", "refunds that a buyer provokes again and again"],
  ["use clocks that differ", "pipelines/orders/attacks", "a clock that is minutes ahead"],
  ["all of it at once, by wallets with money", "pipelines/orders/adversaries", "against adversaries with money"],
  // What one stranger can take from all others.
  ["hold every place of bought calls", "serving/buy/shares", "take half of the places"],
  ["hold a place for ever by a log that never answers", "shares", "gives its place back at last"],
  ["hold the places for prices", "shares", "places, and fair queues: each under a name with its size"],
  ["hold the places of looks at listings", "serving/listing-check", "one look at a domain at a time"],
  ["burn the cores by documents", "serving/work/shares", "sixteen of one stranger leave a reader to everybody else"],
  ["send the same burning document again", "serving/work/shares", "are refused at once with what they failed with"],
  ["fill the line of asks", "serving/asks", "four clients that fill the line shut nobody out"],
  ["fill the watchers", "serving/watchers", "the newest of the network that has most ends"],
  ["take a shared resource that nobody shares out", "shares", "nobody counts places by hand"],
  ["have many names under a hosting platform", "shares", "count names under a hosting platform together"],
  [
    "take money as many tenants of one platform",
    "pipelines/orders/attacks",
    "names under a hosting platform are one seller",
  ],
  // What a seller can do to a buyer behind our guard.
  [
    "hide what is signed behind another scheme",
    "serving/client/wallets",
    "another scheme's parameters behind a challenge",
  ],
  ["have more signed than was asked about, over HTTP", "serving/client/wallets", "over HTTP"],
  ["the same by tools of MCP servers", "serving/client/wallets", "over MCP"],
  ["answer about another method", "serving/client/ask", "of one path, and of a template"],
  ["start clean on a new url, or under a known domain", "serving/related", "never seen"],
  ["evade a flag by the spelling of an address", "serving/related", "case"],
  ["ring a seller's escapes in a terminal", "commands/printer", "nothing writes to the terminal but the printer"],
];

test.each(ATTACKS)("%s", (_attack, file, says) => {
  expect(readFileSync(join(ROOT, "test", `${file}.test.ts`), "utf8")).toContain(says);
});
