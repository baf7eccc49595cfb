import { Resolver } from "node:dns/promises";

/** All addresses of a name, in any order. Rejects with an `Error` that may carry a `code`. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/**
 * Resolver for strangers' names: asks the name servers and reads neither the hosts file nor search domains, so a name
 * means the same here as anywhere. It does not use getaddrinfo, whose four threads a slow name server would hold.
 * `localhost` and names under it are the loopback addresses (RFC 6761 section 6.3); only development lets them through.
 * @param servers `address:port` of the name servers to ask; default: the machine's.
 */
export function systemResolve(servers?: readonly string[]): Resolve {
  const resolver = new Resolver({ timeout: 1_000, tries: 2 });
  if (servers) resolver.setServers(servers);
  return async (host) => {
    if (host === "localhost" || host.endsWith(".localhost")) return ["127.0.0.1", "::1"];
    const [v4, v6] = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    const found = [v4, v6].flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
    if (found.length === 0 && v4.status === "rejected") throw v4.reason;
    return found;
  };
}

/** For development: every name is at this one address, so that a stand-in on this machine answers for all of them. */
export const resolveTo =
  (address: string): Resolve =>
  async () => [address];
