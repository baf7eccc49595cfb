import { readFileSync } from "node:fs";
import * as noble from "@noble/ed25519";
import { describe, expect, it } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import type { VerifyFault } from "../../../infra/keys/examine.ts";
import { fromBase64url, type PublicJwk, toBase64url } from "../../../infra/keys/jwk.ts";
import * as portable from "../../../infra/keys/portable.ts";
import { signObject, signTextSoon, thumbprint } from "../../../infra/keys/signer.ts";
import { verifyBytes, verifyObject, verifySoon } from "../../../infra/keys/verify.ts";
import { fc } from "../../helpers/histories.ts";
import { AT, FROM, jwkOf, jwksOf, RFC8037_SEED, signerOfSeed, UNTIL } from "./fixed.ts";

const cards = signerOfSeed(RFC8037_SEED, "cards");
const answers = signerOfSeed(new Uint8Array(32).fill(7), "answers");
const jwks = jwksOf(jwkOf(cards, { retired_at: UNTIL }), jwkOf(answers));
const card = {
  schema: "svc.scorecard.v2",
  capability_id: "cap_0123456789ABCDEFGHJKMNPQRS",
  band: "B",
  composite: 0.8125,
  components: { liveness: { point: 1, lower: 0.9, upper: null, n_eff: 41.5, method: "wilson" } },
  flags: ["naïve", "\u{1f600}", 'quote " and \\'],
  computed_at: AT,
};

/** Both verifiers must say the same; their common answer. */
async function verdictOf(
  object: unknown,
  at: string = AT,
  keys = jwks,
  purpose: "cards" | "answers" | "log" = "cards",
) {
  const verdict = verifyObject(keys, object, { purpose, at });
  expect(await portable.verifyObject(keys, object, { purpose, at })).toEqual(verdict);
  return verdict.ok ? "ok" : verdict.reason;
}

