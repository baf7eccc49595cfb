import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { Failure } from "../../infra/errors.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import type { RetiredKey } from "../../infra/keys/keys.ts";
import { type Signer, signObject } from "../../infra/keys/signer.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import type { Store } from "../../infra/store/store.ts";
import { parseJson } from "../published/errors.ts";
import type { PublishedFold } from "../published/fold.ts";
import { KeysDocument, readKeys } from "../published/keys.ts";
import { keysKey } from "../published/objects.ts";
import type { Draft } from "./leaves.ts";
import { putPublic } from "./writes.ts";

/**
 * Reads the newest published keys document; null before the first.
 * @throws when it is missing or its hash is not that in its leaf
 */
export async function readNewestKeys(store: Store, { keys }: PublishedFold): Promise<KeysDocument | null> {
  if (!keys) return null;
  const document = await readKeys(store, keys);
  if (!document) throw new Error(`${keys.key} is missing or is not what its leaf says`);
  return document;
}

/**
 * The signing keys. `cards` signs cards (endpoints' grades) and index lists; `log` and `witness` sign the checkpoint.
 * `retired` holds keys that these have replaced.
 */
export interface PublisherSigners {
  cards: Signer;
  log: Signer;
  witness: Signer;
  retired?: readonly RetiredKey[];
}

/**
 * Returns our cards key that the previous keys document lists: the present key or, right after a rotation, the one
 * before.
 */
export function previousSignerOf(
  previousDocument: KeysDocument | null,
  { cards, retired = [] }: PublisherSigners,
): Signer {
  const cardSigners = [cards, ...retired.flatMap(({ signer }) => (signer.purpose === "cards" ? [signer] : []))];
  return cardSigners.find(({ kid }) => previousDocument?.keys.some((key) => key.kid === kid)) ?? cards;
}

/**
 * Checks that no published key is missing from our keyring and that no published retirement is postponed by it.
 * @throws Failure for a keyring that is older than the document, as in a process that was paused during a rotation
 */
function checkNotOlder(previousDocument: KeysDocument, jwks: Jwks): void {
  const outdatedKeyring = (kid: string, reason: string) =>
    new Failure("failed", `keys document ${previousDocument.n} is newer than this keyring: key ${kid} ${reason}`);
  for (const { kid, retired_at } of previousDocument.keys) {
    const keyringKey = jwks.keys.find((key) => key.kid === kid);
    if (!keyringKey) throw outdatedKeyring(kid, "is not in it");
    if (typeof retired_at !== "string") continue;
    if (!keyringKey.retired_at || keyringKey.retired_at > retired_at)
      throw outdatedKeyring(kid, `retires at ${retired_at}`);
  }
}

/**
 * Writes the next keys document if the keys differ from the newest published document.
 * @param signer a cards key that document n - 1 lists, so that each document certifies the next; for document 0 a key
 * that it lists itself
 * @returns the leaf to publish, or null when nothing changed.
 */
export async function writeKeys(
  store: Store,
  fold: PublishedFold,
  jwks: Jwks,
  signer: Signer,
  computedAt: Date,
): Promise<Draft | null> {
  const previousDocument = await readNewestKeys(store, fold);
  if (previousDocument && Buffer.compare(canonicalBytes(previousDocument.keys), canonicalBytes(jwks.keys)) === 0)
    return null;
  if (previousDocument) checkNotOlder(previousDocument, jwks);
  if (previousDocument && !previousDocument.keys.some((key) => key.kid === signer.kid)) {
    throw new Error(
      `keys document ${previousDocument.n + 1} must be signed by a key of document ${previousDocument.n}, not ${signer.kid}`,
    );
  }
  const n = previousDocument ? previousDocument.n + 1 : 0;
  const document = {
    schema: "svc.keys.v1",
    n,
    previous: fold.keys?.sha256 ?? null,
    computed_at: computedAt.toISOString(),
  };
  const key = keysKey(n);
  let bytes: Uint8Array = canonicalBytes(signObject(signer, { ...document, keys: jwks.keys }), { published: true });
  // A process that died before it published its leaf may have left a document n. That document is used; ours, if it
  // differs, is written as document n + 1 by the next call.
  await putPublic(store, key, bytes, (storedBytes) => {
    const storedDocument = KeysDocument.parse(parseJson(storedBytes));
    const trustedKeys = { keys: previousDocument?.keys ?? jwks.keys } as Jwks;
    bytes = storedBytes;
    return (
      storedDocument.n === n &&
      storedDocument.previous === document.previous &&
      verifyObject(trustedKeys, storedDocument, { purpose: "cards", at: storedDocument.computed_at }).ok
    );
  });
  return { kind: "keys", n, key, sha256: sha256hex(bytes), bytes: bytes.length };
}
