import { createHash, createPublicKey, verify } from "node:crypto";
import canonicalize from "canonicalize";
import type { Jwks, Purpose } from "../../infra/keys/jwk.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";

/**
 * Hashes, ids, signatures and signed notes for the oracle (prove-record.ts), written from their specifications: RFC 8785
 * by the package of its author, RFC 8032 by Node, c2sp.org/signed-note and tlog-cosignature. Nothing here calls the code
 * that the oracle judges.
 */

export const sha256 = (...parts: readonly (Uint8Array | string)[]): Buffer => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
};
export const sha256hex = (bytes: Uint8Array | string): string => sha256(bytes).toString("hex");

/** RFC 8785 text. */
export function canonical(value: unknown): string {
  const text = canonicalize(value);
  if (text === undefined) throw new Error("no JSON value");
  return text;
}

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** `<prefix>_` and the first 130 bits of the hash of these parts, five bits a character (records.md, Ids). */
export function plainId(prefix: string, parts: readonly string[]): string {
  let bits = BigInt(`0x${sha256hex(canonical(parts))}`) >> 126n;
  let text = "";
  for (; text.length < 26; bits >>= 5n) text = CROCKFORD[Number(bits & 31n)] + text;
  return `${prefix}_${text}`;
}

function holds(x: string, message: Uint8Array, signature: Uint8Array): boolean {
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  return verify(null, message, key, signature);
}

/**
 * Why a signed object is not to be believed, null when it is.
 * @param at when it was signed @param unsaid id of the key that signed where the object names none (an older card)
 */
export function signatureFault(
  jwks: Jwks,
  object: object,
  { purpose, at, unsaid }: { purpose: Purpose; at: string; unsaid?: string },
): string | null {
  const { signature, ...signed } = object as Record<string, unknown>;
  const { signing_key_id: kid = unsaid, canonicalization = unsaid && "RFC8785" } = signed;
  if (typeof signature !== "string" || canonicalization !== "RFC8785") return "not signed";
  const named = jwks.keys.filter((key) => key.kid === kid);
  const key = named.find((one) => one.purpose === purpose);
  if (!key) return named.length > 0 ? "wrong_purpose" : "unknown_key";
  if (sha256(`{"crv":"Ed25519","kty":"OKP","x":"${key.x}"}`).toString("base64url") !== kid) return "bad_key";
  const [time, from, until] = [at, key.valid_from, key.retired_at ?? "9999-01-01"].map((text) => Date.parse(text));
  if (!(time! >= from! && time! < until!)) return "not valid at that time";
  const message = Buffer.from(canonical(signed));
  return holds(key.x, message, Buffer.from(signature, "base64url")) ? null : "bad_signature";
}

/** Size and root of a signed checkpoint. @throws Error with what is wrong */
export function openSignedNote(bytes: Uint8Array, trust: CheckpointTrust): { size: number; root: Buffer } {
  const note = Buffer.from(bytes).toString("utf8");
  const end = note.lastIndexOf("\n\n") + 1;
  const text = note.slice(0, end);
  const [origin, size = "", root = ""] = text.split("\n");
  if (origin !== trust.log.name) throw new Error(`the origin is ${origin}, not ${trust.log.name}`);
  const lines = note
    .slice(end + 1)
    .trimEnd()
    .split("\n")
    .map((line) => /^\u2014 (\S+) (\S+)$/.exec(line))
    .map((match) => ({ name: match?.[1], bytes: Buffer.from(match?.[2] ?? "", "base64") }));
  /** Each line of a known key must hold, and one must be there. */
  const check = (keys: readonly { name: string; publicKey: Uint8Array }[], type: number) => {
    let signed = 0;
    for (const { name, publicKey } of keys) {
      const id = sha256(`${name}\n`, Buffer.of(type), publicKey).subarray(0, 4);
      const line = lines.find((one) => one.name === name && one.bytes.subarray(0, 4).equals(id));
      if (!line) continue;
      signed++;
      const time = type === 4 ? line.bytes.readBigUInt64BE(4) : 0n;
      const message = type === 4 ? `cosignature/v1\ntime ${time}\n${text}` : text;
      const x = Buffer.from(publicKey).toString("base64url");
      if (!holds(x, Buffer.from(message), line.bytes.subarray(type === 4 ? 12 : 4)))
        throw new Error(`the signature of ${name} does not hold`);
    }
    if (signed === 0) throw new Error(`not signed by ${keys[0]!.name}`);
  };
  check([trust.log, ...(trust.logs ?? [])], 1);
  if (trust.witness) check([trust.witness, ...(trust.witnesses ?? [])], 4);
  return { size: Number(size), root: Buffer.from(root, "base64") };
}
