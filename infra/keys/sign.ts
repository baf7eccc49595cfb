import { canonicalHalves, joinHalves } from "../canonical-text.ts";
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
  const { signed, bytes } = toSign(signer, object);
  return { ...signed, signature: Buffer.from(signer.sign(bytes)).toString("base64url") };
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
  const { signed, bytes, cut } = toSign(signer, object);
  return signer.signSoon(bytes).then((raw) => {
    const signature = Buffer.from(raw).toString("base64url");
    const [before, after] = [bytes.toString("utf8", 0, cut), bytes.toString("utf8", cut)];
    return { object: { ...signed, signature }, text: `${before}"signature":"${signature}",${after}` };
  });
}

/** The object with all but its signature, its bytes, and where in them the signature belongs. */
function toSign<T extends object>(signer: Signer, object: T) {
  for (const member of ["signing_key_id", "canonicalization", "signature"]) {
    if (Object.hasOwn(object, member)) throw new TypeError(`the object to sign has a ${member} already`);
  }
  const signed = { ...object, signing_key_id: signer.kid, canonicalization: "RFC8785" as const };
  const halves = canonicalHalves(signed, "signature", { published: true });
  // Bytes only: while many wait for their signature, strings in hundreds of pieces would cost the collector more than all.
  return { signed, bytes: Buffer.from(joinHalves(halves)), cut: Buffer.byteLength(`{${halves.before},`) };
}
