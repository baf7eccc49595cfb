import { expect, test } from "vitest";
import { canonicalBytes, sha256hex } from "../../../infra/canonical.ts";
import { type Signer, signObject } from "../../../infra/keys/signer.ts";
import { type CardProof, type Outcome, proveCard } from "../../../serving/prove/steps.ts";
import { NOW } from "../../helpers/public-record.ts";
import { AT, jwkOf, signerOfSeed } from "../../infra/keys/fixed.ts";

/** What the step `keys` says of two keys documents: the second retires the first cards key at {@link AT}. */
const [OLD, NEW] = [3, 4].map((seed) => signerOfSeed(Buffer.alloc(32, seed), "cards")) as [Signer, Signer];
const RETIRED = [jwkOf(OLD, { retired_at: AT }), jwkOf(NEW, { valid_from: AT })];

function document(n: number, previous: Uint8Array | null, signer: Signer, computed_at: string, keys: object[]) {
  const members = { schema: "svc.keys.v1", n, previous: previous && sha256hex(previous), computed_at, keys };
  return canonicalBytes(signObject(signer, members), { published: true });
}

async function keysStep(third: (second: Uint8Array) => Uint8Array): Promise<[Outcome, string]> {
  const first = document(0, null, OLD, "2026-11-02T00:00:00.000Z", [jwkOf(OLD)]);
  const second = document(1, first, OLD, AT, RETIRED);
  const objects = new Map([
    ["hint/keys.json", Buffer.from('{"key":"keys/2.json"}')],
    ...[first, second, third(second)].map((bytes, n) => [`keys/${n}.json`, bytes] as const),
  ] as [string, Uint8Array][]);
  let said: [Outcome, string] | null = null;
  const bundle = { capability_id: "x", index: 0, leaf: "", proof: [], checkpoint: "", keys: { keys: [jwkOf(NEW)] } };
  const proof: CardProof = { capability_id: "x", bundle, graded: null, evidence: [] };
  await proveCard(proof, {
    ...{ cap: "x", policy: null, maxAge_s: 86_400, now_ms: Date.parse(NOW), shown: null },
    ...{ get: async (key) => objects.get(key) ?? null, seenOf: () => null },
    tell: (step, outcome, says) => {
      if (step === "keys") said = [outcome, says];
    },
  });
  return said!;
}

test("a third document of the key in use is shown, also with the date of the second", async () => {
  const third = (second: Uint8Array) => document(2, second, NEW, AT, RETIRED);
  expect(await keysStep(third)).toEqual(["shown", expect.stringContaining("3 keys documents")]);
});

test("a third document that the retired key signed is refused, whatever its date", async () => {
  const signedAt = (at: string) => (second: Uint8Array) => document(2, second, OLD, at, RETIRED);
  expect(await keysStep(signedAt(AT))).toEqual(["failed", expect.stringContaining("retired")]);
  const before = "2026-11-15T11:59:59.999Z";
  expect(await keysStep(signedAt(before))).toEqual(["failed", "keys/2.json is dated before the document before it"]);
});
