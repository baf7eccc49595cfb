import type { Expectation, Verdict, VerifyFault } from "../../infra/keys/examine.ts";
import { fromBase64url, type Jwks, type PublicJwk, type Purpose } from "../../infra/keys/jwk.ts";
import { thumbprint, verifyBytes, verifyObject } from "../../infra/keys/portable.ts";
import { askJson, type Fetch, ServiceFault } from "./http.ts";

export type { Jwks, Verdict, VerifyFault };

const no = (reason: VerifyFault): Verdict => ({ ok: false, reason });

/** The moment at which an object says it was signed. */
function signedAt(object: unknown, member: string): string | null {
  const at = (object as Record<string, unknown> | null)?.[member];
  return typeof at === "string" ? at : null;
}

async function verifyAs(jwks: Jwks, object: unknown, purpose: Purpose, member: string): Promise<Verdict> {
  const at = signedAt(object, member);
  return at === null ? no("malformed") : verifyObject(jwks, object, { purpose, at });
}

/**
 * Does the signature of a check answer hold, under a key for answers that was valid when it was given? Works offline with a
 * saved keys document. Never throws for what a stranger sent, and says nothing of how old the answer is.
 */
export const verifyCheck = (jwks: Jwks, answer: unknown): Promise<Verdict> =>
  verifyAs(jwks, answer, "answers", "answered_at");

/** {@link verifyCheck} of an exposure report. */
export const verifyExposure = verifyCheck;

/** {@link verifyCheck} of a signed card, under a key for cards. @param card an object, or the text of `scorecard` */
export function verifyCard(jwks: Jwks, card: unknown): Promise<Verdict> {
  if (typeof card !== "string") return verifyAs(jwks, card, "cards", "computed_at");
  try {
    return verifyAs(jwks, JSON.parse(card), "cards", "computed_at");
  } catch {
    return Promise.resolve(no("malformed"));
  }
}

/** {@link verifyCheck} of an archive manifest, which the key for cards signs. */
export const verifyManifest = (jwks: Jwks, manifest: unknown): Promise<Verdict> =>
  verifyAs(jwks, manifest, "cards", "verified_at");

/** Path of the keys document. */
const KEYS_PATH = "/.well-known/svc-keys.json";
const MAX_KEYS_BYTES = 256 * 1024;
/** An unknown key id makes us read again; a stranger who sends such ids must not make us read all the time. */
const REREAD_MS = 60_000;
/** A key that was retired is known as such within this time. */
const HOLD_MS = 3_600_000;
/** Verdicts that a newer document may turn. */
const MAY_BE_OLD: readonly VerifyFault[] = ["unknown_key", "wrong_purpose", "not_yet_valid"];

export interface KeySource {
  base: string;
  fetch: Fetch;
  timeout_ms: number;
  now: () => number;
  /** Keys that are known already: then nothing is read, and nobody on the way can put his own in their place. */
  pinned?: Jwks | undefined;
}

/**
 * The published keys: read when first needed and once an hour, again for an unknown key id at most once a minute. While
 * they cannot be read the ones in hand go on to count.
 */
export class KeySet {
  #held: Jwks | null = null;
  #heldAt = Number.NEGATIVE_INFINITY;
  #triedAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<Jwks> | null = null;

  constructor(private readonly source: KeySource) {}

  /** @throws ServiceFault where there are no keys in hand and none can be read */
  async keys(): Promise<Jwks> {
    if (this.source.pinned) return this.source.pinned;
    const { now } = this.source;
    if (this.#held && this.#within(this.#heldAt, HOLD_MS)) return this.#held;
    if (!this.#held) return this.#read();
    if (this.#within(this.#triedAt, REREAD_MS)) return this.#held;
    this.#triedAt = now();
    return this.#read().catch(() => this.#held!);
  }

  /** Verify an object of the service, with newer keys where the ones in hand do not know its key. */
  async verify(object: unknown, expected: Expectation): Promise<Verdict> {
    const first = await verifyObject(await this.keys(), object, expected);
    if (first.ok || !MAY_BE_OLD.includes(first.reason) || !(await this.#readAgain())) return first;
    return verifyObject(await this.keys(), object, expected);
  }

  /** Is one of these signatures over `bytes` made by a key of that purpose that was valid then? */
  async verifyBytes(bytes: Uint8Array, signatures: readonly Uint8Array[], expected: Expectation): Promise<boolean> {
    if (await anySigned(await this.keys(), bytes, signatures, expected)) return true;
    return (await this.#readAgain()) && anySigned(await this.keys(), bytes, signatures, expected);
  }

  /** Newer keys for those that did not do, at most once a minute; true where some were read. */
  async #readAgain(): Promise<boolean> {
    if (this.source.pinned || this.#within(this.#triedAt, REREAD_MS)) return false;
    try {
      await this.#read();
      return true;
    } catch {
      return false;
    }
  }

  /** A clock that went back makes things old, not new. */
  #within(since: number, ms: number): boolean {
    const age = this.source.now() - since;
    return age >= 0 && age < ms;
  }

  #read(): Promise<Jwks> {
    const { base, fetch, timeout_ms, now } = this.source;
    this.#triedAt = now();
    this.#reading ??= askJson(fetch, base + KEYS_PATH, {}, { timeout_ms, max_bytes: MAX_KEYS_BYTES })
      .then(({ body }) => {
        if (!Array.isArray((body as { keys?: unknown } | null)?.keys)) {
          throw new ServiceFault("bad_answer", "the keys document holds no keys");
        }
        this.#held = body as Jwks;
        this.#heldAt = now();
        return this.#held;
      })
      .finally(() => {
        this.#reading = null;
      });
    return this.#reading;
  }
}

/** Keys of one purpose that are looked at: the one in force, and some more. */
const MAX_TRIED = 8;

async function anySigned(jwks: Jwks, bytes: Uint8Array, signatures: readonly Uint8Array[], expected: Expectation) {
  const at = new Date(expected.at).getTime();
  const isInForce = ({ purpose, valid_from, retired_at }: PublicJwk): boolean =>
    purpose === expected.purpose &&
    Date.parse(valid_from) <= at &&
    !(retired_at !== undefined && Date.parse(retired_at) <= at);
  for (const key of jwks.keys.filter(isInForce).slice(-MAX_TRIED)) {
    const publicKey = fromBase64url(String(key.x));
    if (publicKey === null || (await thumbprint(key.x)) !== key.kid) continue;
    for (const signature of signatures) if (await verifyBytes(publicKey, bytes, signature)) return true;
  }
  return false;
}
