import { type Address, domainSeparator, type Hex, parseAbi } from "viem";
import { Failure } from "../errors.ts";
import { broken, type Finding, ok, warn } from "../finding.ts";
import { redact } from "../secrets.ts";
import type { Network, Token } from "./networks.ts";
import { nodeFault } from "./node-fault.ts";
import { ChainDown, createReader, type Reader, revertIn, SHORT_PATIENCE } from "./rpc.ts";
import { errorText } from "./sender.ts";
import { isTempo } from "./tempo.ts";

const TOKEN = parseAbi([
  "function decimals() view returns (uint8)",
  "function DOMAIN_SEPARATOR() view returns (bytes32)",
  "function eip712Domain() view returns (bytes1, string, string, uint256, address, bytes32, uint256[])",
  "function name() view returns (string)",
  "function version() view returns (string)",
]);

/** It could not be asked, which may pass; what says something else than the settings is `broken`. */
function down(name: string, error: unknown): Finding {
  const { says, todo } = nodeFault(error);
  return warn(name, says, todo);
}

/** A node is of the chain that the settings name. */
async function checkNode(reader: Reader, name: string, id: string): Promise<Finding> {
  try {
    const told = `eip155:${await reader.getChainId()}`;
    if (told === id) return ok(name, `it is a node of ${told}`);
    const says = `the settings say ${id}, and the node says ${told}`;
    return broken(name, says, "name a node of this network, or the network of this node");
  } catch (error) {
    return down(name, error);
  }
}

/** Nodes further apart than this are not in step: of one of them, what is new is not seen. Seconds of chain time. */
const APART_S = 120;

/** Nodes that have to agree, or stand in for each other, are in step. */
async function checkStep(readers: readonly Reader[], id: string): Promise<Finding[]> {
  if (readers.length < 2) return [];
  const name = `network ${id} nodes in step`;
  try {
    const times = await Promise.all(readers.map(async (reader) => Number((await reader.getBlock()).timestamp)));
    const apart = Math.max(...times) - Math.min(...times);
    const says = `their newest blocks are ${apart} s apart`;
    if (apart <= APART_S) return [ok(name, says)];
    return [warn(name, says, "name nodes that keep up")];
  } catch (error) {
    return [down(name, error)];
  }
}

/** A node knows the tag by which the settings call a block final. */
async function checkDepth(reader: Reader, { id, confirmations }: Network): Promise<Finding[]> {
  if (typeof confirmations === "number") return [];
  const name = `network ${id} confirmations`;
  try {
    const { number } = await reader.getBlock({ blockTag: confirmations });
    return [ok(name, `block ${number} is ${confirmations}`)];
  } catch (error) {
    const says = `the settings go by the tag ${confirmations}, and the node does not: ${errorText(error)}`;
    return [broken(name, says, "set confirmations to a number of blocks")];
  }
}

type View = "DOMAIN_SEPARATOR" | "eip712Domain" | "name" | "version" | "decimals";

/** What a view of the token answers; undefined where it has none such. */
async function viewed(reader: Reader, address: Address, functionName: View): Promise<unknown> {
  try {
    return await reader.readContract({ address, abi: TOKEN, functionName });
  } catch (error) {
    // No such function: it reverts, or answers nothing.
    const none = revertIn(error) !== null || /returned no data|zero data|revert/i.test(String(error));
    if (none) return undefined;
    throw error;
  }
}

/** The separator that the token itself uses, by whichever way it tells (EIP-2612's view, EIP-5267, name and version). */
async function separatorTold(reader: Reader, address: Address, chainId: number): Promise<Hex | undefined> {
  const told = (await viewed(reader, address, "DOMAIN_SEPARATOR")) as Hex | undefined;
  if (told !== undefined) return told;
  const domain = (await viewed(reader, address, "eip712Domain")) as readonly unknown[] | undefined;
  const [name, version] = domain
    ? [domain[1], domain[2]]
    : [await viewed(reader, address, "name"), await viewed(reader, address, "version")];
  if (typeof name !== "string" || typeof version !== "string") return undefined;
  return domainSeparator({ domain: { name, version, chainId, verifyingContract: address } });
}

