import { expect, it } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { signObject, signTextSoon } from "../../../infra/keys/signer.ts";
import { RFC8037_SEED, signerOfSeed } from "./fixed.ts";

const signer = signerOfSeed(RFC8037_SEED, "cards");

it("signatures of the pool are those of the caller's own thread, however many are under way", async () => {
  const objects = Array.from({ length: 500 }, (_, i) => ({ n: i, text: "x".repeat(i) }));
  const soon = await Promise.all(objects.map((object) => signTextSoon(signer, object)));
  const signed = objects.map((object) => signObject(signer, object));
  expect(soon).toEqual(signed.map((object) => ({ object, text: canonicalText(object) })));
});

it("an object is signed as it was when it was handed in", async () => {
  const object: { n: number } = { n: 1 };
  const signing = signTextSoon(signer, object);
  object.n = 2;
  const signed = signObject(signer, { n: 1 });
  expect(await signing).toEqual({ object: signed, text: canonicalText(signed) });
});

it("what cannot be signed is refused at once", () => {
  expect(() => signTextSoon(signer, { signature: "there is one" })).toThrow(TypeError);
  expect(() => signTextSoon(signer, { n: Number.NaN })).toThrow(TypeError);
});
