import { sha256 } from "../../infra/canonical.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { clientNames } from "../../pipelines/orders/claim.ts";

/** No answer of ours is this text, so nobody is ever given its signature. */
const TEXT = "touchstone: names of client networks in the private record";

/**
 * Names for client networks ({@link clientNames}) of a service that has no other secret: their key follows from the answers
 * key (an Ed25519 signature is always the same for the same bytes), so all replicas have the same, and once it is rotated
 * the names are others. Made when the first name is asked for.
 */
export function clientNamesOf(answers: Signer): (client: string) => string {
  let nameOf: ReturnType<typeof clientNames> | null = null;
  return (client) => {
    nameOf ??= clientNames(sha256(answers.sign(Buffer.from(TEXT))));
    return nameOf(client);
  };
}
