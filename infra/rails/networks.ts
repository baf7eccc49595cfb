import { isAddress } from "viem";
import { type Config, ConfigError, GAS_CEILING_GWEI } from "../config.ts";
import { parseUrl } from "../url.ts";
import { knownUsdc, type SigningDomain, signingDomain } from "./charge.ts";
import { createEvmRail } from "./evm.ts";
import { type AssetRef, decimalsOf, type Rail } from "./rails.ts";
import { type Confirmations, type TokenOnChain, tokenOnChain } from "./settlement.ts";
import { createTempoRail, isTempo, tempoDollar } from "./tempo.ts";

/** A token that payments use; one unit is one dollar. It has EIP-3009, or is a TIP-20 token of Tempo. */
export interface Token {
  symbol: string;
  /** Lower-case 0x address. */
  address: string;
  decimals: number;
  /** EIP-712 domain; empty for Tempo's tokens, which do not need it. */
  name: string;
  version: string;
}

/** A blockchain of the settings, with every default filled in. */
export interface Network {
  /** CAIP-2. */
  id: string;
  /**
   * Nodes in the order in which they are asked. When empty, sellers' payment terms on this network are read and
   * priced, but not paid.
   */
  rpcUrls: readonly string[];
  /** Number of nodes that have to agree on a settlement. */
  agree: number;
  /** When a block of this network counts as final. */
  confirmations: Confirmations;
  /** Largest number of wei that a unit of gas may cost; while a node estimates more, nothing is sent. */
  gasCeiling: bigint;
  /** Never empty. */
  assets: readonly Token[];
}

/**
 * Test networks: a payment there is final after one block by default, since its money is worth nothing. Elsewhere the
 * default is `finalized`.
 */
const TEST_NETWORKS = new Set([
  ...["eip155:84532", "eip155:11155111", "eip155:421614", "eip155:43113", "eip155:80002", "eip155:42431"],
]);
/**
 * Networks that make blocks at a fixed pace of a few seconds: Base, Polygon, Tempo, and their test networks. Other
 * networks may make a block only when there are transactions, or leave out blocks, so there an old newest block does
 * not show that a node lags.
 */
const STEADY_NETWORKS = new Set([
  ...["eip155:8453", "eip155:84532", "eip155:137", "eip155:80002", "eip155:4217", "eip155:42431"],
]);
export const hasFixedBlockTime = (id: string): boolean => STEADY_NETWORKS.has(id);

const defaultConfirmations = (id: string): Confirmations => (TEST_NETWORKS.has(id) ? 1 : "finalized");

/** Returns a network's USDC (Tempo: its dollar) from the protocols' packages. @throws ConfigError when they have none */
function usdcOf(id: string, setting: string): Token {
  const dollar = tempoDollar(id);
  if (dollar) return { ...dollar, decimals: 6, name: "", version: "" };
  const usdc = knownUsdc(id);
  if (!usdc) throw new ConfigError([`${setting}.assets: USDC of ${id} is not known here; name address and domain`]);
  const { address, name, version } = usdc;
  return { symbol: "USDC", address: address.toLowerCase(), decimals: 6, name, version };
}

const weiOf = (gwei: number): bigint => BigInt(Math.round(gwei * 1e9));

/**
 * Returns the host name in a node's address, without port and final dot: nodes whose addresses differ only in these
 * have one operator.
 */
export const nodeHostOf = (url: string): string => (parseUrl(url)?.hostname ?? url).replace(/\.$/, "");

/**
 * Refuses two nodes on one host: they have one operator, so their agreement proves nothing. Two hosts of one operator
 * cannot be detected. @throws ConfigError naming the two
 */
function requireDifferentHosts(rpcUrls: readonly string[], setting: string): void {
  const hosts = rpcUrls.map(nodeHostOf);
  const duplicateIndex = hosts.findIndex((host, n) => hosts.indexOf(host) !== n);
  if (duplicateIndex < 0) return;
  const problem = `${setting}.rpc_urls: ${hosts.indexOf(hosts[duplicateIndex]!)} and ${duplicateIndex} are of one host, ${hosts[duplicateIndex]}`;
  throw new ConfigError([`${problem}: nodes that have to agree are of different operators (or set agree to 1)`]);
}

