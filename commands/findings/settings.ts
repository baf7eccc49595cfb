import { networkInterfaces } from "node:os";
import type { Config } from "../../infra/config.ts";
import { broken, type Finding, ok, warn } from "../../infra/finding.ts";
import { isLoopbackHost } from "../../infra/url.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import { findSourceProblems } from "../../pipelines/roles/parts.ts";

/** Checks settings that are valid one by one but wrong together, which `loadConfig` does not detect. */
export async function settingsFindings(config: Config): Promise<Finding[]> {
  const findings = [
    ...addressFindings(config),
    ...storeFindings(config),
    ...spendFindings(config),
    ...(await findSourceProblems(config)).map(([name, text]) =>
      broken(name, text, `name one of ${addressesOfThisMachine().join(", ")}`),
    ),
  ];
  const settingsSource = config.file ?? "the environment and the defaults";
  return [ok("settings", `read from ${settingsSource}`), ...findings];
}

function addressFindings({ base_url, host, allow_loopback, limits }: Config): Finding[] {
  const findings: Finding[] = [];
  const { hostname, protocol } = new URL(base_url);
  const isLocal = isLoopbackHost(hostname);
  if (isLocal)
    findings.push(
      warn(
        "base_url",
        `${base_url} is reachable only from this machine`,
        "set base_url to the public address: every link has it, and the log's origin, which cannot be changed later",
      ),
    );
  else if (protocol === "http:")
    findings.push(
      warn("base_url", `${base_url} is not https`, "put a proxy with TLS in front, and set base_url to its address"),
    );
  if (allow_loopback)
    findings.push(
      warn(
        "allow_loopback",
        isLocal
          ? "addresses of this machine may be fetched, which is for the demo and for tests"
          : `strangers can make this service, public at ${base_url}, fetch addresses of this machine`,
        "leave it off on a public machine",
      ),
    );
  if (!isLocal && isLoopbackHost(host) && limits.trusted_proxies.length === 0)
    findings.push(
      warn(
        "limits.trusted_proxies",
        "behind a proxy all clients share the limits of one client",
        "name the proxy's address in limits.trusted_proxies",
      ),
    );
  return findings;
}

function storeFindings({ stores, log, sell }: Config): Finding[] {
  const findings: Finding[] = [];
  const { private: privateAddress, public: publicAddress, orders } = stores;
  if (privateAddress !== null && privateAddress === publicAddress)
    findings.push(
      broken(
        "stores",
        `private and published objects would be in one bucket, ${publicAddress}`,
        "name two buckets: touchstone buckets makes them",
      ),
    );
  const ids = [stores.private_key_id, stores.public_key_id, stores.orders_key_id].filter((id) => id !== null);
  if (new Set(ids).size < ids.length)
    findings.push(
      broken(
        "stores",
        "two stores have the same credentials, so a serving machine could read the private one",
        "give each store its own credentials",
      ),
    );
  if (orders !== null && (orders === privateAddress || orders === publicAddress))
    findings.push(
      broken(
        "stores.orders",
        `answers of bought calls would be in the bucket of another store, ${orders}`,
        "name a separate bucket: touchstone buckets makes it",
      ),
    );
  if (sell.network !== null && log !== null && orders === null)
    findings.push(
      warn(
        "stores.orders",
        "several machines may sell, but answers of bought calls are stored in a folder of this machine",
        "set stores.orders to a bucket that all selling machines can reach, or sell from this machine alone",
      ),
    );
  if ((privateAddress === null) !== (publicAddress === null))
    findings.push(
      warn(
        "stores",
        "one store is a bucket and the other a folder of this machine",
        "name a bucket for both, or for neither",
      ),
    );
  if (log !== null && privateAddress === null)
    findings.push(
      warn(
        "stores",
        "several machines share the log, but the stores are folders of this machine",
        "set stores.private and stores.public to buckets",
      ),
    );
  return findings;
}

/** Compares each spending cap with the next wider one: a cap that exceeds the next one has no effect. */
function spendFindings({ spend }: Config): Finding[] {
  const capsBySize = ["per_call", "per_host_day", "per_domain_day", "per_day", "total"] as const;
  return capsBySize.slice(1).flatMap((larger, i) => {
    const smaller = capsBySize[i]!;
    if (parseMoney(spend[smaller]) <= parseMoney(spend[larger])) return [];
    const text = `spend.${smaller} is ${spend[smaller]}, more than spend.${larger}, ${spend[larger]}`;
    return [warn(`spend.${smaller}`, text, `lower spend.${smaller}, or raise spend.${larger}`)];
  });
}

/** Returns the addresses of this machine's interfaces, without loopback. */
export const addressesOfThisMachine = (): string[] =>
  Object.values(networkInterfaces()).flatMap((all) =>
    (all ?? []).filter((one) => !one.internal).map((one) => one.address),
  );
