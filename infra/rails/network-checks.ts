import { type Address, domainSeparator, type Hex, parseAbi } from "viem";
import { Failure } from "../errors.ts";
import { broken, type Finding, ok, warn } from "../finding.ts";
import { redact } from "../secrets.ts";
import type { Network, Token } from "./networks.ts";
import { nodeFault } from "./node-fault.ts";
import { ChainDown, createReader, isBlockRefused, isMissingFunction, type Reader, SHORT_RETRIES } from "./rpc.ts";
import { errorText } from "./sender.ts";
import { isTempo } from "./tempo.ts";

const TOKEN_ABI = parseAbi([
  "function decimals() view returns (uint8)",
  "function DOMAIN_SEPARATOR() view returns (bytes32)",
  "function eip712Domain() view returns (bytes1, string, string, uint256, address, bytes32, uint256[])",
  "function name() view returns (string)",
  "function version() view returns (string)",
]);

/**
 * Creates the warning about a node or token that gave no usable answer. An answer that contradicts the settings is
 * reported as `broken` elsewhere.
 */
function unreachableFinding(name: string, error: unknown): Finding {
  const { says, todo } = nodeFault(error);
  return warn(name, says, todo);
}

/** Checks that a node serves the chain that the settings name. */
async function checkNode(reader: Reader, name: string, id: string): Promise<Finding> {
  try {
    const actual = `eip155:${await reader.getChainId()}`;
    if (actual === id) return ok(name, `it is a node of ${actual}`);
    const says = `the settings say ${id}, and the node says ${actual}`;
    return broken(name, says, "name a node of this network, or the network of this node");
  } catch (error) {
    return unreachableFinding(name, error);
  }
}

/** Largest difference between the newest blocks of two nodes, seconds of chain time; beyond it one of them lags. */
const MAX_BLOCK_GAP_S = 120;

/** Checks that the newest blocks of all nodes of a network are close to each other. */
async function checkBlockGap(readers: readonly Reader[], id: string): Promise<Finding[]> {
  if (readers.length < 2) return [];
  const name = `network ${id} nodes in step`;
  try {
    const times = await Promise.all(readers.map(async (reader) => Number((await reader.getBlock()).timestamp)));
    const gapS = Math.max(...times) - Math.min(...times);
    const says = `their newest blocks are ${gapS} s apart`;
    if (gapS <= MAX_BLOCK_GAP_S) return [ok(name, says)];
    return [warn(name, says, "name nodes that keep up")];
  } catch (error) {
    return [unreachableFinding(name, error)];
  }
}

/** End of the name of a finding about the block tag for finality. */
const CONFIRMATIONS = " confirmations";

/** Checks that a node knows the block tag that the settings use for finality. */
async function checkFinalityTag(reader: Reader, { id, confirmations }: Network): Promise<Finding[]> {
  if (typeof confirmations === "number") return [];
  const name = `network ${id}${CONFIRMATIONS}`;
  try {
    const { number } = await reader.getBlock({ blockTag: confirmations });
    return [ok(name, `block ${number} is ${confirmations}`)];
  } catch (error) {
    if (!isBlockRefused(error)) return [unreachableFinding(name, error)];
    const says = `the settings go by the tag ${confirmations}, and the node does not: ${errorText(error)}`;
    return [broken(name, says, "set confirmations to a number of blocks")];
  }
}

type TokenView = "DOMAIN_SEPARATOR" | "eip712Domain" | "name" | "version" | "decimals";

/** Calls a view function of a token; undefined when the token has no such function. */
async function callView(reader: Reader, address: Address, functionName: TokenView): Promise<unknown> {
  try {
    return await reader.readContract({ address, abi: TOKEN_ABI, functionName });
  } catch (error) {
    if (isMissingFunction(error)) return undefined;
    throw error;
  }
}

/**
 * Reads a token's EIP-712 domain separator: from EIP-2612's view, else from EIP-5267's, else from its name and version.
 * Undefined when the token has none of them.
 */
async function readDomainSeparator(reader: Reader, address: Address, chainId: number): Promise<Hex | undefined> {
  const separator = (await callView(reader, address, "DOMAIN_SEPARATOR")) as Hex | undefined;
  if (separator !== undefined) return separator;
  const domain = (await callView(reader, address, "eip712Domain")) as readonly unknown[] | undefined;
  const [name, version] = domain
    ? [domain[1], domain[2]]
    : [await callView(reader, address, "name"), await callView(reader, address, "version")];
  if (typeof name !== "string" || typeof version !== "string") return undefined;
  return domainSeparator({ domain: { name, version, chainId, verifyingContract: address } });
}