/** @throws ConfigError when a list of a setting has a name twice */
function refuseDuplicates(names: readonly string[], setting: string): void {
  const duplicate = names.find((name, n) => names.indexOf(name) !== n);
  if (duplicate) throw new ConfigError([`${setting}: ${duplicate} is named twice`]);
}

/** Builds a network from an entry of the setting `networks`. @throws ConfigError */
function networkFromEntry(entry: Config["networks"][number], setting: string): Network {
  const { id, rpc_urls, agree } = entry;
  if (agree > rpc_urls.length)
    throw new ConfigError([`${setting}.agree: ${agree} nodes are to agree, and rpc_urls names ${rpc_urls.length}`]);
  if (agree > 1) requireDifferentHosts(rpc_urls, setting);
  const assets = entry.assets.map((asset, n) => {
    const address = asset.address.toLowerCase();
    if (isTempo(id) || (asset.name && asset.version)) return { ...asset, address };
    const domain = signingDomain(id, address);
    if (!domain) throw new ConfigError([`${setting}.assets.${n}: name and version of its signing domain are missing`]);
    return { ...asset, ...domain, address };
  });
  refuseDuplicates(
    assets.map(({ address }) => address),
    `${setting}.assets`,
  );
  return {
    ...{ id, rpcUrls: rpc_urls, agree, confirmations: entry.confirmations ?? defaultConfirmations(id) },
    gasCeiling: weiOf(entry.gas_ceiling_gwei),
    assets: assets.length > 0 ? assets : [usdcOf(id, setting)],
  };
}

const NO_DOMAIN = { name: "", version: "" };

/** Builds the network of the short settings `chain.*`. @throws ConfigError */
function networkFromChain({ network: id, rpc_url, asset, confirmations }: Config["chain"]): Network {
  const domain = asset === null ? null : isTempo(id) ? NO_DOMAIN : signingDomain(id, asset);
  if (asset !== null && (!isAddress(asset, { strict: false }) || !domain))
    throw new ConfigError([
      `chain.asset: nothing is known of ${asset} on ${id}; write it in networks, with its domain`,
    ]);
  const token = { symbol: "USDC", address: asset?.toLowerCase() ?? "", decimals: 6 };
  return {
    ...{
      id,
      rpcUrls: rpc_url === null ? [] : [rpc_url],
      agree: 1,
      confirmations: confirmations ?? defaultConfirmations(id),
    },
    gasCeiling: weiOf(GAS_CEILING_GWEI),
    assets: [domain ? { ...token, ...domain } : usdcOf(id, "chain")],
  };
}

/**
 * Returns the networks of the settings: those of `networks`, or the one of `chain` when `networks` is empty.
 * @throws ConfigError naming the setting
 */
export function configuredNetworks({ networks, chain }: Pick<Config, "networks" | "chain">): Network[] {
  if (networks.length === 0) return [networkFromChain(chain)];
  refuseDuplicates(
    networks.map(({ id }) => id),
    "networks",
  );
  return networks.map((one, n) => networkFromEntry(one, `networks.${n}`));
}

/** Returns the networks of the settings for a role that pays. @throws ConfigError when one of them has no node */
export function paidNetworks(config: Pick<Config, "networks" | "chain">): Network[] {
  const networks = configuredNetworks(config);
  if (networks.some(({ rpcUrls }) => rpcUrls.length === 0))
    throw new ConfigError(["chain.rpc_url: name the chain that is paid on (TOUCHSTONE_CHAIN_RPC_URL, or networks)"]);
  return networks;
}

/**
 * Returns the network that buyers pay on, with the one token that they pay in; null when nothing is sold. The network
 * must have a node, and the token EIP-3009 and six decimals, since buyers are charged by signature and in
 * micro-units.
 * @throws ConfigError naming the setting
 */
