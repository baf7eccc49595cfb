import { KeyFileError } from "./files.ts";
import { fromBase64url, type Purpose } from "./jwk.ts";
import type { Keyring } from "./keyring.ts";
import type { Keys } from "./keys.ts";
import type { Signer } from "./signer.ts";

/**
 * The keys in use as a role has them that signs nothing: enough to know whom to believe. Whatever signs with one of them
 * all the same gets a KeyFileError that says which key is not here.
 */
export function publicHalves(ring: Keyring): Keys {
  const half = (purpose: Purpose): Signer => {
    const { kid, x } = ring.keys.find((key) => key.purpose === purpose && key.retired_at === undefined)!;
    const refuse = (): never => {
      throw new KeyFileError(`the private ${purpose} key is not on this machine: its role signs nothing`);
    };
    return { kid, purpose, publicKey: fromBase64url(x)!, sign: refuse, signSoon: async () => refuse() };
  };
  const [cards, answers, log, witness] = [half("cards"), half("answers"), half("log"), half("witness")];
  return { cards, answers, log, witness, ring, retired: [] };
}
