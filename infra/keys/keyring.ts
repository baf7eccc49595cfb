import { join } from "node:path";
import { z } from "zod";
import { createPrivate, KeyFileError, readPrivate, replacePrivate } from "./files.ts";
import { type Jwks, PURPOSES, type Purpose } from "./jwk.ts";
import { thumbprint } from "./signer.ts";

const KeyRecord = z.strictObject({
  purpose: z.enum(PURPOSES),
  kid: z.string(),
  x: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  valid_from: z.iso.datetime(),
  retired_at: z.iso.datetime().optional(),
});

const Keyring = z.strictObject({ keys: z.array(KeyRecord) });

/** Every key we ever had, in the order they were made; without a `retired_at` it is in use. Holds nothing private. */
export type Keyring = z.infer<typeof Keyring>;
export type KeyRecord = z.infer<typeof KeyRecord>;

const FILE = "keyring.json";

export const ringPath = (dir: string): string => join(dir, FILE);
export const keyPath = (dir: string, key: { purpose: Purpose; kid: string }): string =>
  join(dir, `${key.purpose}-${key.kid}.pem`);

const print = (ring: Keyring): string => `${JSON.stringify(ring, null, 2)}\n`;

/** @throws KeyFileError when there is one: whoever comes second has made keys that nobody published. */
export const createRing = (dir: string, ring: Keyring): void => createPrivate(ringPath(dir), print(ring));

export const replaceRing = (dir: string, ring: Keyring): void => replacePrivate(ringPath(dir), print(ring));

/**
 * Read the keyring.
 * @throws KeyFileError when it is missing, open to others, malformed, when a kid is not the thumbprint of its key or
 * when a purpose has not exactly one key in use.
 */
export function readRing(dir: string): Keyring {
  const path = ringPath(dir);
  const text = readPrivate(path).toString("utf8");
  let ring: Keyring;
  try {
    ring = Keyring.parse(JSON.parse(text));
  } catch (error) {
    throw new KeyFileError(`${path} is not a keyring: ${(error as Error).message}`, { cause: error });
  }
  for (const key of ring.keys) {
    if (thumbprint(key.x) !== key.kid) throw new KeyFileError(`${path}: kid ${key.kid} does not belong to its key`);
  }
  for (const purpose of PURPOSES) {
    const inUse = ring.keys.filter((key) => key.purpose === purpose && key.retired_at === undefined).length;
    if (inUse !== 1) throw new KeyFileError(`${path} has ${inUse} keys in use for ${purpose} instead of one`);
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
      alg: "Ed25519",
      purpose,
      valid_from,
      ...(retired_at === undefined ? {} : { retired_at }),
    })),
  };
}