/** Checks a token's decimals and signing domain against the settings; with wrong ones every signature would be invalid. */
async function checkToken(reader: Reader, network: string, token: Token): Promise<Finding[]> {
  const { symbol, decimals, name, version } = token;
  const address = token.address as Address;
  const tokenName = `token ${symbol} ${address} on ${network}`;
  const todo = "copy the token's own words into the settings, or drop it from them";
  try {
    const code = await reader.getCode({ address });
    if (!code || code === "0x")
      return [broken(tokenName, `the settings name a token at ${address}, and the chain has no contract there`, todo)];
    const findings: Finding[] = [];
    const actual = await callView(reader, address, "decimals");
    findings.push(
      Number(actual) === decimals
        ? ok(`${tokenName}: decimals`, `${decimals}`)
        : broken(`${tokenName}: decimals`, `the settings say ${decimals}, and the token says ${actual}`, todo),
    );
    // A payment on Tempo is a signed transaction, so no signature covers a token's domain.
    if (isTempo(network)) return findings;
    const chainId = Number(network.slice("eip155:".length));
    const expectedSeparator = domainSeparator({ domain: { name, version, chainId, verifyingContract: address } });
    const actualSeparator = await readDomainSeparator(reader, address, chainId);
    const [itsName, itsVersion] = [await callView(reader, address, "name"), await callView(reader, address, "version")];
    const settingsDescription = `the settings say name ${JSON.stringify(name)}, version ${JSON.stringify(version)} (${expectedSeparator})`;
    const tokenDescription = `name ${JSON.stringify(itsName)}, version ${JSON.stringify(itsVersion)} (${actualSeparator})`;
    findings.push(
      actualSeparator?.toLowerCase() === expectedSeparator
        ? ok(`${tokenName}: signing domain`, `name ${JSON.stringify(name)}, version ${JSON.stringify(version)}`)
        : broken(
            `${tokenName}: signing domain`,
            `${settingsDescription}, and the token says ${tokenDescription}`,
            todo,
          ),
    );
    return findings;
  } catch (error) {
    return [unreachableFinding(tokenName, error)];
  }
}

/**
 * Checks a network against the settings: the chain id of every node, the decimals and signing domain of every token,
 * and the block tag for finality. Never throws for what a chain does.
 */
export async function checkNetwork(network: Network): Promise<Finding[]> {
  const readers = network.rpcUrls.map((url) => createReader(url, SHORT_RETRIES));
  const nodes = await Promise.all(
    readers.map((reader, n) => checkNode(reader, `network ${network.id} node ${n + 1}`, network.id)),
  );
  const goodReaders = readers.filter((_, n) => nodes[n]!.standing === "ok");
  const [firstGoodReader] = goodReaders;
  if (!firstGoodReader) return nodes;
  const otherFindings = await Promise.all([
    checkBlockGap(goodReaders, network.id),
    checkFinalityTag(firstGoodReader, network),
    ...network.assets.map((token) => checkToken(firstGoodReader, network.id, token)),
  ]);
  return [...nodes, ...otherFindings.flat()];
}

const NODE_FINDING = / node \d+$/;

const formatFindings = (findings: readonly Finding[]): string =>
  findings.map(({ name, says, todo }) => redact(`${name}: ${says}; ${todo}`)).join("\n  ");

/**
 * Checks all networks. Returns warnings about nodes and tokens that gave no usable answer; a caller that pays checks
 * them again before it signs.
 * @throws Failure `network` when a chain contradicts the settings, naming both values
 */
export async function requireNetworks(networks: readonly Network[]): Promise<Finding[]> {
  const findings = (await Promise.all(networks.map(checkNetwork))).flat();
  const brokenFindings = findings.filter(({ standing }) => standing === "broken");
  if (brokenFindings.length > 0)
    throw new Failure("network", `a chain is not what the settings say:\n  ${formatFindings(brokenFindings)}`);
  return findings.filter(({ standing }) => standing !== "ok");
}

/**
 * Returns a function to call with a network's id before each signature on that network. A call checks the network
 * unless an earlier check passed. A check passes when `agree` nodes answer, and the first of them answers about the
 * tokens and the block tag; otherwise the call throws ChainDown, so nothing is signed on an unchecked network. It
 * throws Failure `network` when the chain contradicts the settings.
 */
export function createNetworkGuard(networks: readonly Network[]): (id: string) => Promise<void> {
  const confirmed = new Set<string>();
  return async (id) => {
    if (confirmed.has(id)) return;
    const network = networks.find((one) => one.id === id);
    if (!network) throw new TypeError(`no network ${id}`);
    const warnings = await requireNetworks([network]);
    const answeringNodes = network.rpcUrls.length - warnings.filter(({ name }) => NODE_FINDING.test(name)).length;
    const isUnchecked = warnings.some(({ name }) => name.startsWith("token ") || name.endsWith(CONFIRMATIONS));
    if (answeringNodes < network.agree || isUnchecked)
      throw new ChainDown(`not looked at yet: ${formatFindings(warnings)}`);
    confirmed.add(id);
  };
}
