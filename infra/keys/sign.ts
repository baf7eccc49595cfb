import { canonicalHalves, joinHalves } from "../canonical.ts";
import type { Signer } from "./signer.ts";

/** The three members that signing adds. */
export interface Signed {
  signing_key_id: string;
  canonicalization: "RFC8785";
  /** Ed25519 over the RFC 8785 bytes of every other field (the two above included), base64url without padding. */
  signature: string;
}

/**
 * Sign a JSON object.
 * @throws TypeError when it has one of the three members already (signing twice is a mistake) or cannot be published
 * canonically (see canonicalText).
 */
export function signObject<T extends object>(signer: Signer, object: T): T & Signed {
  const { signed, halves } = toSign(signer, object);
  return { ...signed, signature: Buffer.from(signer.sign(Buffer.from(joinHalves(halves)))).toString("base64url") };
}

/**
 * {@link signObject} on a thread of the pool, for those who sign many, and the RFC 8785 text of what comes of it: its
 * members are printed once, for the signature and for this. The object is read before this returns.
 * @throws TypeError as signObject does, at once.
 */
export function signTextSoon<T extends object>(
  signer: Signer,
  object: T,
): Promise<{ object: T & Signed; text: string }> {
  const { signed, halves } = toSign(signer, object);
  return signer.signSoon(Buffer.from(joinHalves(halves))).then((bytes) => {
    const signature = Buffer.from(bytes).toString("base64url");
    return { object: { ...signed, signature }, text: joinHalves(halves, `"signature":"${signature}"`) };
  });
}

/** The object with all but its signature, and its text around the place of that. */
function toSign<T extends object>(signer: Signer, object: T) {
  for (const member of ["signing_key_id", "canonicalization", "signature"]) {
    if (Object.hasOwn(object, member)) throw new TypeError(`the object to sign has a ${member} already`);
  }
  const signed = { ...object, signing_key_id: signer.kid, canonicalization: "RFC8785" as const };
  return { signed, halves: canonicalHalves(signed, "signature", { published: true }) };
}
