import { networkInterfaces } from "node:os";
import type { Config } from "../../infra/config.ts";
import { broken, type Finding, ok, warn } from "../../infra/finding.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import { findSourceProblems } from "../../pipelines/roles/parts.ts";

/** Host names that only this machine can reach. */
const LOCAL = /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

/**
 * Checks settings that are valid one by one but wrong together, which `loadConfig` does not detect.
 */
export async function settingsFindings(config: Config): Promise<Finding[]> {
  const found = [
    ...addressFindings(config),
    ...storeFindings(config),
    ...spendFindings(config),
    ...(await findSourceProblems(config)).map(([name, text]) =>
      broken(name, text, `name one of ${ownAddresses().join(", ")}`),
    ),
  ];
  const from = config.file ?? "the environment and the defaults";
  return [ok("settings", `read from ${from}`), ...found];
}

function addressFindings({ base_url, host, allow_loopback, limits }: Config): Finding[] {
  const found: Finding[] = [];
  const { hostname, protocol } = new URL(base_url);
  const isLocal = LOCAL.test(hostname);
  if (isLocal)
    found.push(
      warn(
        "base_url",
        `${base_url} is reachable only from this machine`,
        "set base_url to the public address: every link has it, and the log's origin, which cannot be changed later",
      ),
    );
  else if (protocol === "http:")
    found.push(
      warn("base_url", `${base_url} is not https`, "put a proxy with TLS in front, and set base_url to its address"),
    );
  if (allow_loopback)
    found.push(
      warn(
        "allow_loopback",
        isLocal
          ? "addresses of this machine may be fetched, which is for the demo and for tests"
          : `strangers can make this service, public at ${base_url}, fetch addresses of this machine`,
        "leave it off on a public machine",
      ),
    );
  if (!isLocal && LOCAL.test(host) && limits.trusted_proxies.length === 0)
    found.push(
      warn(
        "limits.trusted_proxies",
        "behind a proxy all clients share the limits of one client",
        "name the proxy's address in limits.trusted_proxies",
      ),
    );
  return found;
}

function storeFindings({ stores, log, sell }: Config): Finding[] {
  const found: Finding[] = [];
  const { private: hidden, public: open, orders } = stores;
  if (hidden !== null && hidden === open)
    found.push(
      broken(
        "stores",
        `private and published objects would be in one bucket, ${open}`,
        "name two buckets: touchstone buckets makes them",
      ),
    );
  const ids = [stores.private_key_id, stores.public_key_id, stores.orders_key_id].filter((id) => id !== null);
  if (new Set(ids).size < ids.length)
    found.push(
      broken(
        "stores",
        "two stores have the same credentials, so a serving machine could read the private one",
        "give each store its own credentials",
      ),
    );
  if (orders !== null && (orders === hidden || orders === open))
    found.push(
      broken(
        "stores.orders",
        `answers of bought calls would be in the bucket of another store, ${orders}`,
        "name a separate bucket: touchstone buckets makes it",
      ),
    );
  if (sell.network !== null && log !== null && orders === null)
    found.push(
      warn(
        "stores.orders",
        "several machines may sell, but answers of bought calls are stored in a folder of this machine",
        "set stores.orders to a bucket that all selling machines can reach, or sell from this machine alone",
      ),
    );
  if ((hidden === null) !== (open === null))
    found.push(
      warn(
        "stores",
        "one store is a bucket and the other a folder of this machine",
        "name a bucket for both, or for neither",
      ),
    );
  if (log !== null && hidden === null)
    found.push(
      warn(
        "stores",
        "several machines share the log, but the stores are folders of this machine",
        "set stores.private and stores.public to buckets",
      ),
    );
  return found;
}

/** Compares each cap with the next larger one: a cap that exceeds the next one has no effect. */
function spendFindings({ spend }: Config): Finding[] {
  const order = ["per_call", "per_host_day", "per_domain_day", "per_day", "total"] as const;
  return order.slice(1).flatMap((larger, i) => {
    const smaller = order[i]!;
    if (parseMoney(spend[smaller]) <= parseMoney(spend[larger])) return [];
    const text = `spend.${smaller} is ${spend[smaller]}, more than spend.${larger}, ${spend[larger]}`;
    return [warn(`spend.${smaller}`, text, `lower spend.${smaller}, or raise spend.${larger}`)];
  });
}

/** Returns the addresses of this machine's interfaces, without loopback. */
export const ownAddresses = (): string[] =>
  Object.values(networkInterfaces()).flatMap((all) =>
    (all ?? []).filter((one) => !one.internal).map((one) => one.address),
  );
