import { createPrivateKey } from "node:crypto";
import type { Jwks, PublicJwk, Purpose } from "../../../infra/keys/jwk.ts";
import { type Signer, signerOf } from "../../../infra/keys/signer.ts";

/** Key of RFC 8037 appendix A: known to the whole world, good for nothing but tests. */
export const RFC8037_SEED = Buffer.from("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A", "base64url");

export const FROM = "2026-11-01T00:00:00.000Z";
export const UNTIL = "2026-12-01T00:00:00.000Z";
export const AT = "2026-11-15T12:00:00.000Z";

/** Signer from a 32-byte seed (PKCS #8 prefix of RFC 8410). */
export function signerOfSeed(seed: Uint8Array, purpose: Purpose): Signer {
  const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
  return signerOf(createPrivateKey({ key: der, format: "der", type: "pkcs8" }), purpose);
}

export function jwkOf(signer: Signer, more: Partial<PublicJwk> = {}): PublicJwk {
  return {
    kty: "OKP",
    crv: "Ed25519",
    x: Buffer.from(signer.publicKey).toString("base64url"),
    kid: signer.kid,
    use: "sig",
    alg: "EdDSA",
    purpose: signer.purpose,
    valid_from: FROM,
    ...more,
  };
}

export const jwksOf = (...keys: PublicJwk[]): Jwks => ({ keys });
