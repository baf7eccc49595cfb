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
      alg: z.literal("Ed25519"),
      purpose: z.enum(PURPOSES),
      valid_from: z.string(),
      retired_at: z.string().optional(),
    }),
  ),
});
