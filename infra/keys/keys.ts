import { createPrivateKey, generateKeyPairSync, randomBytes } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { Failure } from "../errors.ts";
import {
  createPrivateFile,
  ensurePrivateFolder,
  readPrivateFile,
  refuseSharedFolder,
  replacePrivateFile,
} from "./files.ts";
import { fromBase64url, type Jwks, PURPOSES, type Purpose } from "./jwk.ts";
import { type Signer, signerOf, thumbprint } from "./signer.ts";

/** A key that was replaced. It may still be needed to sign the keys document that names its successor. */
export interface RetiredKey {
  signer: Signer;
  /** Time from which its signatures are invalid. It lies in the future while the old and the new key are both valid. */
  until: Date;
}

/** The four keys in use, the keyring that holds them, and the keys that they replaced, oldest first. */
export type Keys = { readonly [P in Purpose]: Signer } & {
  readonly ring: Keyring;
  readonly retired: readonly RetiredKey[];
};

/**
 * Creates a key pair and its file. The file is durable when this returns, so a keyring never names a key that could be
 * lost.
 */
function createKey(dir: string, purpose: Purpose, validFrom: Date): KeyRecord {
  const { privateKey } = generateKeyPairSync("ed25519");
  const signer = signerOf(privateKey, purpose);
  const record: KeyRecord = {
    purpose,
    kid: signer.kid,
    x: Buffer.from(signer.publicKey).toString("base64url"),
    valid_from: validFrom.toISOString(),
  };
  createPrivateFile(keyPath(dir, record), privateKey.export({ type: "pkcs8", format: "pem" }));
  return record;
}

/** Returns true if `dir` holds a keyring, readable or not, else false. */
export const hasKeyring = (dir: string): boolean => existsSync(ringPath(dir));

/**
 * Creates the four keys in `dir` as PKCS #8 files of mode 0600; a new folder has mode 0700. Nothing is replaced: when
 * two processes race, one writes the keyring, and the other removes its key files.
 * @param validFrom start of validity by the service's clock; signatures dated earlier do not verify
 * @throws Failure `keys` when a keyring exists
 */
export function createKeyring(dir: string, validFrom: Date): Keyring {
  ensurePrivateFolder(dir);
  refuseSharedFolder(dir);
  if (hasKeyring(dir)) throw new Failure("keys", `${ringPath(dir)} exists already and is not overwritten`);
  const keys: KeyRecord[] = [];
  try {
    for (const purpose of PURPOSES) keys.push(createKey(dir, purpose, validFrom));
    createRing(dir, { keys });
  } catch (error) {
    for (const key of keys) rmSync(keyPath(dir, key), { force: true });
    throw error;
  }
  return { keys };
}

/** The last time that a keyring can hold, ms: its years have four digits. */
const LAST_TIME_MS = Date.parse("9999-12-31T23:59:59.999Z");

/**
 * Replaces the key of `purpose` by a new key that is valid from `at`. The old key retires at `until`, by default also
 * at `at`. The old private key stays on disk: an old cards key signs the keys document that names its successor, and
 * an old log or witness key signs checkpoints beside the new one until it retires. Only one process may call this at a
 * time (it is an operator's command).
 * @throws Failure `keys` when `at` is not after the start of the old key, or `until` is before `at` or after the year
 * 9999
 */
export function rotateKey(dir: string, purpose: Purpose, at: Date, until = at): Keyring {
  refuseSharedFolder(dir);
  const ring = readRing(dir);
  const oldKey = ring.keys.find((key) => key.purpose === purpose && key.retired_at === undefined)!;
  if (at.getTime() <= Date.parse(oldKey.valid_from)) {
    throw new Failure(
      "keys",
      `the ${purpose} key is valid from ${oldKey.valid_from} and cannot retire at or before that`,
    );
  }
  if (until < at) throw new Failure("keys", `the ${purpose} key cannot retire before its successor begins`);
  // Checked before the new key has a file: a keyring with such a time could not be read again.
  if (!(until.getTime() <= LAST_TIME_MS))
    throw new Failure("keys", `the ${purpose} key cannot retire after the year 9999`);
  const newKey = createKey(dir, purpose, at);
  const earlierKeys = ring.keys.map((key) => (key === oldKey ? { ...key, retired_at: until.toISOString() } : key));
  const next: Keyring = { keys: [...earlierKeys, newKey] };
  replaceRing(dir, next);
  return next;
}

