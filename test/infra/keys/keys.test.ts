import { execFileSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { PURPOSES } from "../../../infra/keys/jwk.ts";
import {
  createKeyring,
  createSecret,
  hasKeyring,
  keyPath,
  keysDocument,
  loadKeys,
  loadSecret,
  loadSigner,
  readRing,
  ringPath,
  rotateKey,
} from "../../../infra/keys/keys.ts";
import { signerOf, signObject, thumbprint } from "../../../infra/keys/signer.ts";
import { verifyObject } from "../../../infra/keys/verify.ts";
import { AT, FROM } from "./fixed.ts";

const home = mkdtempSync(join(tmpdir(), "touchstone-keys-"));
afterAll(() => rmSync(home, { recursive: true }));

let count = 0;
let dir: string;
beforeEach(() => {
  dir = join(home, String(count++), "keys");
});

const mode = (path: string): string => (statSync(path).mode & 0o7777).toString(8);
const from = new Date(FROM);

describe("keygen", () => {
  it("makes four keys and a ring: files 0600, folder 0700, whatever the umask", () => {
    const before = process.umask(0);
    try {
      createKeyring(dir, from);
    } finally {
      process.umask(before);
    }
    expect(mode(dir)).toBe("700");
    const files = readdirSync(dir);
    expect(files).toHaveLength(5);
    expect(files.filter((file) => mode(join(dir, file)) !== "600")).toEqual([]);
  });

  it("never overwrites and leaves what is there untouched", () => {
    createKeyring(dir, from);
    const before = readdirSync(dir).map((file) => [file, readFileSync(join(dir, file), "utf8")]);
    expect(() => createKeyring(dir, new Date(AT))).toThrow(/exists already and is not overwritten/);
    expect(readdirSync(dir).map((file) => [file, readFileSync(join(dir, file), "utf8")])).toEqual(before);
  });

  it("takes its keys back when another won the race for the ring", () => {
    // A link to nothing: not there for whoever looks first, there for whoever creates.
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    symlinkSync("nowhere", join(dir, "keyring.json"));
    expect(() => createKeyring(dir, from)).toThrow(expect.objectContaining({ code: "keys" }));
    expect(readdirSync(dir)).toEqual(["keyring.json"]);
  });

  it("writes keys that another program reads", () => {
    const ring = createKeyring(dir, from);
    const text = execFileSync("openssl", ["pkey", "-in", keyPath(dir, ring.keys[0]!), "-noout", "-text"]).toString();
    expect(text).toMatch(/ED25519/i);
  });
});

describe("loadKeys", () => {
  it("gives four signers whose signatures verify under the keys document, each under its purpose only", () => {
    createKeyring(dir, from);
    const keys = loadKeys(dir);
    const jwks = JSON.parse(JSON.stringify(keysDocument(keys.ring)));
    expect(new Set(PURPOSES.map((purpose) => keys[purpose].kid)).size).toBe(4);
    for (const purpose of PURPOSES) {
      const signed = signObject(keys[purpose], { said: purpose });
      for (const asked of PURPOSES) {
        const verdict = verifyObject(jwks, signed, { purpose: asked, at: AT });
        expect(verdict).toEqual(asked === purpose ? { ok: true } : { ok: false, reason: "wrong_purpose" });
      }
    }
  });

  it("keys document has exactly the published members", () => {
    createKeyring(dir, from);
    const { ring, cards } = loadKeys(dir);
    expect(keysDocument(ring).keys[0]).toStrictEqual({
      kty: "OKP",
      crv: "Ed25519",
      x: Buffer.from(cards.publicKey).toString("base64url"),
      kid: thumbprint(cards.publicKey),
      use: "sig",
      alg: "EdDSA",
      purpose: "cards",
      valid_from: FROM,
    });
  });

  it.each([0o640, 0o604, 0o620, 0o601, 0o644])("refuses a key of mode %o, with file, mode and chmod", (bits) => {
    const ring = createKeyring(dir, from);
    const path = keyPath(dir, ring.keys[2]!);
    chmodSync(path, bits);
    const message = `${path} has mode 0${bits.toString(8)}: others can reach it; run: chmod 600 '${path}'`;
    expect(() => loadKeys(dir)).toThrow(message);
    chmodSync(path, 0o600);
    expect(loadKeys(dir).log.purpose).toBe("log");
  });

  it("refuses an open keyring and a folder that others may write in", () => {
    createKeyring(dir, from);
    chmodSync(ringPath(dir), 0o644);
    expect(() => loadKeys(dir)).toThrow(/keyring\.json has mode 0644.*chmod 600/);
    chmodSync(ringPath(dir), 0o600);
    chmodSync(dir, 0o770);
    expect(() => loadKeys(dir)).toThrow(`${dir} has mode 0770: others can swap its files; run: chmod 700 '${dir}'`);
  });

  const damage: [string, (dir: string) => void, RegExp][] = [
    ["no folder", (d) => rmSync(d, { recursive: true }), /cannot be read \(ENOENT\)/],
    ["no ring", (d) => rmSync(ringPath(d)), /keyring\.json cannot be read \(ENOENT\)/],
    ["no key", (d) => rmSync(keyPath(d, readRing(d).keys[0]!)), /cards-.*\.pem cannot be read \(ENOENT\)/],
    ["half a ring", (d) => writeFileSync(ringPath(d), '{"keys":['), /is not a keyring/],
    ["a ring of something else", (d) => writeFileSync(ringPath(d), '{"keys":[{"kid":1}]}'), /is not a keyring/],
    ["an empty ring", (d) => writeFileSync(ringPath(d), '{"keys":[]}'), /0 keys in use for cards/],
    ["an empty key", (d) => writeFileSync(keyPath(d, readRing(d).keys[1]!), ""), /holds no Ed25519 private key/],
    [
      "a key of another kind",
      (d) => {
        const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
        writeFileSync(keyPath(d, readRing(d).keys[1]!), privateKey.export({ type: "pkcs8", format: "pem" }));
      },
      /holds no Ed25519 private key/,
    ],
    [
      "two keys swapped",
      (d) => {
        const [a, b] = readRing(d).keys;
        writeFileSync(keyPath(d, a!), readFileSync(keyPath(d, b!)));
      },
      /holds another key than the keyring names/,
    ],
    [
      "a kid that is not its key's",
      (d) => writeFileSync(ringPath(d), readFileSync(ringPath(d), "utf8").replace(/"kid": ".{4}/, '"kid": "AAAA')),
      /does not belong to its key/,
    ],
    [
      "two keys in use for one purpose",
      (d) => {
        const ring = readRing(d);
        writeFileSync(ringPath(d), JSON.stringify({ keys: [...ring.keys, ring.keys[0]] }));
      },
      /2 keys in use for cards/,
    ],
  ];
  it.each(damage)("%s", (_, harm, message) => {
    createKeyring(dir, from);
    harm(dir);
    expect(() => loadKeys(dir)).toThrow(expect.objectContaining({ code: "keys" }));
    expect(() => loadKeys(dir)).toThrow(message);
  });

  it("hasKeyring says whether there is a ring", () => {
    expect(hasKeyring(dir)).toBe(false);
    createKeyring(dir, from);
    expect(hasKeyring(dir)).toBe(true);
  });
});

describe("rotate", () => {
  it("hands over at one instant: each signature verifies on its side of it, and the old key can still be loaded", () => {
    createKeyring(dir, from);
    const old = loadKeys(dir).answers;
    rotateKey(dir, "answers", new Date(AT));
    const { answers, ring } = loadKeys(dir);
    expect(answers.kid).not.toBe(old.kid);
    const jwks = keysDocument(ring);
    expect(jwks.keys).toHaveLength(5);
    const before = new Date(Date.parse(AT) - 1);
    const check = (signer: typeof old, at: Date) =>
      verifyObject(jwks, signObject(signer, { a: 1 }), { purpose: "answers", at });
    expect(check(old, before)).toEqual({ ok: true });
    expect(check(old, new Date(AT))).toEqual({ ok: false, reason: "retired" });
    expect(check(answers, before)).toEqual({ ok: false, reason: "not_yet_valid" });
    expect(check(answers, new Date(AT))).toEqual({ ok: true });
    const retired = ring.keys.find((key) => key.retired_at !== undefined)!;
    expect(loadSigner(dir, retired).kid).toBe(old.kid);
    expect(mode(ringPath(dir))).toBe("600");
  });

  it("refuses an instant at which the key was not yet valid, and makes nothing", () => {
    createKeyring(dir, from);
    const before = readdirSync(dir);
    expect(() => rotateKey(dir, "log", from)).toThrow(/cannot retire/);
    expect(readdirSync(dir)).toEqual(before);
  });

  it.each([
    ["of five digits", new Date("+057500-04-12T00:00:00.000Z")],
    ["that is none", new Date(Number.NaN)],
  ])("refuses an end in a year %s, which no keyring could be read with, and makes nothing", (_, until) => {
    createKeyring(dir, from);
    const before = readdirSync(dir);
    expect(() => rotateKey(dir, "log", new Date(AT), until)).toThrow(/cannot retire after the year 9999/);
    expect(readdirSync(dir)).toEqual(before);
    rotateKey(dir, "log", new Date(AT), new Date("9999-12-31T23:59:59.999Z"));
    expect(readRing(dir).keys).toHaveLength(5);
  });
});

describe("secrets", () => {
  it("32 bytes, mode 0600, create-only, the same each time", () => {
    createSecret(dir, "payer");
    expect(mode(join(dir, "payer.secret"))).toBe("600");
    const secret = loadSecret(dir, "payer");
    expect(secret).toHaveLength(32);
    expect(() => createSecret(dir, "payer")).toThrow(/not overwritten/);
    expect(loadSecret(dir, "payer").equals(secret)).toBe(true);
    expect(readdirSync(dir)).toEqual(["payer.secret"]);
  });

  it("a missing, open, short or oddly named one is refused", () => {
    createSecret(dir, "payer");
    const path = join(dir, "payer.secret");
    expect(() => loadSecret(dir, "salt")).toThrow(/salt\.secret cannot be read \(ENOENT\)/);
    chmodSync(path, 0o640);
    expect(() => loadSecret(dir, "payer")).toThrow(/mode 0640.*chmod 600/);
    chmodSync(path, 0o600);
    writeFileSync(path, "short");
    expect(() => loadSecret(dir, "payer")).toThrow(/5 bytes instead of 32/);
    expect(() => loadSecret(dir, "../payer")).toThrow(/no name for a secret/);
  });
});

it("signerOf refuses public keys and other curves", () => {
  const { publicKey } = generateKeyPairSync("ed25519");
  expect(() => signerOf(publicKey, "log")).toThrow(TypeError);
  expect(() => signerOf(generateKeyPairSync("x25519").privateKey, "log")).toThrow(/x25519/);
});
