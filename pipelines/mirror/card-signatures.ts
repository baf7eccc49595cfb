import { fromBase64url, type Jwks } from "../../infra/keys/jwk.ts";
import { isUsableKey } from "../../infra/keys/point.ts";
import { thumbprint } from "../../infra/keys/signer.ts";
import type { SignedBytes, VerifyPool } from "../../infra/keys/verify-pool.ts";
import { signedBytesOf, type Vouching } from "../record/card-cut.mjs";
import type { GradeLeaf } from "../record/leaf.ts";
import { refuseUnsigned } from "./objects.ts";

/** Cards in one batch, and batches on their way at once for each thread. */
const BATCH = 512;
const AHEAD = 2;

interface Card {
  index: number;
  jwks: Jwks | null;
  card: GradeLeaf["card"];
}

/**
 * Verifies the cards of leaves on all cores, in batches. The bytes that were signed are cut out of the leaf, which is in
 * RFC 8785 form already; whatever cannot be cut so, or does not verify so, is judged the long way, whose word counts.
 */
export class CardSignatures {
  #cards: Card[] = [];
  #jobs: SignedBytes[] = [];
  readonly #running = new Set<Promise<void>>();
  #fault: { error: unknown } | null = null;

  /** @param onBad told of a card that no key of its place signed; the default throws from `add` or `drain` */
  constructor(
    private readonly pool: VerifyPool,
    private readonly onBad: (error: unknown) => void = (error) => {
      this.#fault ??= { error };
    },
  ) {}

  /** @param entry the leaf's bytes @param jwks keys that vouch at its place. Slow while all threads are busy. */
  async add(leaf: Pick<GradeLeaf, "index" | "card">, entry: Buffer, jwks: Jwks | null): Promise<void> {
    const { index, card } = leaf;
    const job = jwks && signedBytesOf(entry, card, (kid) => vouching(jwks, kid));
    if (!job) {
      this.#judge({ index, jwks, card });
    } else {
      this.#cards.push({ index, jwks, card });
      this.#jobs.push(job);
      if (this.#jobs.length >= BATCH) this.#flush();
    }
    while (this.#running.size >= this.pool.width * AHEAD) await Promise.race(this.#running);
    this.#throwFault();
  }

  /** Every card added so far was verified when this resolves. */
  async drain(): Promise<void> {
    this.#flush();
    await Promise.all(this.#running);
    this.#throwFault();
  }

  #flush(): void {
    const [cards, jobs] = [this.#cards, this.#jobs];
    [this.#cards, this.#jobs] = [[], []];
    if (jobs.length === 0) return;
    const work = this.pool.verify(jobs).then(
      (good) => {
        for (const [i, card] of cards.entries()) if (good[i] !== 1) this.#judge(card);
      },
      (error: unknown) => {
        this.#fault ??= { error };
      },
    );
    const running = work.finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** A card that no thread could tell of. @throws by way of `onBad` */
  doubted(index: number, card: GradeLeaf["card"], jwks: Jwks | null): void {
    this.#judge({ index, jwks, card });
    this.#throwFault();
  }

  #judge({ index, jwks, card }: Card): void {
    try {
      refuseUnsigned(`card of leaf ${index}`, jwks, card, String(card?.computed_at));
    } catch (error) {
      this.onBad(error);
    }
  }

  #throwFault(): void {
    if (this.#fault) throw this.#fault.error;
  }
}

/** Judged cards keys of a document, by kid; null for one that is fit for nothing. */
const judged = new WeakMap<Jwks, Map<string, Vouching | null>>();

function vouching(jwks: Jwks, kid: string): Vouching | null {
  const known = judged.get(jwks) ?? new Map<string, Vouching | null>();
  judged.set(jwks, known);
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

/** Every cards key of a document that is fit for use, by kid: what a thread verifies by. */
export const vouchingIn = (jwks: Jwks): [kid: string, key: Vouching][] =>
  (Array.isArray(jwks.keys) ? jwks.keys : []).flatMap((key): [string, Vouching][] => {
    const found = typeof key?.kid === "string" ? vouching(jwks, key.kid) : null;
    return found ? [[key.kid, found]] : [];
  });
