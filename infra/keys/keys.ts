import { createPrivateKey, generateKeyPairSync, randomBytes } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { Failure } from "../errors.ts";
import { createPrivate, privateFolder, readPrivate, refuseSharedFolder, replacePrivate } from "./files.ts";
import { fromBase64url, type Jwks, PURPOSES, type Purpose } from "./jwk.ts";
import { type Signer, signerOf, thumbprint } from "./signer.ts";

/** A key that was replaced. It may still have to sign the keys document that names its successor. */
export interface RetiredKey {
  signer: Signer;
  /** From this moment on its signatures are not valid; a moment in the future while the old and the new key overlap. */
  until: Date;
}

/** The four keys in use, the ring they come from, and the keys they replaced, oldest first. */
export type Keys = { readonly [P in Purpose]: Signer } & {
  readonly ring: Keyring;
  readonly retired: readonly RetiredKey[];
};

/** Makes a key pair and its file. The file is durable when this returns, before a keyring names it. */
function make(dir: string, purpose: Purpose, validFrom: Date): KeyRecord {
  const { privateKey } = generateKeyPairSync("ed25519");
  const signer = signerOf(privateKey, purpose);
  const record: KeyRecord = {
    purpose,
    kid: signer.kid,
    x: Buffer.from(signer.publicKey).toString("base64url"),
    valid_from: validFrom.toISOString(),
  };
  createPrivate(keyPath(dir, record), privateKey.export({ type: "pkcs8", format: "pem" }));
  return record;
}

/** Is there a keyring in `dir`? */
export const hasKeyring = (dir: string): boolean => existsSync(ringPath(dir));

/**
 * Makes the four keys in `dir` as PKCS #8 files of mode 0600; a folder made here has mode 0700. It replaces nothing: when two
 * processes race, one writes the keyring and the other removes its key files.
 * @param validFrom start of validity in the record's time; signatures dated earlier will not verify.
 * @throws Failure `keys` when there is a keyring already.
 */
export function keygen(dir: string, validFrom: Date): Keyring {
  privateFolder(dir);
  refuseSharedFolder(dir);
  if (hasKeyring(dir)) throw new Failure("keys", `${ringPath(dir)} exists already and is not overwritten`);
  const keys: KeyRecord[] = [];
  try {
    for (const purpose of PURPOSES) keys.push(make(dir, purpose, validFrom));
    createRing(dir, { keys });
  } catch (error) {
    for (const key of keys) rmSync(keyPath(dir, key), { force: true });
    throw error;
  }
  return { keys };
}

/**
 * Put a new key of `purpose` in the place of the one in use, valid from `at`; the old one retires at `until` (default:
 * the same instant). The old private key stays on disk: the next keys document is signed by the keys before it, and
 * until then checkpoints are signed by both. One writer at a time (an operator's command).
 * @throws Failure `keys` when `at` is not after the start of the key in use, or `until` lies before it.
 */
export function rotate(dir: string, purpose: Purpose, at: Date, until = at): Keyring {
  refuseSharedFolder(dir);
  const ring = readRing(dir);
  const old = ring.keys.find((key) => key.purpose === purpose && key.retired_at === undefined)!;
  if (at.getTime() <= Date.parse(old.valid_from)) {
    throw new Failure("keys", `the ${purpose} key is valid from ${old.valid_from} and cannot retire at or before that`);
  }
  if (until < at) throw new Failure("keys", `the ${purpose} key cannot retire before its successor begins`);
  const made = make(dir, purpose, at);
  const kept = ring.keys.map((key) => (key === old ? { ...key, retired_at: until.toISOString() } : key));
  const next: Keyring = { keys: [...kept, made] };
  replaceRing(dir, next);
  return next;
}

/**
 * The private key of one record of the ring, retired ones too.
 * @throws Failure `keys` when the file is missing, open to others, no Ed25519 key, or not the key that the ring names.
 */
