import type { Expectation, Verdict, VerifyFault } from "../../infra/keys/examine.ts";
import { fromBase64url, type Jwks, type PublicJwk, type Purpose } from "../../infra/keys/jwk.ts";
import { thumbprint, verifyBytes, verifyObject } from "../../infra/keys/portable.ts";
import { askJson, type Fetch, ServiceFault } from "./http.ts";

export type { Jwks, Verdict, VerifyFault };

const no = (reason: VerifyFault): Verdict => ({ ok: false, reason });

/** The time at which an object states that it was signed. */
function signedAt(object: unknown, member: string): string | null {
  const at = (object as Record<string, unknown> | null)?.[member];
  return typeof at === "string" ? at : null;
}

async function verifyAs(jwks: Jwks, object: unknown, purpose: Purpose, member: string): Promise<Verdict> {
  const at = signedAt(object, member);
  return at === null ? no("malformed") : verifyObject(jwks, object, { purpose, at });
}

/**
 * Is the signature of a check answer valid, made with an answers key that was valid at the time of the answer? Works
 * offline with a saved keys document. Never throws for what a stranger sent. It does not check how old the answer is.
 */
export const verifyCheck = (jwks: Jwks, answer: unknown): Promise<Verdict> =>
  verifyAs(jwks, answer, "answers", "answered_at");

/** Like {@link verifyCheck}, for an exposure report. */
export const verifyExposure = verifyCheck;

/** Like {@link verifyCheck}, for a signed card and the cards key. @param card an object, or the text of `scorecard` */
export function verifyCard(jwks: Jwks, card: unknown): Promise<Verdict> {
  if (typeof card !== "string") return verifyAs(jwks, card, "cards", "computed_at");
  try {
    return verifyAs(jwks, JSON.parse(card), "cards", "computed_at");
  } catch {
    return Promise.resolve(no("malformed"));
  }
}

/** Like {@link verifyCheck}, for an archive manifest and the cards key. */
export const verifyManifest = (jwks: Jwks, manifest: unknown): Promise<Verdict> =>
  verifyAs(jwks, manifest, "cards", "verified_at");

/** Path of the keys document. */
const KEYS_PATH = "/.well-known/svc-keys.json";
const MAX_KEYS_BYTES = 256 * 1024;
/**
 * Least pause between two readings because of an unknown key id, so that a stranger who sends such ids does not cause
 * many.
 */
const REREAD_MS = 60_000;
/** The keys are read again after this time, so a retired key is known as such by then. */
const HOLD_MS = 3_600_000;
/** Verdicts that may change with a newer keys document. */
const MAY_BE_OLD: readonly VerifyFault[] = ["unknown_key", "wrong_purpose", "not_yet_valid"];

export interface KeySource {
  base: string;
  fetch: Fetch;
  timeout_ms: number;
  now: () => number;
  /** Keys that are known already. Then nothing is read, and nobody on the way can replace them. */
  pinned?: Jwks | undefined;
}

/**
 * The published keys: read when they are first needed and then once an hour, and for an unknown key id at most once a
 * minute. While they cannot be read, the last ones stay in use.
 */
export class KeySet {
  #held: Jwks | null = null;
  #heldAt = Number.NEGATIVE_INFINITY;
  #triedAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<Jwks> | null = null;

  constructor(private readonly source: KeySource) {}

  /** @throws ServiceFault where there are no keys yet and none can be read */
  async keys(): Promise<Jwks> {
    if (this.source.pinned) return this.source.pinned;
    const { now } = this.source;
    if (this.#held && this.#within(this.#heldAt, HOLD_MS)) return this.#held;
    if (!this.#held) return this.#read();
    if (this.#within(this.#triedAt, REREAD_MS)) return this.#held;
    this.#triedAt = now();
    return this.#read().catch(() => this.#held!);
  }

  /** Verifies an object of the service; if the keys do not include its key, with newer keys. */
  async verify(object: unknown, expected: Expectation): Promise<Verdict> {
    const first = await verifyObject(await this.keys(), object, expected);
    if (first.ok || !MAY_BE_OLD.includes(first.reason) || !(await this.#readAgain())) return first;
    return verifyObject(await this.keys(), object, expected);
  }

  /** Is one of these signatures over `bytes` made by a key with that purpose that was valid then? */
  async verifyBytes(bytes: Uint8Array, signatures: readonly Uint8Array[], expected: Expectation): Promise<boolean> {
    if (await anySigned(await this.keys(), bytes, signatures, expected)) return true;
    return (await this.#readAgain()) && anySigned(await this.keys(), bytes, signatures, expected);
  }

  /** Reads newer keys, at most once a minute. @returns were they read? */
  async #readAgain(): Promise<boolean> {
    if (this.source.pinned || this.#within(this.#triedAt, REREAD_MS)) return false;
    try {
      await this.#read();
      return true;
    } catch {
      return false;
    }
  }

  /** If the clock went back, the time is not within. */
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

/** Most keys of one purpose that are tried: the current one, and some more. */
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
