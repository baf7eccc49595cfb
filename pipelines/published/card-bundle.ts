import { z } from "zod";
import { type Jwks, PURPOSES } from "../../infra/keys/jwk.ts";
import { leafHash } from "../../infra/tree/hash.ts";
import { TILE_WIDTH } from "../../infra/tree/path.ts";
import { inclusionProof, verifyInclusion } from "../../infra/tree/proof.ts";
import { GradeLeaf } from "../record/leaf.ts";
import { parseJson, Unproven } from "./errors.ts";
import { verifyCardSignature } from "./keys.ts";
import { CHECKPOINT, KEYS_HINT, keysKey } from "./objects.ts";
import type { Snapshot } from "./reader.ts";
import type { Source } from "./source.ts";

/** Schema name of a card bundle. */
export const BUNDLE_SCHEMA = "svc.card.bundle.v1";

const Jwk = z.object({
  ...{ kty: z.literal("OKP"), crv: z.literal("Ed25519"), x: z.string(), kid: z.string(), use: z.literal("sig") },
  alg: z.enum(["EdDSA", "Ed25519"]),
  purpose: z.enum(PURPOSES),
  ...{ valid_from: z.string(), retired_at: z.string().optional() },
});

/**
 * One published card with everything that proves it offline (docs/card-bundle.md): the leaf of the log that holds the
 * card, its inclusion proof (RFC 9162 section 2.1.3), the checkpoint with its cosignatures (c2sp.org/tlog-checkpoint),
 * and the published keys.
 */
export const CardBundle = z.strictObject({
  schema: z.literal(BUNDLE_SCHEMA),
  capability_id: z.string(),
  index: z.int().nonnegative().describe("Position of the leaf in the log."),
  leaf: z.string().describe("RFC 8785 text of the leaf, whose member `card` is the signed card."),
  proof: z
    .array(z.string().regex(/^[A-Za-z0-9+/]{43}=$/))
    .max(64)
    .describe("Hashes of the inclusion proof, base64, from the leaf up."),
  checkpoint: z.string().describe("Signed note with the size and root of the tree, and its cosignatures."),
  keys: z.object({ keys: z.array(Jwk).max(1024) }).describe("The keys document, retired keys included."),
});
export type CardBundle = z.infer<typeof CardBundle>;

/** Reads the text of a leaf, proven under the snapshot's root. @throws MissingObject, Tampered */
export async function readLeafText({ reader }: Snapshot, index: number): Promise<string> {
  const n = Math.floor(index / TILE_WIDTH);
  return (await reader.entries(n))[index - n * TILE_WIDTH]!.toString("utf8");
}

/**
 * Makes the bundle of a grade leaf.
 * @param leaf RFC 8785 text of the leaf at `index`
 * @throws MissingObject, Tampered
 */
export async function makeCardBundle(
  { head, reader }: Snapshot,
  { index, leaf, capability_id }: Pick<CardBundle, "index" | "leaf" | "capability_id">,
  keys: Jwks,
): Promise<CardBundle> {
  const proof = await inclusionProof(index, reader.size, reader.tiles.node);
  return {
    ...{ schema: BUNDLE_SCHEMA, capability_id, index, leaf },
    proof: proof.map((hash) => Buffer.from(hash).toString("base64")),
    checkpoint: head.bytes.toString("utf8"),
    keys,
  };
}

/** Makes a source that holds a bundle's checkpoint and keys document, for `openSourceTreeHead`. */
export function sourceOf(name: string, { checkpoint, keys }: CardBundle): Source {
  const objects: Record<string, string> = {
    [CHECKPOINT]: checkpoint,
    [KEYS_HINT]: JSON.stringify({ key: keysKey(0) }),
    [keysKey(0)]: JSON.stringify(keys),
  };
  return {
    name,
    get: async (key) => (Object.hasOwn(objects, key) ? Buffer.from(objects[key]!) : null),
    close: async () => undefined,
  };
}

/**
 * Proves a bundle against its checkpoint: the leaf is in the tree, it is a grade of this endpoint, and its card was
 * signed by a cards key of the bundle that was valid when the card was computed.
 * @param head the bundle's checkpoint, whose signatures the caller has verified
 * @returns the proven leaf
 * @throws Unproven, which names the first part that is wrong
 */
export function proveCardBundle(bundle: CardBundle, head: { size: number; root: Buffer }): GradeLeaf {
  const { index, leaf: text, proof, capability_id } = bundle;
  const hashes = proof.map((hash) => Buffer.from(hash, "base64"));
  if (!verifyInclusion(index, head.size, leafHash(Buffer.from(text)), hashes, head.root)) {
    throw new Unproven("proof", `leaf ${index} of the tree of ${head.size} leaves in the checkpoint`, "another root");
  }
  const { data: leaf } = GradeLeaf.safeParse(parseJson(Buffer.from(text)));
  if (leaf?.card.capability_id !== capability_id) {
    throw new Unproven(
      "leaf",
      `a grade of ${capability_id}`,
      leaf ? `one of ${leaf.card.capability_id}` : "another leaf",
    );
  }
  verifyCardSignature(leaf, bundle.keys);
  return leaf;
}