export function loadSigner(dir: string, record: KeyRecord): Signer {
  const path = keyPath(dir, record);
  const pem = readPrivate(path);
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
 * Load the four keys in use.
 * @throws Failure `keys` naming the file: missing, readable by group or others (with its mode and the chmod to run),
 * malformed, or not the key that the ring names.
 */
export function loadKeys(dir: string): Keys {
  refuseSharedFolder(dir);
  const ring = readRing(dir);
  const signer = (purpose: Purpose): Signer =>
    loadSigner(dir, ring.keys.find((key) => key.purpose === purpose && key.retired_at === undefined)!);
  return {
    cards: signer("cards"),
    answers: signer("answers"),
    log: signer("log"),
    witness: signer("witness"),
    ring,
    retired: ring.keys.flatMap((key) => {
      // The file of a retired key may have been moved offline: then the key is left out.
      if (key.retired_at === undefined || !existsSync(keyPath(dir, key))) return [];
      return [{ signer: loadSigner(dir, key), until: new Date(key.retired_at) }];
    }),
  };
}

/**
 * The keys in use without their private parts, for a role that only verifies signatures. Signing with one of them throws a
 * Failure `keys` that names the key.
 */
export function verifyOnlyKeys(ring: Keyring): Keys {
  const half = (purpose: Purpose): Signer => {
    const { kid, x } = ring.keys.find((key) => key.purpose === purpose && key.retired_at === undefined)!;
    const refuse = (): never => {
      throw new Failure("keys", `the private ${purpose} key is not on this machine: its role signs nothing`);
    };
    return { kid, purpose, publicKey: fromBase64url(x)!, sign: refuse, signSoon: async () => refuse() };
  };
  const [cards, answers, log, witness] = [half("cards"), half("answers"), half("log"), half("witness")];
  return { cards, answers, log, witness, ring, retired: [] };
}

/** Length of every secret: the output length of SHA-256, which gives HMAC-SHA256 its full strength. */
const SECRET_BYTES = 32;

function pathOf(dir: string, name: string): string {
  if (!/^[a-z][a-z0-9-]{0,62}$/.test(name)) throw new Failure("keys", `'${name}' is no name for a secret`);
  return join(dir, `${name}.secret`);
}

/**
 * Make the secret `name` (for HMAC: salts, opaque payer names): 32 random bytes in `<dir>/<name>.secret`, mode 0600.
 * @throws Failure `keys` when it exists: every salt and opaque name ever published hangs on its bytes.
 */
export function createSecret(dir: string, name: string): void {
  privateFolder(dir);
  createPrivate(pathOf(dir, name), randomBytes(SECRET_BYTES));
}

/** Does a file of the secret `name` exist? {@link loadSecret} checks whether it can be used. */
export const hasSecret = (dir: string, name: string): boolean => existsSync(pathOf(dir, name));

/**
 * Read the secret `name`. It is never made here: a lost volume must be noticed, not papered over with new bytes.
 * @throws Failure `keys` when it is missing, open to others or not 32 bytes.
 */
export function loadSecret(dir: string, name: string): Buffer {
  refuseSharedFolder(dir);
  const path = pathOf(dir, name);
  const secret = readPrivate(path);
  if (secret.length !== SECRET_BYTES) {
    throw new Failure("keys", `${path} holds ${secret.length} bytes instead of ${SECRET_BYTES}`);
  }
  return secret;
}

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

const FILE = "keyring.json";

export const ringPath = (dir: string): string => join(dir, FILE);
export const keyPath = (dir: string, key: { purpose: Purpose; kid: string }): string =>
  join(dir, `${key.purpose}-${key.kid}.pem`);

const print = (ring: Keyring): string => `${JSON.stringify(ring, null, 2)}\n`;

/** Writes a new ring. @throws Failure `keys` when one exists: another process was first, and the keys of this one are unused. */
const createRing = (dir: string, ring: Keyring): void => createPrivate(ringPath(dir), print(ring));

const replaceRing = (dir: string, ring: Keyring): void => replacePrivate(ringPath(dir), print(ring));

/**
 * Read the keyring.
 * @throws Failure `keys` when it is missing, open to others, malformed, when a kid is not the thumbprint of its key or
 * when a purpose has not exactly one key in use.
 */
export function readRing(dir: string): Keyring {
  const path = ringPath(dir);
  const text = readPrivate(path).toString("utf8");
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
    const inUse = ring.keys.filter((key) => key.purpose === purpose && key.retired_at === undefined).length;
    if (inUse !== 1) throw new Failure("keys", `${path} has ${inUse} keys in use for ${purpose} instead of one`);
  }
  return ring;
}

/** The keys document (JWKS) of a keyring: each key with its purpose and validity, retired keys too. */
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
