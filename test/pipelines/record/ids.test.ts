import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import {
  bucketOf,
  capId,
  crockford130,
  idOf,
  isId,
  partitionOf,
  plannedSlot,
  recordId,
} from "../../../pipelines/record/ids.ts";
import { fc } from "../../helpers/histories.ts";

/** Another way to the same text: the digest as one big number, cut in fives. */
function slowCrockford(digest: Buffer): string {
  let bits = BigInt(`0x${digest.toString("hex")}`) >> BigInt(256 - 130);
  let text = "";
  for (let i = 0; i < 26; i++) {
    text = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[Number(bits & 31n)] + text;
    bits >>= 5n;
  }
  return text;
}

test("130 bits, high bit first", () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 0, maxLength: 64 }), (data) => {
      const digest = createHash("sha256").update(data).digest();
      expect(crockford130(digest)).toBe(slowCrockford(digest));
    }),
  );
  expect(crockford130(Buffer.alloc(32))).toBe("0".repeat(26));
  expect(crockford130(Buffer.alloc(32, 255))).toBe("Z".repeat(26));
});

test("ids hash the canonical bytes of an array of strings", () => {
  const by = (json: string) => slowCrockford(createHash("sha256").update(json).digest());
  expect(idOf(["a", "b"])).toBe(by('["a","b"]'));
  expect(capId("GET", "https://e.example/")).toBe(`cap_${by('["1","GET","https://e.example/",""]')}`);
  expect(recordId("handshake", "cap_X", plannedSlot(81_000, 7))).toBe(
    `rec_${by('["handshake","cap_X","81000/7","0"]')}`,
  );
});

test("golden ids: these never change", () => {
  expect(capId("GET", "https://api.example.com/v1/sum?a=1&b=2")).toMatchInlineSnapshot(
    `"cap_VX6982BRZAY968W0VZZF5DNEEQ"`,
  );
  expect(recordId("paid.intent", "cap_00000000000000000000000000", "82000/300", 0)).toMatchInlineSnapshot(
    `"rec_NFVWHGK4S5DCSBDV3Y8F0T24PN"`,
  );
});

test("the shape of an id", () => {
  expect(isId("cap", capId("GET", "https://e.example/"))).toBe(true);
  expect(isId("rec", capId("GET", "https://e.example/"))).toBe(false);
  for (const bad of [
    "cap_",
    `cap_${"I".repeat(26)}`,
    `cap_${"0".repeat(25)}`,
    `cap_${"a".repeat(26)}`,
    `cap_${"0".repeat(27)}`,
  ]) {
    expect(isId("cap", bad)).toBe(false);
  }
});

test("more partitions split buckets, they never shuffle them", () => {
  fc.assert(
    fc.property(fc.string(), (key) => {
      expect(partitionOf(key, 64)).toBe(bucketOf(key));
      for (const p of [1, 2, 4, 8, 16, 32]) expect(partitionOf(key, p)).toBe(partitionOf(key, p * 2) >> 1);
    }),
  );
  for (const bad of [0, 3, 5, 128, 1.5]) expect(() => partitionOf("x", bad)).toThrow(RangeError);
});
