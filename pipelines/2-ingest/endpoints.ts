import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { capId } from "../record/ids.ts";
import { registrableDomain } from "../record/url.ts";
import { METHODS } from "../record/vocabulary.ts";

interface Named {
  cap: string;
  url: string;
  method: string | null;
  tool: string | null;
}

/** What says where a new capability lives, by topic: a listing, an ask, or a knock that an ask was answered with. */
const NEW: Record<string, string> = {
  listings: "17_new_listings",
  asks: "17_new_asks",
  "observations.free": "17_new_knocked",
};

/** The method of a capability: the one whose hash it is. A listing may leave it out, and the observer then chose one. */
function methodOf({ cap, url, method, tool }: Named): string {
  const order = method === null ? METHODS : [method, ...METHODS];
  return order.find((name) => capId(name, url, tool ?? "") === cap) ?? method ?? "GET";
}

/** Host (with port) and registrable domain of a url; both null when it is none. */
export function placeOf(url: string): { host: string | null; domain: string | null } {
  try {
    return { host: new URL(url).host, domain: registrableDomain(url) };
  } catch {
    // A listing may carry what is no url; it has no domain then and is never called.
    return { host: null, domain: null };
  }
}

/** Rows of `endpoint` for the staged records' new capabilities; their `site` is made anew with them. */
export async function addEndpoints(tx: Statements, topic: string, ownHosts: ReadonlySet<string>): Promise<void> {
  const query = NEW[topic];
  if (!query) return;
  const all = await tx.all<Named>(sql(query));
  // A template is knocked at under a concrete url: the url of a knock is the capability's only when it is hashed in it.
  const isOwn = ({ cap, url, method }: Named): boolean => method !== null && capId(method, url, "") === cap;
  const found = topic === "observations.free" ? all.filter(isOwn) : all;
  if (found.length === 0) return;
  const rows = found.map((named) => {
    const place = placeOf(named.url);
    return { ...named, method: methodOf(named), ...place, ours: place.host !== null && ownHosts.has(place.host) };
  });
  await tx.run("SET VARIABLE endpoints = $rows", { rows: JSON.stringify(rows) });
  await tx.run("SET VARIABLE endpoints_topic = $topic", { topic });
  await tx.run(sql("18_endpoints"));
}
