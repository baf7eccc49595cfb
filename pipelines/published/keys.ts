import { z } from "zod";
import { sha256hex } from "../../infra/canonical.ts";
import { isUsableKey } from "../../infra/keys/examine.ts";
import { fromBase64url, type Jwks } from "../../infra/keys/jwk.ts";
import { thumbprint } from "../../infra/keys/signer.ts";
import { verifyObject, verifySoon } from "../../infra/keys/verify.ts";
import type { Store } from "../../infra/store/store.ts";
import { type CardKey, signedBytesOf } from "../record/card-cut.ts";
import type { GradeLeaf, KeysLeaf } from "../record/leaf.ts";
import { KeysUnread, parseJson, Unproven } from "./errors.ts";

/** A published keys document: all signing keys that were ever used, chained to the document before it. */
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

/**
 * The keys that are valid at a position of the log, and the hash and the date of their document. The next document must
 * name this hash and must not have an earlier date.
 */
export interface KeyChain {
  jwks: Jwks;
  sha256: string;
  /** Absent for a document that could not be read. */
  computedAt?: string;
}

/**
 * Stands for the keys of a document that could not be read. Verifying a card or another object with it throws
 * {@link KeysUnread}.
 */
export const UNREADABLE_KEYS: Jwks = { keys: [] };

export const jwksOf = (document: KeysDocument): Jwks => ({ keys: document.keys as unknown as Jwks["keys"] });

export const chainOf = (document: KeysDocument, sha256: string): KeyChain => ({
  jwks: jwksOf(document),
  sha256,
  computedAt: document.computed_at,
});

/** Reads a keys document from our own store; null when it is missing or malformed, or its hash is wrong. */
export async function readKeys(
  store: Pick<Store, "get">,
  { key, sha256 }: Pick<KeysLeaf, "key" | "sha256">,
): Promise<KeysDocument | null> {
  const object = await store.get(key);
  if (!object || sha256hex(object.bytes) !== sha256) return null;
  return KeysDocument.safeParse(parseJson(object.bytes)).data ?? null;
}

/**
 * Checks that a keys document names the previous document, has no earlier date than it, and is signed by one of its
 * cards keys. If there is no previous document, or it could not be read ({@link UNREADABLE_KEYS}), the document has to
 * be signed by a cards key that it lists itself. The signing key has to be valid at the document's date, which the
 * signer chooses. The dates have to ascend, since otherwise a retired key could sign a document with a date before its
 * retirement.
 * @returns what the next document is verified with
 * @throws Unproven
 */
export function verifyKeysDocument(
  leaf: Pick<KeysLeaf, "n" | "key" | "sha256">,
  bytes: Uint8Array,
  previousChain: KeyChain | null,
): KeyChain {
  const { data: document } = KeysDocument.safeParse(parseJson(bytes));
  if (!document) throw new Unproven(leaf.key, "a keys document", "something else");
  if (document.n !== leaf.n || document.previous !== (previousChain?.sha256 ?? null)) {
    const expected = `document ${leaf.n} after ${previousChain?.sha256 ?? "none"}`;
    throw new Unproven(leaf.key, expected, `${document.n} after ${document.previous ?? "none"}`);
  }
  const previousDate = previousChain?.computedAt;
  if (previousDate !== undefined && Date.parse(document.computed_at) < Date.parse(previousDate))
    throw new Unproven(leaf.key, `a date not before ${previousDate}`, document.computed_at);
  const chain = chainOf(document, leaf.sha256);
  const signerKeys = previousChain && previousChain.jwks !== UNREADABLE_KEYS ? previousChain.jwks : chain.jwks;
  verifySignature(leaf.key, signerKeys, document, document.computed_at);
  return chain;
}

/**
 * Verifies the signature of a card. A card that does not name its key (optional in svc.scorecard.v1) may be signed by
 * any cards key that was valid when the card was computed.
 * @throws Unproven when no valid key signed it
 */
export function verifyCardSignature(leaf: Pick<GradeLeaf, "index" | "at" | "card">, jwks: Jwks | null): void {
  const { card, index } = leaf;
  if (jwks === UNREADABLE_KEYS) throw new KeysUnread(`card of leaf ${index}`);
  // The leaf may not have been checked against its schema, so the card may be missing.
  const time = String(card?.computed_at ?? leaf.at);
  const keys = Array.isArray(jwks?.keys) ? jwks.keys : [];
  const candidates = keys.filter((key) => key?.purpose === "cards" && typeof key.kid === "string");
  const kids = card?.signing_key_id === undefined ? candidates.map(({ kid }) => kid) : [card.signing_key_id];
  const verdicts = kids.map(
    (kid) => jwks && verifyObject(jwks, card, { purpose: "cards", at: time, defaults: { kid } }),
  );
  if (verdicts.some((verdict) => verdict?.ok)) return;
  const refusal = verdicts.find((verdict) => verdict && !verdict.ok);
  const got = refusal && !refusal.ok ? refusal.reason : jwks ? "unknown_key" : "no keys before it";
  throw new Unproven(`card of leaf ${index}`, `a signature valid at ${time}`, got);
}

