import { UnderWay } from "../../infra/concurrency.ts";
import { isUsableKey } from "../../infra/keys/examine.ts";
import { fromBase64url, type Jwks } from "../../infra/keys/jwk.ts";
import { thumbprint } from "../../infra/keys/signer.ts";
import { verifySoon } from "../../infra/keys/verify.ts";
import { signedBytesOf, type Vouching } from "../record/card-cut.mjs";
import type { GradeLeaf } from "../record/leaf.ts";
import { refuseUnsignedCard } from "./keys.ts";

/** Cards in one batch, and batches on their way at once. */
const BATCH = 512;
const AHEAD = 4;

type CardLeaf = Pick<GradeLeaf, "index" | "at" | "card">;

interface Card {
  leaf: CardLeaf;
  jwks: Jwks | null;
}

/**
 * Verifies the cards of leaves on all cores, in batches. The bytes that were signed are cut out of the leaf, which is in
 * RFC 8785 form already; whatever cannot be cut so, or does not verify so, is verified the long way, whose word counts.
 */
export class CardSignatures {
  #cards: Card[] = [];
  #jobs: Promise<boolean>[] = [];
  readonly #verifying = new UnderWay(AHEAD);
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
    await this.#verifying.drained();
    this.#throwFault();
  }

  async #flush(): Promise<void> {
    const [cards, jobs] = [this.#cards, this.#jobs];
    [this.#cards, this.#jobs] = [[], []];
    if (jobs.length === 0) return;
    await this.#verifying.add(async () => {
      const good = await Promise.all(jobs);
      for (const [i, card] of cards.entries()) if (!good[i]) this.#validate(card);
    });
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
const validated = new WeakMap<Jwks, Map<string, Vouching | null>>();

function vouching(jwks: Jwks, kid: string): Vouching | null {
  const known = validated.get(jwks) ?? new Map<string, Vouching | null>();
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
