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

/** The newest published document, or null before the first. @throws when it is not what its leaf says */
export async function newestKeys(store: Store, { keys }: PublishedFold): Promise<KeysDocument | null> {
  if (!keys) return null;
  const document = await readKeys(store, keys);
  if (!document) throw new Error(`${keys.key} is missing or is not what its leaf says`);
  return document;
}

/** Keys in use: cards signs cards and index lists, log and witness the checkpoint; and those that they replaced. */
export interface PublisherSigners {
  cards: Signer;
  log: Signer;
  witness: Signer;
  retired?: readonly RetiredKey[];
}

/** The cards key that the newest document names and that we hold: after a rotation that is the one it replaced. */
export function vouching(before: KeysDocument | null, { cards, retired = [] }: PublisherSigners): Signer {
  const held = [cards, ...retired.flatMap(({ signer }) => (signer.purpose === "cards" ? [signer] : []))];
  return held.find(({ kid }) => before?.keys.some((key) => key.kid === kid)) ?? cards;
}

/**
 * A key that was published stays, and an end that was set for it is never put off.
 * @throws Failure for the keyring of a process that was paused during a rotation: it would take published keys back
 */
function refuseOlder(before: KeysDocument, jwks: Jwks): void {
  const old = (kid: string, why: string) =>
    new Failure("failed", `keys document ${before.n} is newer than this keyring: key ${kid} ${why}`);
  for (const { kid, retired_at } of before.keys) {
    const own = jwks.keys.find((key) => key.kid === kid);
    if (!own) throw old(kid, "is not in it");
    if (typeof retired_at !== "string") continue;
    if (!own.retired_at || own.retired_at > retired_at) throw old(kid, `retires at ${retired_at}`);
  }
}

/**
 * Write the next keys document when the keys differ from the newest published ones.
 * @param signer the cards key of document n - 1 (of document 0: its own), so that one document vouches for the next.
 * @returns the leaf to publish, or null when nothing changed.
 */
export async function writeKeys(
  store: Store,
  fold: PublishedFold,
  jwks: Jwks,
  signer: Signer,
  at: Date,
): Promise<Draft | null> {
  const before = await newestKeys(store, fold);
  if (before && Buffer.compare(canonicalBytes(before.keys), canonicalBytes(jwks.keys)) === 0) return null;
  if (before) refuseOlder(before, jwks);
  if (before && !before.keys.some((key) => key.kid === signer.kid)) {
    throw new Error(`keys document ${before.n + 1} must be signed by a key of document ${before.n}, not ${signer.kid}`);
  }
  const n = before ? before.n + 1 : 0;
  const document = { schema: "svc.keys.v1", n, previous: fold.keys?.sha256 ?? null, computed_at: at.toISOString() };
  const key = keysKey(n);
  let bytes: Uint8Array = canonicalBytes(signObject(signer, { ...document, keys: jwks.keys }), { published: true });
  // A writer that died before its leaf left a document: that one is number n, and ours, if it differs, comes after it.
  await putPublic(store, key, bytes, (theirs) => {
    const other = KeysDocument.parse(parseJson(theirs));
    const vouching = { keys: before?.keys ?? jwks.keys } as Jwks;
    bytes = theirs;
    return (
      other.n === n &&
      other.previous === document.previous &&
      verifyObject(vouching, other, { purpose: "cards", at: other.computed_at }).ok
    );
  });
  return { kind: "keys", n, key, sha256: sha256hex(bytes), bytes: bytes.length };
}
