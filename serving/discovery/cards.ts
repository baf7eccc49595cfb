import { canonicalText } from "../../infra/canonical-text.ts";
import type { Service } from "../context.ts";
import { toolsOf } from "../mcp/server.ts";
import {
  isDescribed,
  methodOf,
  type Operation,
  type Price,
  TAGS,
  type Tag,
  tagOf,
  templateOf,
} from "../operations/operation.ts";
import type { AgentCard, AgentRegistration, McpServerFile, X402Manifest } from "../schemas/discovery.ts";
import { ABOUT } from "./about.ts";

/** Newest revision of MCP that /mcp speaks. */
const MCP_REVISION = "2026-07-28";
const MCP_BINDING = `https://modelcontextprotocol.io/specification/${MCP_REVISION}`;
const A2A_VERSION = "1.0";

type PricedOperation = Operation & { price: Price };
/**
 * Returns a test for operations that this service sells. A service without an address to be paid at sells nothing, so
 * the test is false for every operation.
 */
const createSoldTest =
  (service: Service) =>
  (operation: Operation): operation is PricedOperation =>
    (operation.price?.accepts(service).length ?? 0) > 0;

/** The skills of the A2A card: the operations that are also MCP tools. */
function skillsOf(operations: readonly Operation[]): AgentCard["skills"] {
  const tagByToolName = new Map(operations.flatMap((row) => (row.tool ? [[row.tool.name, tagOf(row)] as const] : [])));
  return toolsOf(operations).map(({ name, title, description }) => ({
    id: name,
    name: title,
    description,
    tags: ["x402", "payments", "trust", tagByToolName.get(name)!],
  }));
}

/**
 * Makes the A2A 1.0 agent card. A2A requires at least one interface, but this service implements none of the three
 * bindings that A2A defines. The card therefore lists the MCP server, with a binding name that A2A clients do not know
 * and skip.
 * The card is signed by the answers key as a JWS (RFC 7515 section 7.2.2) over its RFC 8785 bytes. A2A's libraries drop
 * empty texts, lists and objects before they compute those bytes, so the card contains none. The `alg` is the one in
 * the keys document, since libraries refuse a key whose `alg` differs.
 */
export function makeAgentCard(operations: readonly Operation[], { baseUrl, answers }: Service): AgentCard {
  const card: Omit<AgentCard, "signatures"> = {
    name: ABOUT.name,
    description: `${ABOUT.description} Reached over MCP at ${baseUrl}/mcp and over HTTP as ${baseUrl}/openapi.json says.`,
    version: ABOUT.version,
    supportedInterfaces: [{ url: `${baseUrl}/mcp`, protocolBinding: MCP_BINDING, protocolVersion: A2A_VERSION }],
    provider: { organization: ABOUT.name, url: baseUrl },
    documentationUrl: `${baseUrl}/docs/integrations`,
    iconUrl: `${baseUrl}/icon.svg`,
    capabilities: { streaming: false, pushNotifications: false },
    defaultInputModes: ["application/json"],
    defaultOutputModes: ["application/json"],
    skills: skillsOf(operations),
  };
  const base64url = (text: string): string => Buffer.from(text).toString("base64url");
  const header = { alg: "EdDSA", kid: answers.kid, typ: "JOSE", jku: `${baseUrl}/.well-known/svc-keys.json` };
  const protectedHeader = base64url(JSON.stringify(header));
  const payload = base64url(canonicalText(card));
  const signature = Buffer.from(answers.sign(Buffer.from(`${protectedHeader}.${payload}`))).toString("base64url");
  return { ...card, signatures: [{ protected: protectedHeader, signature }] };
}

function registrationsOf(agent: string | null): AgentRegistration["registrations"] {
  if (agent === null) return [];
  const [agentRegistry, id] = agent.split("/") as [string, string];
  return [{ agentId: Number(id), agentRegistry }];
}

/**
 * Makes the ERC-8004 registration file. `registrations` lists the on-chain ids that the operator set; this service
 * mints none.
 */
