import type { Config } from "../../infra/config.ts";
import { broken, type Finding, ok, warn } from "../../infra/finding.ts";
import { checkNetwork } from "../../infra/rails/network-checks.ts";
import { type Network, networksIn, railOn } from "../../infra/rails/networks.ts";
import { WalletFolder } from "../../infra/rails/wallet-folder.ts";
import { walletFindings as lowOnes, walletReport } from "../../infra/rails/wallet-report.ts";
import { walletsAt } from "../../pipelines/roles/data-folder.ts";

/** Each network of the settings is what they say: chain id, final blocks, every token's decimals and signing domain. */
export async function networkFindings(config: Config): Promise<Finding[]> {
  const networks = networksIn(config);
  const unread = networks.filter(({ rpcUrls }) => rpcUrls.length === 0);
  const found = await Promise.all(networks.filter(({ rpcUrls }) => rpcUrls.length > 0).map(nodesOf));
  return [
    ...unread.map(({ id }) =>
      broken(`network ${id}`, "no node is named for it, so nothing is paid", "set chain.rpc_url, or networks"),
    ),
    ...found.flat(),
  ];
}

/** Too few nodes that answer for a settlement to be believed: then nothing is signed there. */
async function nodesOf(network: Network): Promise<Finding[]> {
  const found = await checkNetwork(network);
  const answering = found.filter(({ name, standing }) => name.includes(" node ") && standing === "ok").length;
  if (answering >= network.agree) return found;
  const says = `${answering} of ${network.rpcUrls.length} nodes answer, and ${network.agree} must`;
  return [...found, broken(`network ${network.id}`, says, "bring them up, or name others")];
}

/** What the wallets of the settings hold, and whether it lasts. */
export async function walletFindings(config: Config): Promise<Finding[]> {
  const { wallets } = config;
  if (wallets.mint)
    return [warn("wallets", "they mint, which only a local chain allows", "wallets.mint is for a chain of your own")];
  const folder = new WalletFolder(walletsAt(config));
  const held = folder.read();
  if (!held.known) return [broken("wallets", `none in ${folder.dir}, so nothing is paid`, "touchstone wallets new")];
  const networks = networksIn(config).filter(({ rpcUrls }) => rpcUrls.length > 0);
  if (networks.length === 0) return [ok("wallets", `${folder.dir}: known and ${held.blind.length} blind`)];
  const rail = railOn(networks);
  const report = await walletReport(held, rail, networks);
  return lowOnes(report, { money: wallets.low_water, blind: wallets.low_blind });
}