/** Verifies that a cards key that was valid at this time signed the object. @throws Unproven */
export function verifySignature(subject: string, jwks: Jwks | null, object: unknown, time: string): void {
  if (jwks === UNREADABLE_KEYS) throw new KeysUnread(subject);
  const verdict = jwks && verifyObject(jwks, object, { purpose: "cards", at: time });
  if (!verdict?.ok) throw new Unproven(subject, `a signature valid at ${time}`, verdict?.reason ?? "no keys before it");
}

/** Number of cards in a batch. While one batch is verified, the next is collected. */
const CARDS_PER_BATCH = 64;

type CardLeaf = Pick<GradeLeaf, "index" | "at" | "card">;

interface PendingCard {
  leaf: CardLeaf;
  jwks: Jwks | null;
}

/**
 * Verifies the signatures of many cards in batches, on Node's thread pool (four threads by default). The signed bytes
 * are cut out of the leaf, which is in RFC 8785 form already. A card that fails this fast check, or whose signed bytes
 * cannot be cut out, is verified by {@link verifyCardSignature}, whose result counts.
 */
export class CardSignatures {
  #cards: PendingCard[] = [];
  #verifications: Promise<boolean>[] = [];
  /** Resolves when the batch that was started last is verified. */
  #previousBatch: Promise<void> = Promise.resolve();
  #firstError: { error: unknown } | null = null;

  /**
   * @param onBad called with the error for each card with a bad signature; by default `add` or `drain` throws the first
   * of these errors
   */
  constructor(
    private readonly onBad: (error: unknown) => void = (error) => {
      this.#firstError ??= { error };
    },
  ) {}

  /**
   * Adds the card of a leaf. When a batch is full, waits until the batch before it is verified.
   * @param entry the leaf's bytes
   * @param jwks keys that are valid at the leaf's position
   */
  async add({ index, at, card }: CardLeaf, entry: Buffer, jwks: Jwks | null): Promise<void> {
    const leaf = { index, at, card };
    const signedCard = jwks && signedBytesOf(entry, card, (kid) => usableKeyOf(jwks, kid));
    if (!signedCard) {
      this.#validate({ leaf, jwks });
    } else {
      this.#cards.push({ leaf, jwks });
      this.#verifications.push(verifySoon(signedCard.publicKey, signedCard.bytes, signedCard.signature));
      if (this.#verifications.length >= CARDS_PER_BATCH) await this.#flush();
    }
    this.#throwFault();
  }

  /** Resolves when every card added so far is verified. */
  async drain(): Promise<void> {
    await this.#flush();
    await this.#previousBatch;
    this.#throwFault();
  }

  async #flush(): Promise<void> {
    const [cards, jobs] = [this.#cards, this.#verifications];
    [this.#cards, this.#verifications] = [[], []];
    if (jobs.length === 0) return;
    const [previousBatch, currentBatch] = [this.#previousBatch, this.#check(cards, jobs)];
    // This batch is awaited together with the next; until then a failure must not count as an unhandled rejection.
    currentBatch.catch(() => undefined);
    this.#previousBatch = currentBatch;
    await previousBatch;
  }

  async #check(cards: readonly PendingCard[], jobs: readonly Promise<boolean>[]): Promise<void> {
    const areValid = await Promise.all(jobs);
    for (const [i, card] of cards.entries()) if (!areValid[i]) this.#validate(card);
  }

  #validate({ leaf, jwks }: PendingCard): void {
    try {
      verifyCardSignature(leaf, jwks);
    } catch (error) {
      this.onBad(error);
    }
  }

  #throwFault(): void {
    if (this.#firstError) throw this.#firstError.error;
  }
}

/** For each keys document, its cards keys by kid; null for a key that cannot verify anything. */
const usableKeys = new WeakMap<Jwks, Map<string, CardKey | null>>();

function usableKeyOf(jwks: Jwks, kid: string): CardKey | null {
  const keysByKid = usableKeys.get(jwks) ?? new Map<string, CardKey | null>();
  usableKeys.set(jwks, keysByKid);
  if (keysByKid.has(kid)) return keysByKid.get(kid)!;
  const matchingKeys = Array.isArray(jwks.keys) ? jwks.keys.filter((key) => key?.kid === kid) : [];
  const [key] = matchingKeys;
  const hasUsableForm =
    matchingKeys.length === 1 && key?.purpose === "cards" && key.kty === "OKP" && key.crv === "Ed25519";
  const publicKey = hasUsableForm ? fromBase64url(String(key.x)) : null;
  const isSound = publicKey?.length === 32 && isUsableKey(publicKey) && thumbprint(publicKey) === kid;
  const validFrom = Date.parse(String(key?.valid_from));
  const validUntil = key?.retired_at === undefined ? Number.POSITIVE_INFINITY : Date.parse(key.retired_at);
  const cardKey =
    isSound && !Number.isNaN(validFrom) && !Number.isNaN(validUntil)
      ? { publicKey, from: validFrom, until: validUntil }
      : null;
  keysByKid.set(kid, cardKey);
  return cardKey;
}