/**
 * Loads the private key of one record of the keyring; the key may be retired.
 * @throws Failure `keys` when the file is missing, accessible to others, not an Ed25519 key, or not the key that the
 * keyring names
 */
export function loadSigner(dir: string, record: KeyRecord): Signer {
  const path = keyPath(dir, record);
  const pem = readPrivateFile(path);
  let signer: Signer;
  try {
    signer = signerOf(createPrivateKey(pem), record.purpose);
  } catch (error) {
    throw new Failure("keys", `${path} holds no Ed25519 private key`, { cause: error });
  } finally {
    pem.fill(0);
  }
  if (signer.kid !== record.kid) throw new Failure("keys", `${path} holds another key than the keyring names`);
  return signer;
}

/**
 * Loads the four keys in use and the retired keys.
 * @throws Failure `keys` naming a file that is missing, accessible to others (with its mode and the chmod to run),
 * malformed, or not the key that the keyring names
 */
export function loadKeys(dir: string): Keys {
  refuseSharedFolder(dir);
  const ring = readRing(dir);
  const loadSignerInUse = (purpose: Purpose): Signer =>
    loadSigner(dir, ring.keys.find((key) => key.purpose === purpose && key.retired_at === undefined)!);
  return {
    cards: loadSignerInUse("cards"),
    answers: loadSignerInUse("answers"),
    log: loadSignerInUse("log"),
    witness: loadSignerInUse("witness"),
    ring,
    retired: ring.keys.flatMap((key) => {
      // An operator may have moved a retired key's file offline; that key is left out.
      if (key.retired_at === undefined || !existsSync(keyPath(dir, key))) return [];
      return [{ signer: loadSigner(dir, key), until: new Date(key.retired_at) }];
    }),
  };
}

/**
 * Returns the keys in use without their private parts, for a role that only verifies signatures. Signing with such a
 * key throws a Failure `keys` that names the key.
 */
export function verifyOnlyKeys(ring: Keyring): Keys {
  const publicSigner = (purpose: Purpose): Signer => {
    const { kid, x } = ring.keys.find((key) => key.purpose === purpose && key.retired_at === undefined)!;
    const refuse = (): never => {
      throw new Failure("keys", `the private ${purpose} key is not on this machine: its role signs nothing`);
    };
    return { kid, purpose, publicKey: fromBase64url(x)!, sign: refuse, signSoon: async () => refuse() };
  };
  const [cards, answers, log, witness] = [
    publicSigner("cards"),
    publicSigner("answers"),
    publicSigner("log"),
    publicSigner("witness"),
  ];
  return { cards, answers, log, witness, ring, retired: [] };
}

/** Length of every secret: the output length of SHA-256, which gives HMAC-SHA256 its full strength. */
const SECRET_BYTES = 32;

function secretPath(dir: string, name: string): string {
  if (!/^[a-z][a-z0-9-]{0,62}$/.test(name)) throw new Failure("keys", `'${name}' is no name for a secret`);
  return join(dir, `${name}.secret`);
}

/**
 * Creates the secret `name`, such as the HMAC key of salts and opaque payer names: 32 random bytes in
 * `<dir>/<name>.secret`, mode 0600.
 * @throws Failure `keys` when the secret exists, since what was derived from its bytes could not be derived again
 */
