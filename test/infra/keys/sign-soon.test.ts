import { expect, it } from "vitest";
import { signObject, signObjectSoon } from "../../../infra/keys/sign.ts";
import { RFC8037_SEED, signerOfSeed } from "./fixed.ts";

const signer = signerOfSeed(RFC8037_SEED, "cards");

it("signatures of the pool are those of the caller's own thread, however many are under way", async () => {
  const objects = Array.from({ length: 500 }, (_, i) => ({ n: i, text: "x".repeat(i) }));
  const soon = await Promise.all(objects.map((object) => signObjectSoon(signer, object)));
  expect(soon).toEqual(objects.map((object) => signObject(signer, object)));
});

it("an object is signed as it was when it was handed in", async () => {
  const object: { n: number } = { n: 1 };
  const signing = signObjectSoon(signer, object);
  object.n = 2;
  expect(await signing).toEqual(signObject(signer, { n: 1 }));
});

it("what cannot be signed is refused at once", () => {
  expect(() => signObjectSoon(signer, { signature: "there is one" })).toThrow(TypeError);
  expect(() => signObjectSoon(signer, { n: Number.NaN })).toThrow(TypeError);
});
