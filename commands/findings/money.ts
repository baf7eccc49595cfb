import { isIP } from "node:net";
import { forEachConcurrent } from "../../infra/concurrency.ts";
import type { Config } from "../../infra/config.ts";
import { broken, type Finding, ok, warn } from "../../infra/finding.ts";
import { accountOf } from "../../infra/rails/account.ts";
import { checkNetwork } from "../../infra/rails/network-checks.ts";
import { configuredNetworks, type Network, railOn } from "../../infra/rails/networks.ts";
import { type FolderWallets, WalletFolder } from "../../infra/rails/wallet-folder.ts";
import { walletFindings as balanceFindings, walletReport } from "../../infra/rails/wallet-report.ts";
import { walletsFolderOf } from "../../pipelines/roles/data-folder.ts";

/** Returns the name of the finding about a network. */
const networkFindingName = (id: string): string => `network ${id}`;

/**
 * Checks each network of the settings against its nodes: chain id, final blocks, and the decimals and signing domain of
 * every token.
 */
export async function networkFindings(config: Config): Promise<Finding[]> {
  const networks = configuredNetworks(config);
  const networksWithoutNodes = networks.filter(({ rpcUrls }) => rpcUrls.length === 0);
  const nodeFindings = await Promise.all(networks.filter(({ rpcUrls }) => rpcUrls.length > 0).map(checkNetworkNodes));
  return [
    ...networksWithoutNodes.map(({ id }) =>
      broken(
        networkFindingName(id),
        "the settings name no node of it, so nothing is paid",
        "set chain.rpc_url, or networks",
      ),
    ),
    ...nodeFindings.flat(),
  ];
}

/**
 * Checks the nodes of one network, and adds a `broken` finding if fewer nodes answer than must agree on a settlement.
 * Then no payment is signed on this network.
 */
async function checkNetworkNodes(network: Network): Promise<Finding[]> {
  const findings = await checkNetwork(network);
  const answeringNodes = findings.filter(({ name, standing }) => name.includes(" node ") && standing === "ok").length;
  if (answeringNodes >= network.agree) return findings;
  const description = `${answeringNodes} of ${network.rpcUrls.length} nodes answer, and ${network.agree} are needed`;
  return [...findings, broken(networkFindingName(network.id), description, "start the nodes, or name others")];
}

/**
 * Checks the balances of the wallets, and for how long the money lasts.
 * @param nodes findings about the networks; a network whose nodes are broken is not asked for balances
 */
export async function walletFindings(config: Config, nodes: readonly Finding[] = []): Promise<Finding[]> {
  const { wallets } = config;
  if (wallets.mint)
    return [
      warn(
        "wallets",
        "they mint their money, which works only on a local chain",
        "unset wallets.mint on any other chain",
      ),
    ];
  const folder = new WalletFolder(walletsFolderOf(config));
  const heldWallets = folder.read();
  if (!heldWallets.known)
    return [broken("wallets", `none in ${folder.dir}, so nothing is paid`, "touchstone wallets new")];
  const signerResults = await signerFindings(heldWallets);
  const isDown = (id: string) =>
    nodes.some(({ name, standing }) => name === networkFindingName(id) && standing === "broken");
  const [allNetworks, downWarnings] = [configuredNetworks(config), [] as Finding[]];
  for (const { id } of allNetworks.filter(({ id }) => isDown(id)))
    downWarnings.push(
      warn(`wallets on ${id}`, "not asked, since its nodes do not answer", `see ${networkFindingName(id)}`),
    );
  const networks = allNetworks.filter(({ id }) => !isDown(id));
  if (networks.length === 0)
    return [
      ...signerResults,
      ...downWarnings,
      ok("wallets", `${folder.dir}: known and ${heldWallets.blind.length} blind`),
    ];
  const report = await walletReport(heldWallets, railOn(networks), networks);
  return [
    ...signerResults,
    ...downWarnings,
    ...balanceFindings(report, { money: wallets.low_water, blind: wallets.low_blind }),
  ];
}

/**
 * Warns if blind calls (test calls from a wallet that no seller can know to be ours) may leave from the same address
 * as known calls (from our published wallet): a seller can then recognise blind calls by the address alone
 * (docs/schedule.md, "What a blind call looks like"). It is only a warning, since a machine may have only one address.
 */
export function blindFindings({ observe }: Pick<Config, "observe">): Finding[] {
  const { known_addresses: known, blind_addresses: blind } = observe;
  const name = "observe.blind_addresses";
  const consequence =
    "a seller that stores the address of a known call recognises blind calls by it, and can treat them specially: " +
    "blind calls and re-tests then prove no more than known ones";
  const todo = "name addresses of this machine for both, in different networks if possible, and restart the observer";
  if (blind.length === 0)
    return [warn(name, `empty: known and blind calls leave from one address; ${consequence}`, todo)];
  const families = new Set(blind.map(isIP));
  const uncoveredFamilies = [...new Set(known.map(isIP))].filter((family) => !families.has(family));
  if (uncoveredFamilies.length === 0)
    return [ok(name, `${blind.length} addresses, none of them in observe.known_addresses`)];
  const familyNames = uncoveredFamilies.map((family) => `IPv${family}`).join(" and ");
  return [
    warn(name, `none of ${familyNames}: there the system chooses the address, maybe a known one; ${consequence}`, todo),
  ];
}

const MAX_CONCURRENT_SIGNATURES = 8;
/** The message of the test signature; no contract accepts it as a payment. */
const TEST_MESSAGE = {
  domain: { name: "touchstone doctor" },
  types: { Word: [{ name: "word", type: "string" }] },
  primaryType: "Word",
  message: { word: "is anybody there" },
} as const;

/**
 * Requests a test signature for each wallet whose key is held by a signer (a separate service) instead of in the
 * wallet folder. Returns no findings if all keys are in the folder.
 */
async function signerFindings({ known, gas, till, float, blind }: FolderWallets): Promise<Finding[]> {
  const walletsWithSigner = [known, gas, till, float, ...blind].flatMap((one) =>
    one?.signer === undefined ? [] : [one],
  );
  const failures: Finding[] = [];
  await forEachConcurrent(walletsWithSigner, MAX_CONCURRENT_SIGNATURES, async (wallet) => {
    try {
      await accountOf(wallet).signTypedData(TEST_MESSAGE);
    } catch (error) {
      failures.push(broken("signer", (error as Error).message, `let it sign for ${wallet.address}`));
    }
  });
  if (failures.length > 0 || walletsWithSigner.length === 0) return failures;
  return [
    ok("signer", `signs for ${walletsWithSigner.length} ${walletsWithSigner.length === 1 ? "wallet" : "wallets"}`),
  ];
}
