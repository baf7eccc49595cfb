import { z } from "zod";
import { PURPOSES } from "../../infra/keys/jwk.ts";

/** GET /.well-known/svc-keys.json: a JWK set (RFC 7517) of Ed25519 keys (RFC 8037), with purpose and validity. */
export const KeysDocument = z.strictObject({
  keys: z.array(
    z.strictObject({
      kty: z.literal("OKP"),
      crv: z.literal("Ed25519"),
      x: z.string(),
      kid: z.string(),
      use: z.literal("sig"),
      alg: z.enum(["EdDSA", "Ed25519"]),
      purpose: z.enum(PURPOSES),
      valid_from: z.string(),
      retired_at: z.string().optional(),
    }),
  ),
});

/** The schemas below are of documents whose forms others define. They contain what this service uses of them. */

export const OpenApiDocument = z.looseObject({ openapi: z.string() });

/** A2A 1.0, AgentCard. `signatures` are JWS over the RFC 8785 bytes of the rest (section 8.4 of its specification). */
export const AgentCard = z.strictObject({
  name: z.string(),
  description: z.string(),
  version: z.string(),
  supportedInterfaces: z.array(
    z.strictObject({ url: z.string(), protocolBinding: z.string(), protocolVersion: z.string() }),
  ),
  provider: z.strictObject({ organization: z.string(), url: z.string() }),
  documentationUrl: z.string(),
  iconUrl: z.string(),
  capabilities: z.strictObject({ streaming: z.boolean(), pushNotifications: z.boolean() }),
  defaultInputModes: z.array(z.string()),
  defaultOutputModes: z.array(z.string()),
  skills: z.array(
    z.strictObject({ id: z.string(), name: z.string(), description: z.string(), tags: z.array(z.string()) }),
  ),
  signatures: z.array(z.strictObject({ protected: z.string(), signature: z.string() })),
});
export type AgentCard = z.infer<typeof AgentCard>;

/** ERC-8004, registration file. */
export const AgentRegistration = z.strictObject({
  type: z.literal("https://eips.ethereum.org/EIPS/eip-8004#registration-v1"),
  name: z.string(),
  description: z.string(),
  image: z.string(),
  services: z.array(z.strictObject({ name: z.string(), endpoint: z.string(), version: z.string().optional() })),
  x402Support: z.boolean(),
  active: z.boolean(),
  registrations: z.array(z.strictObject({ agentId: z.int(), agentRegistry: z.string() })),
});
export type AgentRegistration = z.infer<typeof AgentRegistration>;

/** Document under /.well-known/x402, where crawlers of paid endpoints look for it; there is no agreed standard. */
export const X402Manifest = z.strictObject({
  version: z.literal(1),
  resources: z.array(z.string()),
  x402Version: z.literal(2),
  items: z.array(
    z.strictObject({
      resource: z.string(),
      type: z.literal("http"),
      method: z.string(),
      x402Version: z.literal(2),
      accepts: z.array(z.looseObject({})),
      lastUpdated: z.int(),
    }),
  ),
});
export type X402Manifest = z.infer<typeof X402Manifest>;

/** server.json of the MCP registry. */
export const McpServerFile = z.strictObject({
  $schema: z.string(),
  name: z.string().regex(/^[a-zA-Z0-9.-]+\/[a-zA-Z0-9._-]+$/),
  title: z.string().max(100),
  description: z.string().min(1).max(100),
  version: z.string(),
  websiteUrl: z.string(),
  remotes: z.array(z.strictObject({ type: z.literal("streamable-http"), url: z.string() })),
});
export type McpServerFile = z.infer<typeof McpServerFile>;