/** Decimals and signing domain of a token are those of the settings: else every signature would be worth nothing. */
async function checkToken(reader: Reader, network: string, token: Token): Promise<Finding[]> {
  const { symbol, decimals, name, version } = token;
  const address = token.address as Address;
  const what = `token ${symbol} ${address} on ${network}`;
  const todo = "copy the token's own words into the settings, or drop it from them";
  try {
    const code = await reader.getCode({ address });
    if (!code || code === "0x")
      return [broken(what, `the settings name a token at ${address}, and the chain has no contract there`, todo)];
    const found: Finding[] = [];
    const told = await viewed(reader, address, "decimals");
    found.push(
      Number(told) === decimals
        ? ok(`${what}: decimals`, `${decimals}`)
        : broken(`${what}: decimals`, `the settings say ${decimals}, and the token says ${told}`, todo),
    );
    // Tempo's payments are whole transactions: no signature is over the token's domain.
    if (isTempo(network)) return found;
    const chainId = Number(network.slice("eip155:".length));
    const ours = domainSeparator({ domain: { name, version, chainId, verifyingContract: address } });
    const theirs = await separatorTold(reader, address, chainId);
    const [itsName, itsVersion] = [await viewed(reader, address, "name"), await viewed(reader, address, "version")];
    const inSettings = `the settings say name ${JSON.stringify(name)}, version ${JSON.stringify(version)} (${ours})`;
    const itself = `name ${JSON.stringify(itsName)}, version ${JSON.stringify(itsVersion)} (${theirs})`;
    found.push(
      theirs?.toLowerCase() === ours
        ? ok(`${what}: signing domain`, `name ${JSON.stringify(name)}, version ${JSON.stringify(version)}`)
        : broken(`${what}: signing domain`, `${inSettings}, and the token says ${itself}`, todo),
    );
    return found;
  } catch (error) {
    return [down(what, error)];
  }
}

/**
 * Is a network what the settings say: every node of its chain id, every token of its decimals and signing domain, and
 * its way to call a block final known? Never throws for what a chain does.
 */
export async function checkNetwork(network: Network): Promise<Finding[]> {
  const readers = network.rpcUrls.map((url) => createReader(url, SHORT_PATIENCE));
  const nodes = await Promise.all(
    readers.map((reader, n) => checkNode(reader, `network ${network.id} node ${n + 1}`, network.id)),
  );
  const all = readers.filter((_, n) => nodes[n]!.standing === "ok");
  const [good] = all;
  if (!good) return nodes;
  const rest = await Promise.all([
    checkStep(all, network.id),
    checkDepth(good, network),
    ...network.assets.map((token) => checkToken(good, network.id, token)),
  ]);
  return [...nodes, ...rest.flat()];
}

const NODE = / node \d+$/;

const inLines = (findings: readonly Finding[]): string =>
  findings.map(({ name, says, todo }) => redact(`${name}: ${says}; ${todo}`)).join("\n  ");

/**
 * What could not be asked, of all networks, as warnings; a caller that pays asks again before it signs.
 * @throws Failure `network` naming both sides of everything that is not as the settings say
 */
export async function requireNetworks(networks: readonly Network[]): Promise<Finding[]> {
  const findings = (await Promise.all(networks.map(checkNetwork))).flat();
  const wrong = findings.filter(({ standing }) => standing === "broken");
  if (wrong.length > 0) throw new Failure("network", `a chain is not what the settings say:\n  ${inLines(wrong)}`);
  return findings.filter(({ standing }) => standing !== "ok");
}

/**
 * Before anything is signed on a network it was found to be what the settings say, once. A chain that was down at the
 * start is looked at when it is there: until then nothing is signed.
 * @returns what to call before each signature; it throws ChainDown, or Failure `network`
 */
export function confirmedNetworks(networks: readonly Network[]): (id: string) => Promise<void> {
  const confirmed = new Set<string>();
  return async (id) => {
    if (confirmed.has(id)) return;
    const network = networks.find((one) => one.id === id);
    if (!network) throw new TypeError(`no network ${id}`);
    const left = await requireNetworks([network]);
    const answered = network.rpcUrls.length - left.filter(({ name }) => NODE.test(name)).length;
    const token = left.find(({ name }) => name.startsWith("token "));
    if (answered < network.agree || token) throw new ChainDown(`not looked at yet: ${inLines(left)}`);
    confirmed.add(id);
  };
}
