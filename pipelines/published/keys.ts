import { z } from "zod";
import { sha256hex } from "../../infra/canonical.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import type { Store } from "../../infra/store/store.ts";
import type { GradeLeaf, KeysLeaf } from "../record/leaf.ts";
import { KeysUnread, Unproven } from "./errors.ts";
import { parseJson } from "./parse.ts";

/** A keys document as it is published: all keys there ever were, chained to the document before it. */
export const KeysDocument = z.looseObject({
  schema: z.literal("svc.keys.v1"),
  n: z.int().min(0),
  /** sha256 of document n - 1, null for the first. */
  previous: z.string().nullable(),
  computed_at: z.string(),
  keys: z.array(z.looseObject({ kid: z.string() })).min(1),
  signing_key_id: z.string(),
  canonicalization: z.literal("RFC8785"),
  signature: z.string(),
});
export type KeysDocument = z.infer<typeof KeysDocument>;

/** The keys that vouch at a position of the log, and the hash of their document, which the next one names. */
export interface KeyChain {
  jwks: Jwks;
  sha256: string;
}

/** The keys of a document that could not be read: whoever asks them about a signature is told so ({@link KeysUnread}). */
export const UNREAD_KEYS: Jwks = { keys: [] };

export const jwksOf = (document: KeysDocument): Jwks => ({ keys: document.keys as unknown as Jwks["keys"] });

/** Our own copy of a document that was proven; null when it is not here, or is not what its hash says. */
export async function readKeys(
  store: Pick<Store, "get">,
  { key, sha256 }: Pick<KeysLeaf, "key" | "sha256">,
): Promise<KeysDocument | null> {
  const object = await store.get(key);
  if (!object || sha256hex(object.bytes) !== sha256) return null;
  return KeysDocument.safeParse(parseJson(object.bytes)).data ?? null;
}

/** A keys document names the one before it and is signed by a key of it; the first one by its own. @throws Unproven */
export function chainOf(
  leaf: Pick<KeysLeaf, "n" | "key" | "sha256">,
  bytes: Uint8Array,
  before: KeyChain | null,
): KeyChain {
  const { data: document } = KeysDocument.safeParse(parseJson(bytes));
  if (!document) throw new Unproven(leaf.key, "a keys document", "something else");
  if (document.n !== leaf.n || document.previous !== (before?.sha256 ?? null)) {
    const want = `document ${leaf.n} after ${before?.sha256 ?? "none"}`;
    throw new Unproven(leaf.key, want, `${document.n} after ${document.previous ?? "none"}`);
  }
  const own = jwksOf(document);
  const signers = before && before.jwks !== UNREAD_KEYS ? before.jwks : own;
  refuseUnsigned(leaf.key, signers, document, document.computed_at);
  return { jwks: own, sha256: leaf.sha256 };
}

/**
 * The signature of a card over its own bytes. One that does not name its key (svc.scorecard.v1 need not) may be of any
 * cards key that was valid at its moment.
 * @throws Unproven unless one signed it
 */
export function refuseUnsignedCard(leaf: Pick<GradeLeaf, "index" | "at" | "card">, jwks: Jwks | null): void {
  const { card, index } = leaf;
  if (jwks === UNREAD_KEYS) throw new KeysUnread(`card of leaf ${index}`);
  // Of a leaf that was not parsed yet: there may be no card at all.
  const at = String(card?.computed_at ?? leaf.at);
  const keys = Array.isArray(jwks?.keys) ? jwks.keys : [];
  const anyOf = keys.filter((key) => key?.purpose === "cards" && typeof key.kid === "string");
  const kids = card?.signing_key_id === undefined ? anyOf.map(({ kid }) => kid) : [card.signing_key_id];
  const verdicts = kids.map((kid) => jwks && verifyObject(jwks, card, { purpose: "cards", at, unsaid: { kid } }));
  if (verdicts.some((verdict) => verdict?.ok)) return;
  const fault = verdicts.find((verdict) => verdict && !verdict.ok);
  const got = fault && !fault.ok ? fault.reason : jwks ? "unknown_key" : "no keys before it";
  throw new Unproven(`card of leaf ${index}`, `a signature valid at ${at}`, got);
}

/** @throws Unproven unless a cards key that was valid at `at` signed the object. */
export function refuseUnsigned(what: string, jwks: Jwks | null, object: unknown, at: string): void {
  if (jwks === UNREAD_KEYS) throw new KeysUnread(what);
  const verdict = jwks && verifyObject(jwks, object, { purpose: "cards", at });
  if (!verdict?.ok) throw new Unproven(what, `a signature valid at ${at}`, verdict?.reason ?? "no keys before it");
}
