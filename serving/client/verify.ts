import type { Expectation, Verdict, VerifyFault } from "../../infra/keys/examine.ts";
import { fromBase64url, type Jwks, type PublicJwk, type Purpose } from "../../infra/keys/jwk.ts";
import { thumbprint, verifyBytes, verifyObject } from "../../infra/keys/portable.ts";
import { askJson, type Fetch, ServiceFault } from "./http.ts";

export type { Jwks, Verdict, VerifyFault };

const no = (reason: VerifyFault): Verdict => ({ ok: false, reason });

/** Returns the signing time that an object states; null if it states none. */
function signedAt(object: unknown, member: string): string | null {
  const at = (object as Record<string, unknown> | null)?.[member];
  return typeof at === "string" ? at : null;
}

async function verifyAs(jwks: Jwks, object: unknown, purpose: Purpose, member: string): Promise<Verdict> {
  const at = signedAt(object, member);
  return at === null ? no("malformed") : verifyObject(jwks, object, { purpose, at });
}

/**
 * Verifies the signature of a check answer: it must be by an answers key of the service that was valid at the time of
 * the answer. Works offline with a saved keys document. It does not check how old the answer is. It returns a verdict
 * for any input and does not throw.
 */
export const verifyCheck = (jwks: Jwks, answer: unknown): Promise<Verdict> =>
  verifyAs(jwks, answer, "answers", "answered_at");

/** Like {@link verifyCheck}, for an exposure report. */
export const verifyExposure = verifyCheck;

/**
 * Like {@link verifyCheck}, for a card (signed grade) and the cards keys.
 * @param card an object, or the text of `scorecard`
 */
export function verifyCard(jwks: Jwks, card: unknown): Promise<Verdict> {
  if (typeof card !== "string") return verifyAs(jwks, card, "cards", "computed_at");
  try {
    return verifyAs(jwks, JSON.parse(card), "cards", "computed_at");
  } catch {
    return Promise.resolve(no("malformed"));
  }
}

/** Like {@link verifyCheck}, for an archive manifest and the cards keys. */
export const verifyManifest = (jwks: Jwks, manifest: unknown): Promise<Verdict> =>
  verifyAs(jwks, manifest, "cards", "verified_at");

/** Path of the keys document. */
const KEYS_PATH = "/.well-known/svc-keys.json";
const MAX_KEYS_BYTES = 256 * 1024;
/**
 * Shortest pause between two fetches of the keys for an unknown key id, so that a stranger who sends such ids cannot
 * cause many requests.
 */
const REREAD_MS = 60_000;
/** The keys are fetched again after this time, so that the retirement of a key is noticed within it. */
const HOLD_MS = 3_600_000;
/** Faults that may occur only because the keys document in use is old. */
const MAY_BE_OLD: readonly VerifyFault[] = ["unknown_key", "wrong_purpose", "not_yet_valid"];

export interface KeySource {
  base: string;
  fetch: Fetch;
  timeout_ms: number;
  now: () => number;
  /** Keys that the caller already has. Then none are fetched, so nobody on the network can replace them. */
  pinned?: Jwks | undefined;
}

/**
 * The published keys of a service. They are fetched on first use and then once an hour. If a newer key may have made a
 * signature, they are fetched again, at most once a minute. While a fetch fails, the last keys stay in use.
 */
export class KeySet {
  #jwks: Jwks | null = null;
  #readAt = Number.NEGATIVE_INFINITY;
  #triedAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<Jwks> | null = null;

  constructor(private readonly source: KeySource) {}

  /** Returns the keys. @throws ServiceFault if none were fetched yet and the fetch fails */
  async keys(): Promise<Jwks> {
    if (this.source.pinned) return this.source.pinned;
    const { now } = this.source;
    if (this.#jwks && this.#within(this.#readAt, HOLD_MS)) return this.#jwks;
    if (!this.#jwks) return this.#read();
    if (this.#within(this.#triedAt, REREAD_MS)) return this.#jwks;
    this.#triedAt = now();
    return this.#read().catch(() => this.#jwks!);
  }

  /** Verifies a signed object; if a newer key may have signed it, again with newer keys. */
  async verify(object: unknown, expected: Expectation): Promise<Verdict> {
    const first = await verifyObject(await this.keys(), object, expected);
    if (first.ok || !MAY_BE_OLD.includes(first.reason) || !(await this.#readAgain())) return first;
    return verifyObject(await this.keys(), object, expected);
  }

  /** Did a key with the expected purpose, valid at the expected time, make one of the signatures? */
  async verifyBytes(bytes: Uint8Array, signatures: readonly Uint8Array[], expected: Expectation): Promise<boolean> {
    if (await anySigned(await this.keys(), bytes, signatures, expected)) return true;
    return (await this.#readAgain()) && anySigned(await this.keys(), bytes, signatures, expected);
  }

  /** Fetches the keys again, at most once a minute. @returns false if nothing was fetched */
  async #readAgain(): Promise<boolean> {
    if (this.source.pinned || this.#within(this.#triedAt, REREAD_MS)) return false;
    try {
      await this.#read();
      return true;
    } catch {
      return false;
    }
  }

  /** Did less than `ms` pass since `since`? False if the clock was set back. */
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
        this.#jwks = body as Jwks;
        this.#readAt = now();
        return this.#jwks;
      })
      .finally(() => {
        this.#reading = null;
      });
    return this.#reading;
  }
}

/** Largest number of keys of one purpose that are tried; the newest are tried. */
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