export const makeAgentRegistration = (operations: readonly Operation[], service: Service): AgentRegistration => ({
  type: "https://eips.ethereum.org/EIPS/eip-8004#registration-v1",
  name: ABOUT.name,
  description: ABOUT.description,
  image: `${service.baseUrl}/icon.svg`,
  services: [
    { name: "web", endpoint: `${service.baseUrl}/` },
    { name: "MCP", endpoint: `${service.baseUrl}/mcp`, version: MCP_REVISION },
    { name: "OpenAPI", endpoint: `${service.baseUrl}/openapi.json`, version: ABOUT.version },
  ],
  x402Support: operations.some(createSoldTest(service)),
  active: true,
  registrations: registrationsOf(service.agent ?? null),
});

/**
 * Makes the x402 discovery document: every operation that is sold at a fixed address, in the order of the table. A path
 * with a parameter, such as that of via, is no resource. `lastUpdated` is a Unix time (x402 specification section 8.2).
 */
export function makeX402Manifest(operations: readonly Operation[], service: Service): X402Manifest {
  const priced = operations.filter(createSoldTest(service)).filter((row) => !templateOf(row).includes("{"));
  return {
    version: 1,
    resources: priced.map((row) => `${methodOf(row)} ${templateOf(row)}`),
    x402Version: 2,
    items: priced.map((row) => ({
      resource: `${service.baseUrl}${templateOf(row)}`,
      type: "http",
      method: methodOf(row),
      x402Version: 2,
      accepts: row.price.accepts(service).map((terms) => ({ ...terms })),
      lastUpdated: Date.parse(`${row.price.since}T00:00:00.000Z`) / 1000,
    })),
  };
}

/**
 * Returns the service's name in the MCP registry: the labels of its host in reverse order, as registry namespaces are
 * written.
 */
const registryName = (baseUrl: string): string => {
  const { hostname } = new URL(baseUrl);
  const labels = /^[\d.]+$|^\[/.test(hostname) ? [hostname.replaceAll(/[[\]:]+/g, "-")] : hostname.split(".").reverse();
  return `${labels.join(".")}/touchstone`;
};

/** Makes server.json for the MCP registry: the address at which clients reach this MCP server. */
export const makeMcpServerFile = (_: readonly Operation[], { baseUrl }: Service): McpServerFile => ({
  $schema: "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
  name: registryName(baseUrl),
  title: ABOUT.name,
  description: ABOUT.summary,
  version: ABOUT.version,
  websiteUrl: baseUrl,
  remotes: [{ type: "streamable-http", url: `${baseUrl}/mcp` }],
});

/** Reports whether a plain GET of the operation's path succeeds without path values, parameters or credentials. */
const isPlainGet = ({ id, method, path, query, bearer }: Operation, { clientFile, proveFile }: Service): boolean =>
  method === undefined &&
  !path.includes(":") &&
  !bearer &&
  (query?.safeParse({}).success ?? true) &&
  (id !== "clientLibrary" || clientFile !== null) &&
  (id !== "proveModule" || proveFile !== null);

/**
 * Makes /llms.txt (llmstxt.org): a summary of the service in Markdown for language models. It links only to addresses
 * without parameters that a client must fill in.
 */
export function makeLlmsText(operations: readonly Operation[], service: Service): string {
  const { baseUrl, docs } = service;
  const describedOperations = operations.filter(isDescribed);
  const formatRow = (operation: Operation): string => {
    const path = templateOf(operation);
    const name = `${methodOf(operation)} ${path}`;
    return `- ${isPlainGet(operation, service) ? `[${name}](${baseUrl}${path})` : `\`${name}\``}: ${operation.summary}`;
  };
  const formatSection = ([tag, sectionTitle]: [string, string]): string[] => {
    const rows = describedOperations.filter((operation) => tagOf(operation) === (tag as Tag)).map(formatRow);
    return rows.length > 0 ? [`## ${sectionTitle}`, "", ...rows, ""] : [];
  };
  const pages = [...docs].flatMap(([name, { title }]) => (title ? [`- [${title}](${baseUrl}/docs/${name})`] : []));
  return [
    `# ${ABOUT.name}`,
    "",
    `> ${ABOUT.summary}`,
    "",
    ABOUT.description,
    "",
    ...Object.entries(TAGS).flatMap(formatSection),
    `## Tools of the MCP server at ${baseUrl}/mcp`,
    "",
    ...toolsOf(operations).map(({ name, description }) => `- \`${name}\`: ${description}`),
    "",
    "## Documentation",
    "",
    ...pages,
    "",
  ].join("\n");
}
