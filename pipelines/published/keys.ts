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

/** Stands for the keys of a document that could not be read. Verifying with it throws {@link KeysUnread}. */
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
  const verdicts = kids.map((kid) => jwks && verifyObject(jwks, card, { purpose: "cards", at, defaults: { kid } }));
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

/** Cards in one batch: one is verified while the next is gathered. */
const BATCH = 64;

type CardLeaf = Pick<GradeLeaf, "index" | "at" | "card">;

interface Card {
  leaf: CardLeaf;
  jwks: Jwks | null;
}

/**
 * Verifies the cards of leaves on the threads that Node keeps (four, unless UV_THREADPOOL_SIZE says more), in batches. The
 * bytes that were signed are cut out of the leaf, which is in RFC 8785 form already; whatever cannot be cut so, or does not
 * verify so, is verified the long way, whose word counts.
 */
export class CardSignatures {
  #cards: Card[] = [];
  #jobs: Promise<boolean>[] = [];
  /** The batch before this one. */
  #before: Promise<void> = Promise.resolve();
  #fault: { error: unknown } | null = null;

  /** @param onBad told of a card that no key of its position signed; the default throws from `add` or `drain` */
  constructor(
    private readonly onBad: (error: unknown) => void = (error) => {
      this.#fault ??= { error };
    },
  ) {}

  /** @param entry the leaf's bytes @param jwks keys that vouch at its position. Slow while many are verified. */
  async add({ index, at, card }: CardLeaf, entry: Buffer, jwks: Jwks | null): Promise<void> {
    const leaf = { index, at, card };
    const job = jwks && signedBytesOf(entry, card, (kid) => vouching(jwks, kid));
    if (!job) {
      this.#validate({ leaf, jwks });
    } else {
      this.#cards.push({ leaf, jwks });
      this.#jobs.push(verifySoon(job.publicKey, job.bytes, job.signature));
      if (this.#jobs.length >= BATCH) await this.#flush();
    }
    this.#throwFault();
  }

  /** Every card added so far was verified when this resolves. */
  async drain(): Promise<void> {
    await this.#flush();
    await this.#before;
    this.#throwFault();
  }

  async #flush(): Promise<void> {
    const [cards, jobs] = [this.#cards, this.#jobs];
    [this.#cards, this.#jobs] = [[], []];
    if (jobs.length === 0) return;
    const [before, checked] = [this.#before, this.#check(cards, jobs)];
    // It is awaited with the batch after it; until then a failure must not count as unhandled.
    checked.catch(() => undefined);
    this.#before = checked;
    await before;
  }

  async #check(cards: readonly Card[], jobs: readonly Promise<boolean>[]): Promise<void> {
    const good = await Promise.all(jobs);
    for (const [i, card] of cards.entries()) if (!good[i]) this.#validate(card);
  }

  #validate({ leaf, jwks }: Card): void {
    try {
      refuseUnsignedCard(leaf, jwks);
    } catch (error) {
      this.onBad(error);
    }
  }

  #throwFault(): void {
    if (this.#fault) throw this.#fault.error;
  }
}

/** Validated cards keys of a document, by kid; null for one that is fit for nothing. */
const validated = new WeakMap<Jwks, Map<string, CardKey | null>>();

function vouching(jwks: Jwks, kid: string): CardKey | null {
  const known = validated.get(jwks) ?? new Map<string, CardKey | null>();
  validated.set(jwks, known);
  if (known.has(kid)) return known.get(kid)!;
  const named = Array.isArray(jwks.keys) ? jwks.keys.filter((key) => key?.kid === kid) : [];
  const [key] = named;
  const usable = named.length === 1 && key?.purpose === "cards" && key.kty === "OKP" && key.crv === "Ed25519";
  const publicKey = usable ? fromBase64url(String(key.x)) : null;
  const sound = publicKey?.length === 32 && isUsableKey(publicKey) && thumbprint(publicKey) === kid;
  const from = Date.parse(String(key?.valid_from));
  const until = key?.retired_at === undefined ? Number.POSITIVE_INFINITY : Date.parse(key.retired_at);
  const found = sound && !Number.isNaN(from) && !Number.isNaN(until) ? { publicKey, from, until } : null;
  known.set(kid, found);
  return found;
}
