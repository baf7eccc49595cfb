import { sha256 } from "../../infra/canonical.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { createClientNames } from "../../pipelines/orders/claim.ts";

/**
 * The key of the names in {@link clientNamesOf} is the hash of a signature over this text. This service never answers
 * with this text, so no client ever receives that signature.
 */
const KEY_TEXT = "touchstone: names of client networks in the private record";

/**
 * Returns a function that gives each client's IP network an opaque name ({@link createClientNames}), for a service
 * that has no secret for such names. At the first call it signs {@link KEY_TEXT} with the key that signs answers, and
 * derives the key of the names from that signature. Ed25519 gives equal signatures for equal bytes, so all replicas
 * use the same names. The names change when the signing key is rotated.
 */
export function clientNamesOf(answers: Signer): (client: string) => string {
  let nameOf: ReturnType<typeof createClientNames> | null = null;
  return (client) => {
    nameOf ??= createClientNames(sha256(answers.sign(Buffer.from(KEY_TEXT))));
    return nameOf(client);
  };
}
