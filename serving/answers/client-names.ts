import { sha256 } from "../../infra/canonical.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { createClientNames } from "../../pipelines/orders/claim.ts";

/** Text that derives the key below. No answer of ours is this text, so nobody else ever gets its signature. */
const KEY_TEXT = "touchstone: names of client networks in the private record";

/**
 * Returns a function that names client networks ({@link createClientNames}), for a service without a secret for it. The
 * key is derived from the answers key (Ed25519 gives equal signatures for equal bytes), so all replicas have the same
 * names. The names change when the answers key is rotated. The key is derived at the first call.
 */
export function clientNamesOf(answers: Signer): (client: string) => string {
  let nameOf: ReturnType<typeof createClientNames> | null = null;
  return (client) => {
    nameOf ??= createClientNames(sha256(answers.sign(Buffer.from(KEY_TEXT))));
    return nameOf(client);
  };
}