export function createSecret(dir: string, name: string): void {
  ensurePrivateFolder(dir);
  createPrivateFile(secretPath(dir, name), randomBytes(SECRET_BYTES));
}

/** Returns true if a file of the secret `name` exists, usable or not; {@link loadSecret} checks that. Else false. */
export const hasSecret = (dir: string, name: string): boolean => existsSync(secretPath(dir, name));

/**
 * Reads the secret `name`. A missing secret is never created here, since a lost disk must be noticed and not be hidden
 * by new bytes.
 * @throws Failure `keys` when it is missing, accessible to others, or not 32 bytes
 */
export function loadSecret(dir: string, name: string): Buffer {
  refuseSharedFolder(dir);
  const path = secretPath(dir, name);
  const secret = readPrivateFile(path);
  if (secret.length !== SECRET_BYTES) {
    throw new Failure("keys", `${path} holds ${secret.length} bytes instead of ${SECRET_BYTES}`);
  }
  return secret;
}

/** One key of a keyring: `x` is the public key (32 bytes, base64url), and `kid` its RFC 7638 thumbprint. */
const KeyRecord = z.strictObject({
  purpose: z.enum(PURPOSES),
  kid: z.string(),
  x: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  valid_from: z.iso.datetime(),
  retired_at: z.iso.datetime().optional(),
});

const Keyring = z.strictObject({ keys: z.array(KeyRecord) });

/** All public keys in the order in which they were made. A key without `retired_at` is in use. */
export type Keyring = z.infer<typeof Keyring>;
export type KeyRecord = z.infer<typeof KeyRecord>;

const KEYRING_FILE = "keyring.json";

export const ringPath = (dir: string): string => join(dir, KEYRING_FILE);
export const keyPath = (dir: string, key: { purpose: Purpose; kid: string }): string =>
  join(dir, `${key.purpose}-${key.kid}.pem`);

const formatRing = (ring: Keyring): string => `${JSON.stringify(ring, null, 2)}\n`;

/**
 * Writes a new keyring. @throws Failure `keys` when one exists; then another process was first, and this process's keys
 * stay unused
 */
const createRing = (dir: string, ring: Keyring): void => createPrivateFile(ringPath(dir), formatRing(ring));

const replaceRing = (dir: string, ring: Keyring): void => replacePrivateFile(ringPath(dir), formatRing(ring));

/**
 * Reads the keyring.
 * @throws Failure `keys` when it is missing, accessible to others, or malformed, when a kid is not the thumbprint of
 * its key, or when a purpose does not have exactly one key in use
 */
export function readRing(dir: string): Keyring {
  const path = ringPath(dir);
  const text = readPrivateFile(path).toString("utf8");
  let ring: Keyring;
  try {
    ring = Keyring.parse(JSON.parse(text));
  } catch (error) {
    throw new Failure("keys", `${path} is not a keyring: ${(error as Error).message}`, { cause: error });
  }
  for (const key of ring.keys) {
    if (thumbprint(key.x) !== key.kid) throw new Failure("keys", `${path}: kid ${key.kid} does not belong to its key`);
  }
  for (const purpose of PURPOSES) {
    const countInUse = ring.keys.filter((key) => key.purpose === purpose && key.retired_at === undefined).length;
    if (countInUse !== 1)
      throw new Failure("keys", `${path} has ${countInUse} keys in use for ${purpose} instead of one`);
  }
  return ring;
}

/** Returns the keys document (JWKS) of a keyring: each key with its purpose and validity, including retired keys. */
export function keysDocument(ring: Keyring): Jwks {
  return {
    keys: ring.keys.map(({ purpose, kid, x, valid_from, retired_at }) => ({
      kty: "OKP",
      crv: "Ed25519",
      x,
      kid,
      use: "sig",
      alg: "EdDSA",
      purpose,
      valid_from,
      ...(retired_at === undefined ? {} : { retired_at }),
    })),
  };
}