export function soldNetwork(config: Pick<Config, "networks" | "chain" | "sell">): Network | null {
  const { network: id, asset } = config.sell;
  if (id === null) return null;
  const network = paidNetworks(config).find((one) => one.id === id);
  if (!network) throw new ConfigError([`sell.network: ${id} is none of the networks of these settings`]);
  const token = network.assets.find(({ address }) => asset === null || address === asset.toLowerCase());
  if (!token) throw new ConfigError([`sell.asset: ${asset} is no asset of ${id} in these settings`]);
  if (token.decimals !== 6 || isTempo(id))
    throw new ConfigError([`sell.asset: ${token.symbol} on ${id} has no EIP-3009 with six decimals`]);
  return { ...network, assets: [token] };
}

/** Returns access to one token of a network through the network's nodes. */
export const tokenOn = (
  { id, rpcUrls, agree, confirmations }: Network,
  token: Token,
): TokenOnChain & { domain: SigningDomain } => {
  const { address: asset, decimals } = token;
  const money = tokenOnChain({ network: id, rpcUrl: rpcUrls, agree, confirmations, asset, decimals });
  return { ...money, domain: domainOf(token) };
};

const domainOf = ({ name, version }: Token) => ({ name, version });

/**
 * Creates a rail over every asset of these networks. For a network without a node only `canPay` and `decimalsOf` work.
 * @param confirm called with a network's id before each signature on it (network-checks.ts)
 */
export const railOn = (networks: readonly Network[], confirm?: (network: string) => Promise<void>): Rail =>
  createRails(
    networks.flatMap(({ id, rpcUrls, agree, confirmations, assets }) =>
      assets.map((one) => {
        const token = { asset: one.address, decimals: one.decimals };
        const options = { rpcUrl: rpcUrls, agree, network: id, confirmations, ...token };
        return isTempo(id) ? createTempoRail(options) : createEvmRail({ ...options, domain: domainOf(one) });
      }),
    ),
    confirm,
  );

/**
 * Combines rails of several chains and assets into one. An entry (one way to pay that a seller offers) is paid by the
 * rail of its network and asset, and a read uses the rail of the network and asset that it names. With several rails,
 * a read that names none throws TypeError, since the wrong chain would answer that nothing settled.
 */
export function createRails(rails: readonly Rail[], confirm?: (network: string) => Promise<void>): Rail {
  const [first] = rails;
  if (!first) throw new TypeError("no rails given");
  const railOf = ({ network, asset }: AssetRef): Rail => {
    const matchingRails = rails.filter(
      (rail) =>
        (network === undefined || rail.network === network) &&
        (asset === undefined || rail.asset === asset.toLowerCase()),
    );
    // Blocks belong to the chain, so any of its rails can answer a read that names no asset.
    const areRailsOfChain = matchingRails.length > 1 && network !== undefined && asset === undefined;
    if (matchingRails.length === 1 || areRailsOfChain) return matchingRails[0]!;
    throw new TypeError(
      `${matchingRails.length} rails pay ${asset ?? "any asset"} on ${network ?? "a network"}; name one`,
    );
  };
  return {
    network: first.network,
    networks: [...new Set(rails.map(({ network }) => network))],
    asset: first.asset,
    decimalsOf: (entry) => decimalsOf(railOf(entry), entry),
    canPay: (entry) => rails.some((rail) => rail.canPay(entry)),
    feeReserve: (entry) => railOf(entry).feeReserve?.(entry) ?? 0n,
    async sign(entry, wallet, context) {
      const rail = railOf(entry);
      await confirm?.(rail.network);
      return rail.sign(entry, wallet, context);
    },
    settlementOf: async (query) => railOf(query).settlementOf(query),
    transfers: async (query) => railOf(query).transfers(query),
    transfersIn: async (tx, place = {}) => railOf(place).transfersIn(tx),
    payersOf: async (query) => railOf(query).payersOf(query),
    head: async (place = {}) => railOf(place).head(),
    balance: async (address, place = {}) => railOf(place).balance(address),
  };
}
