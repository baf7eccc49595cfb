import { sha256 } from "../../infra/canonical.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { createClientNames } from "../../pipelines/orders/claim.ts";

/**
 * The key of {@link clientNamesOf} is the hash of a signature over this text. No answer of this service is this text,
 * so no client ever receives that signature.
 */
const KEY_TEXT = "touchstone: names of client networks in the private record";

/**
 * Returns a function that gives each client network an opaque name ({@link createClientNames}), for a service that
 * has no secret for such names. Its key is derived, at the first call, from a signature of the key that signs
 * answers. Ed25519 gives equal signatures for equal bytes, so all replicas use the same names. The names change when
 * that signing key is rotated.
 */
export function clientNamesOf(answers: Signer): (client: string) => string {
  let nameOf: ReturnType<typeof createClientNames> | null = null;
  return (client) => {
    nameOf ??= createClientNames(sha256(answers.sign(Buffer.from(KEY_TEXT))));
    return nameOf(client);
  };
}
