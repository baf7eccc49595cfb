import { createHmac } from "node:crypto";
import { sha256 } from "../../infra/canonical.ts";
import type { Signer } from "../../infra/keys/signer.ts";

/** No answer of ours is this text, so nobody is ever given its signature. */
const TEXT = "touchstone: names of client networks in the private record";

/**
 * Names for client networks that only this service can make: HMAC-SHA256 under a key that follows from the answers key (an
 * Ed25519 signature is always the same for the same bytes), so all replicas have the same. A record that needs to know
 * which of its kind came from one network holds this name and no address; once the key is rotated the names are others.
 */
export function clientNames(answers: Signer): (client: string) => string {
  const key = sha256(answers.sign(Buffer.from(TEXT)));
  return (client) => createHmac("sha256", key).update(client).digest("base64url").slice(0, 22);
}
