import { createPublicKey } from "node:crypto";

/** Keys of one thread; a bound keeps strangers from filling the memory. */
const MAX_KEYS = 256;
const keys = new Map();

/** The key object of 32 raw bytes (RFC 8032), made once. Plain JavaScript, so that threads read it without a loader. */
export function keyFrom(raw) {
  const x = Buffer.from(raw).toString("base64url");
  let key = keys.get(x);
  if (!key) {
    key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
    if (keys.size >= MAX_KEYS) keys.clear();
    keys.set(x, key);
  }
  return key;
}