describe("golden", () => {
  it("a signed card is byte for byte the one in the file", () => {
    const golden = readFileSync(new URL("./signed.golden.json", import.meta.url), "utf8");
    expect(canonicalText(signObject(cards, card))).toBe(golden);
  });

  it("thumbprint is that of RFC 8037 appendix A.3, with and without Node", async () => {
    expect(cards.kid).toBe("kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    expect(thumbprint(cards.publicKey)).toBe(cards.kid);
    expect(await portable.thumbprint(jwkOf(cards).x)).toBe(cards.kid);
  });

  it("signature of RFC 8032 section 7.1, test 1 (the empty message)", () => {
    expect(Buffer.from(cards.sign(new Uint8Array())).toString("hex")).toBe(
      "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    );
  });
});

describe("signObject", () => {
  it("signs its two members too and leaves the rest alone", () => {
    const signed = signObject(cards, card);
    const { signature, ...rest } = signed;
    expect(rest).toEqual({ ...card, signing_key_id: cards.kid, canonicalization: "RFC8785" });
    expect(signature).toMatch(/^[A-Za-z0-9_-]{86}$/);
    expect(verifyBytes(cards.publicKey, Buffer.from(canonicalText(rest)), Buffer.from(signature, "base64url"))).toBe(
      true,
    );
  });

  it.each(["signing_key_id", "canonicalization", "signature"])("refuses an object that has a %s", (member) => {
    expect(() => signObject(cards, { ...card, [member]: null })).toThrow(new RegExp(`has a ${member}`));
  });

  it.each([2 ** 53, -(2 ** 53), 2 ** 53 + 2])("refuses the integer %d, at once and on the pool", (n) => {
    expect(() => signObject(cards, { n })).toThrow(/integer past 2\^53 - 1 .* at \/n/);
    expect(() => signTextSoon(cards, { deep: [{ n }] })).toThrow(/integer past 2\^53 - 1 .* at \/deep\/0\/n/);
    expect(() => signObject(cards, { n: Math.sign(n) * (2 ** 53 - 1) })).not.toThrow();
  });
});

describe("verdicts, the same from node:crypto and from noble", () => {
  const good = signObject(cards, card);
  const small = Buffer.alloc(32);
  small[0] = 1;
  const wrongKid = { ...jwkOf(cards), kid: "another" };
  // L + S: the same equation, another text; RFC 8032 wants S < L.
  const bytes = fromBase64url(good.signature)!;
  const s = Buffer.from(bytes.subarray(32)).reverse();
  const L = 2n ** 252n + 27742317777372353535851937790883648493n;
  const high = Buffer.from((BigInt(`0x${s.toString("hex")}`) + L).toString(16).padStart(64, "0"), "hex").reverse();
  const malleated = { ...good, signature: toBase64url(Buffer.concat([bytes.subarray(0, 32), high])) };

  it.each<[string, unknown, string, VerifyFault | "ok"]>([
    ["good", good, AT, "ok"],
    ["from the first instant", good, FROM, "ok"],
    ["a millisecond before", good, "2026-10-31T23:59:59.999Z", "not_yet_valid"],
    ["the last millisecond", good, "2026-11-30T23:59:59.999Z", "ok"],
    ["at the instant of retirement", good, UNTIL, "retired"],
    ["no time", good, "yesterday", "malformed"],
    ["null", null, AT, "malformed"],
    ["an array", [good], AT, "malformed"],
    ["a text", "card", AT, "malformed"],
    ["no signature", card, AT, "malformed"],
    ["signature null", { ...good, signature: null }, AT, "malformed"],
    ["signature padded", { ...good, signature: `${good.signature}==` }, AT, "malformed"],
    ["signature in plain base64", { ...good, signature: `+${good.signature.slice(1)}` }, AT, "malformed"],
    ["signature too short", { ...good, signature: good.signature.slice(0, 84) }, AT, "malformed"],
    ["signature's spare bits set", { ...good, signature: `${good.signature.slice(0, 85)}B` }, AT, "malformed"],
    ["key id missing", { ...good, signing_key_id: undefined }, AT, "malformed"],
    ["key id unknown", { ...good, signing_key_id: "nobody" }, AT, "unknown_key"],
    ["key of another purpose", signObject(answers, card), AT, "wrong_purpose"],
    ["another canonicalization", { ...good, canonicalization: "none" }, AT, "canonicalization"],
    ["canonicalization missing", { ...good, canonicalization: undefined }, AT, "canonicalization"],
    ["an integer past 2^53 - 1", { ...good, composite: 2 ** 53 }, AT, "canonicalization"],
    ["a lone surrogate", { ...good, band: "\ud800" }, AT, "canonicalization"],
    ["S not below L", malleated, AT, "bad_signature"],
    ["all zero", { ...good, signature: toBase64url(new Uint8Array(64)) }, AT, "bad_signature"],
  ])("%s", async (_, object, at, verdict) => expect(await verdictOf(object, at)).toBe(verdict));

  it.each<[string, PublicJwk, VerifyFault]>([
    ["id is not the thumbprint", wrongKid, "unknown_key"],
    ["x is no base64url", { ...jwkOf(cards), x: "=" }, "bad_key"],
    ["x is another key", { ...jwkOf(answers), kid: cards.kid, purpose: "cards" }, "bad_key"],
    ["another curve", { ...jwkOf(cards), crv: "Ed448" as "Ed25519" }, "bad_key"],
    ["valid_from is no time", { ...jwkOf(cards), valid_from: "soon" }, "bad_key"],
  ])("published key: %s", async (_, key, verdict) => expect(await verdictOf(good, AT, jwksOf(key))).toBe(verdict));

  it("a published key of small order", async () => {
    const x = toBase64url(small);
    const key = { ...jwkOf(cards), x, kid: thumbprint(x) };
    expect(await verdictOf({ ...good, signing_key_id: key.kid }, AT, jwksOf(key))).toBe("bad_key");
  });

  it.each([null, {}, { keys: null }, { keys: [null, 1, {}] }])("a document that is none: %j", async (document) => {
    expect(await verdictOf(good, AT, document as never)).toBe("unknown_key");
  });

  it("a key that serves two purposes in the document is found under each", async () => {
    const both = jwksOf(jwkOf(cards), { ...jwkOf(cards), purpose: "log" });
    expect(await verdictOf(good, AT, both, "log")).toBe("ok");
  });
});

describe("public keys that verifiers treat differently", () => {
  const p = 2n ** 255n - 19n;
  const little = (n: bigint, sign = 0): Uint8Array => {
    const bytes = Buffer.from(n.toString(16).padStart(64, "0"), "hex").reverse();
    bytes[31]! |= sign;
    return new Uint8Array(bytes);
  };
  const order8 = noble.Point.fromHex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a");
  const multiples = Array.from({ length: 8 }, (_, i) => order8.multiply(BigInt(i + 1)));
  const mixed = multiples.slice(0, 7).map((t) => noble.Point.BASE.multiply(12345n).add(t));

  const FOULED: [name: string, key: Uint8Array][] = [
    ...multiples.map((point, i): [string, Uint8Array] => [`small order, ${i + 1} T`, point.toBytes()]),
    ...mixed.map((point, i): [string, Uint8Array] => [`prime order plus ${i + 1} T`, point.toBytes()]),
    ["y = p, a second writing of 0", little(p)],
    ["y = p + 1, a second writing of 1", little(p + 1n)],
    ["y = p + 18", little(p + 18n)],
    ["x = 0 with the sign set", little(1n, 0x80)],
    ["no point of the curve", little(2n)],
    ["all ones", new Uint8Array(32).fill(255)],
    ["31 bytes", new Uint8Array(31)],
  ];
  // R = identity, S = 0 verifies under small-order keys wherever nobody looks.
  const forged = new Uint8Array(64);
  forged[0] = 1;
  const forgeries = (key: Uint8Array) =>
    Array.from({ length: 8 }, (_, n) => ({ publicKey: key, bytes: Uint8Array.of(n), signature: forged }));

  it.each(FOULED)("refused by both: %s", async (_, key) => {
    for (const { bytes } of forgeries(key)) {
      expect(verifyBytes(key, bytes, forged)).toBe(false);
      expect(await portable.verifyBytes(key, bytes, forged)).toBe(false);
    }
  });

  it("an R with torsion, made by the key's own holder, is refused by both", async () => {
    // Signature over R' = R + T with S for R': right times the cofactor, wrong as it stands.
    const a = 987654321n;
    const r = 55555n;
    const A = noble.Point.BASE.multiply(a).toBytes();
    const R = noble.Point.BASE.multiply(r).add(order8).toBytes();
    const message = Buffer.from("m");
    const digest = await crypto.subtle.digest("SHA-512", Buffer.concat([R, A, message]));
    const k = BigInt(`0x${Buffer.from(digest).reverse().toString("hex")}`);
    const L = noble.Point.CURVE().n;
    const signature = Buffer.concat([R, little((r + k * a) % L)]);
    expect(await noble.verifyAsync(signature, message, A, { zip215: false })).toBe(true);
    expect(verifyBytes(A, message, signature)).toBe(false);
    expect(await portable.verifyBytes(A, message, signature)).toBe(false);
  });

  it("refused by whoever verifies many at once too, beside signatures that hold", async () => {
    const bytes = Buffer.from("honest");
    const honest = { publicKey: cards.publicKey, bytes, signature: cards.sign(bytes) };
    const jobs = [honest, ...FOULED.flatMap(([, key]) => forgeries(key)), honest];
    const good = await Promise.all(jobs.map((job) => verifySoon(job.publicKey, job.bytes, job.signature)));
    expect(good).toEqual(jobs.map((job) => job === honest));
    expect(await verifySoon(cards.publicKey.subarray(1), bytes, honest.signature)).toBe(false);
    expect(await verifySoon(cards.publicKey, bytes, honest.signature.subarray(1))).toBe(false);
  });
});

describe("properties", () => {
  const seed = fc.uint8Array({ minLength: 32, maxLength: 32 });

  it("node and noble sign the same bytes and believe each other", async () => {
    await fc.assert(
      fc.asyncProperty(seed, fc.uint8Array({ maxLength: 300 }), async (secret, message) => {
        const signer = signerOfSeed(secret, "log");
        const signature = signer.sign(message);
        expect(Buffer.from(await noble.signAsync(message, secret)).equals(signature)).toBe(true);
        expect(verifyBytes(signer.publicKey, message, signature)).toBe(true);
        expect(await portable.verifyBytes(signer.publicKey, message, signature)).toBe(true);
      }),
      { numRuns: 25 },
    );
  });

  it("a changed, added or missing field at any depth fails, and so does any flipped bit of the signature", async () => {
    const value = fc.jsonValue({ maxDepth: 3 });
    const safe = (_: string, v: unknown) => (Number.isInteger(v) && !Number.isSafeInteger(v) ? String(v) : v);
    await fc.assert(
      fc.asyncProperty(
        fc.dictionary(fc.string(), value, { maxKeys: 6 }),
        fc.nat(511),
        fc.nat(),
        async (body, bit, at) => {
          const fields = Object.fromEntries(Object.entries(body).map(([key, item]) => [`f_${key}`, item]));
          const signed = signObject(cards, JSON.parse(JSON.stringify(fields), safe));
          expect(await verdictOf(signed)).toBe("ok");
          // The order of members is no part of the meaning.
          expect(await verdictOf(Object.fromEntries(Object.entries(signed).reverse()))).toBe("ok");
          const names = Object.keys(fields);
          const victim = names[at % names.length];
          const changed: Record<string, unknown>[] = [{ ...signed, extra: null }];
          if (victim !== undefined) {
            const { [victim]: old, ...without } = signed as Record<string, unknown>;
            changed.push(without, { ...signed, [victim]: [old] }, { ...without, [`${victim}x`]: old });
          }
          for (const tampered of changed) expect(await verdictOf(tampered)).toBe("bad_signature");
          const flipped = fromBase64url(signed.signature)!;
          flipped[bit >> 3]! ^= 1 << (bit & 7);
          expect(await verdictOf({ ...signed, signature: toBase64url(flipped) })).toBe("bad_signature");
        },
      ),
      { numRuns: 15 },
    );
  });

  it("base64url has one text for one byte string", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), fc.string({ maxLength: 8 }), (bytes, text) => {
        expect(toBase64url(bytes)).toBe(Buffer.from(bytes).toString("base64url"));
        expect(fromBase64url(toBase64url(bytes))).toEqual(bytes);
        const read = fromBase64url(text);
        if (read) expect(toBase64url(read)).toBe(text);
      }),
    );
  });

  it("the portable verifier and all it imports of ours are free of Node", () => {
    const seen = new Set<string>();
    const visit = (url: URL): void => {
      if (seen.has(url.href)) return;
      seen.add(url.href);
      const source = readFileSync(url, "utf8");
      for (const [, name] of source.matchAll(/from "([^"]+)"/g)) {
        if (name!.startsWith(".")) visit(new URL(name!, url));
        else expect(["@noble/ed25519", "canonicalize"]).toContain(name);
      }
      expect(source).not.toMatch(/\bBuffer\.|\bprocess\./);
    };
    visit(new URL("../../../infra/keys/portable.ts", import.meta.url));
    expect(seen.size).toBe(4);
  });
});
