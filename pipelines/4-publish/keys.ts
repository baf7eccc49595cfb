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
 * Returns the newest of our cards keys that this keys document declares valid at `at`: readers verify the signature in
 * a leaf under the newest keys document before that leaf, at the time of the signed object. For a run that was made
 * before a rotation of the keys, this is the old key. Before the first document it is the key in use.
 * @returns null when the document declares none of our keys valid then
 */
export function cardSignerAt(
  document: { keys: readonly object[] } | null,
  { cards, retired = [] }: Pick<PublisherSigners, "cards" | "retired">,
  at: Date | string,
): Signer | null {
  if (!document) return cards;
  const oldSigners = retired.flatMap(({ signer }) => (signer.purpose === "cards" ? [signer] : []));
  const time = new Date(at);
  const isValid = ({ kid }: Signer): boolean =>
    (document.keys as Jwks["keys"]).some(
      (key) =>
        key.kid === kid &&
        new Date(key.valid_from) <= time &&
        (key.retired_at === undefined || time < new Date(key.retired_at)),
    );
  return [cards, ...oldSigners.reverse()].find(isValid) ?? null;
}

/**
 * Checks that our keyring has every published key, and that none of these retires later than was published.
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
 * Writes the next keys document if the keys differ from the newest published document. It is dated `now`, or as
 * document n - 1 if that is later (a clock was set back), since readers refuse a document dated before the one before
 * it. It is signed by a cards key that document n - 1 declares valid then, so that each document certifies the next;
 * document 0 is signed by a key that it declares valid itself.
 * @returns the leaf to publish, or null when nothing changed.
 * @throws Failure `keys` when none of our keys is such a key: no reader could verify the document
 */
export async function writeKeys(
  store: Store,
  fold: PublishedFold,
  jwks: Jwks,
  signers: Pick<PublisherSigners, "cards" | "retired">,
  now: Date,
): Promise<Draft | null> {
  const previousDocument = await readNewestKeys(store, fold);
  if (previousDocument && Buffer.compare(canonicalBytes(previousDocument.keys), canonicalBytes(jwks.keys)) === 0)
    return null;
  if (previousDocument) checkNotOlder(previousDocument, jwks);
  const n = previousDocument ? previousDocument.n + 1 : 0;
  const previousDate = previousDocument ? new Date(previousDocument.computed_at) : now;
  const computedAt = previousDate > now ? previousDate : now;
  const trustedKeys = { keys: previousDocument?.keys ?? jwks.keys } as Jwks;
  const signer = cardSignerAt(trustedKeys, signers, computedAt);
  if (!signer) {
    throw new Failure(
      "keys",
      `keys document ${n} must be signed by a cards key of document ${previousDocument?.n ?? n} that is valid at ${computedAt.toISOString()}: none of ours is`,
    );
  }
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
    bytes = storedBytes;
    return (
      storedDocument.n === n &&
      storedDocument.previous === document.previous &&
      (!previousDocument || new Date(storedDocument.computed_at) >= previousDate) &&
      verifyObject(trustedKeys, storedDocument, { purpose: "cards", at: storedDocument.computed_at }).ok
    );
  });
  return { kind: "keys", n, key, sha256: sha256hex(bytes), bytes: bytes.length };
}
