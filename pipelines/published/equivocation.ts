import { z } from "zod";
import { Failure } from "../../infra/errors.ts";
import { openCheckpoint, parseBody, type TreeHead } from "../../infra/tree/checkpoint.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import { BadNote, ED25519, formatVkey, type NoteKey, parseNote } from "../../infra/tree/note.ts";
import { provenPrefix } from "../../infra/tree/proof.ts";
import { Unproven } from "./errors.ts";
import { parseVerifierKey } from "./trust.ts";

/** Value of the member `schema` of an equivocation file. */
export const EQUIVOCATION_SCHEMA = "svc.equivocation.v1";

/**
 * Two checkpoints of one log that cannot both be of one append-only tree, with everything that proves it offline
 * (docs/monitor.md).
 */
export const Equivocation = z.strictObject({
  schema: z.literal(EQUIVOCATION_SCHEMA),
  origin: z.string().max(1_000).describe("Name of the log, the first line of both checkpoints."),
  log_keys: z.array(z.string().max(2_000)).min(1).max(64).describe("Verifier keys of the log under which both verify."),
  smaller: z.string().describe("Signed note of the smaller tree, or of either where the sizes are equal."),
  larger: z.string().describe("Signed note of the larger tree."),
  proof: z
    .array(z.string().regex(/^[A-Za-z0-9+/]{43}=$/))
    .max(65)
    .describe(
      "Empty for equal sizes. Else nodes of the larger tree, base64, from which RFC 9162 section 2.1.4.2 computes its root and the root that its first leaves have.",
    ),
});
export type Equivocation = z.infer<typeof Equivocation>;

const noteText = (note: Uint8Array): string => Buffer.from(note).toString("utf8");

/**
 * Makes the equivocation file of two signed notes, that of the smaller tree first.
 * @param nodes as `prefixProof` (infra/tree/proof.ts) returns them; none if the sizes are equal
 */
export const makeEquivocation = (
  origin: string,
  keys: readonly NoteKey[],
  [smaller, larger]: readonly [Uint8Array, Uint8Array],
  nodes: readonly Uint8Array[],
): Equivocation => ({
  ...{ schema: EQUIVOCATION_SCHEMA, origin, log_keys: keys.map((key) => formatVkey(key, ED25519)) },
  ...{ smaller: noteText(smaller), larger: noteText(larger) },
  proof: nodes.map((hash) => Buffer.from(hash).toString("base64")),
});

/** What an equivocation file proves. */
export interface ProvenEquivocation {
  smaller: TreeHead;
  larger: TreeHead;
  /** Root of the first `smaller.size` leaves of the larger tree. With equal sizes this is the larger tree's root. */
  prefixRoot: Uint8Array;
}

/**
 * Proves an equivocation: the log's key signed both checkpoints, and their roots cannot be of one append-only tree.
 * The proof needs no cosignature, no clock and no network.
 * @param keys verifier keys of the log that the caller trusts. Without them the keys in the file are used; then the
 * result only shows that the holder of those keys has equivocated
 * @throws Unproven, which names the first part that is wrong; Failure `usage` for a malformed key
 */
export function proveEquivocation(file: Equivocation, keys?: readonly NoteKey[]): ProvenEquivocation {
  const { origin } = file;
  const trustedKeys = keys ?? file.log_keys.map((vkey) => parseVerifierKey(vkey, ED25519));
  const [log, ...logs] = trustedKeys.filter(({ name }) => name === origin);
  if (!log)
    throw new Unproven("log_keys", `a key of ${origin}`, trustedKeys.map(({ name }) => name).join(", ") || "none");
  const openNote = (member: "smaller" | "larger"): TreeHead => {
    try {
      return openCheckpoint(Buffer.from(file[member]), { log, logs });
    } catch (error) {
      if (error instanceof BadNote) throw new Unproven(member, `a checkpoint signed by ${origin}`, error.message);
      throw error;
    }
  };
  const [smaller, larger] = [openNote("smaller"), openNote("larger")];
  const nodes = file.proof.map((hash) => Buffer.from(hash, "base64"));
  return { smaller, larger, prefixRoot: proveContradiction(smaller, larger, nodes) };
}

/**
 * Checks that the two trees contradict each other.
 * @returns the root of the first `smaller.size` leaves of the larger tree, which differs from the smaller tree's root
 * @throws Unproven
 */
function proveContradiction(smaller: TreeHead, larger: TreeHead, nodes: readonly Uint8Array[]): Uint8Array {
  if (smaller.size > larger.size) throw new Unproven("smaller", `at most ${larger.size} leaves`, `${smaller.size}`);
  // Every tree begins with the empty tree, so a checkpoint without leaves contradicts no other.
  if (smaller.size === 0) throw new Unproven("smaller", "at least one leaf", "none");
  const isEqualSize = smaller.size === larger.size;
  if (isEqualSize && nodes.length > 0) throw new Unproven("proof", "no nodes for equal sizes", `${nodes.length}`);
  const prefix = isEqualSize ? larger.root : provenPrefix(smaller.size, larger.size, larger.root, nodes);
  if (!prefix) {
    throw new Unproven("proof", `nodes of the tree of ${larger.size} leaves in \`larger\``, "another root");
  }
  if (sameHash(prefix, smaller.root)) {
    throw new Unproven("proof", "two histories", "checkpoints of one history: the larger tree begins with the smaller");
  }
  return prefix;
}

/** Returns the size, root and origin in a note without verifying its signatures. @throws BadNote */
export const headOfNote = (note: Uint8Array): TreeHead => parseBody(parseNote(note).text);

/**
 * Checks that a value has the form of an equivocation file.
 * @throws Failure `unreadable` naming the first wrong member
 */
export function readEquivocation(value: unknown): Equivocation {
  const { data, error } = Equivocation.safeParse(value);
  if (data) return data;
  const [issue] = error.issues;
  throw new Failure("unreadable", `no equivocation: /${issue?.path.map(String).join("/")} ${issue?.message}`);
}
