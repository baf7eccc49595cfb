import { sha256 } from "../../infra/canonical.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { createClientNames } from "../../pipelines/orders/claim.ts";

/** No answer of ours is this text, so nobody ever gets its signature. */
const TEXT = "touchstone: names of client networks in the private record";

/**
 * Names for client networks ({@link createClientNames}) of a service without another secret: their key is derived from the
 * answers key (Ed25519 gives the same signature for the same bytes), so all replicas have the same names. When the
 * answers key is rotated the names change. The key is made when the first name is asked for.
 */
export function clientNamesOf(answers: Signer): (client: string) => string {
  let nameOf: ReturnType<typeof createClientNames> | null = null;
  return (client) => {
    nameOf ??= createClientNames(sha256(answers.sign(Buffer.from(TEXT))));
    return nameOf(client);
  };
}
