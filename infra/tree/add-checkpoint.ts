import { HASH_BYTES } from "./hash.ts";
import { BadNote, MAX_NOTE_BYTES } from "./note.ts";

/** A request to a witness's `add-checkpoint` (c2sp.org/tlog-witness), which a log sends. */
export interface AddCheckpoint {
  /** Tree size of the checkpoint that the witness cosigned last; 0 when it has cosigned none. */
  old: number;
  /** Consistency proof from `old` to the checkpoint (RFC 6962, section 2.1.2). */
  proof: readonly Uint8Array[];
  /** The checkpoint to cosign: a signed note. */
  checkpoint: Uint8Array;
}

/** Content type of a 409 answer, whose body is the tree size that the witness holds. */
export const SIZE_CONTENT_TYPE = "text/x.tlog.size";

/** Largest number of hashes in a proof, since a tree has fewer than 2^63 leaves. */
const MAX_PROOF_HASHES = 63;

/** Longest request that is read, in bytes. */
export const MAX_REQUEST_BYTES = MAX_NOTE_BYTES + 32 + MAX_PROOF_HASHES * 45;

/** Returns the body of a request. */
export function formatAddCheckpoint({ old, proof, checkpoint }: AddCheckpoint): Buffer {
  const lines = proof.map((hash) => `${Buffer.from(hash).toString("base64")}\n`);
  return Buffer.concat([Buffer.from(`old ${old}\n${lines.join("")}\n`), checkpoint]);
}

/** Parses the body of a request; does not verify the checkpoint in it. @throws BadNote */
export function parseAddCheckpoint(body: Uint8Array): AddCheckpoint {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const blankLineAt = bytes.indexOf("\n\n");
  if (blankLineAt < 0) throw new BadNote("a request without an empty line");
  const [first, ...hashes] = bytes.subarray(0, blankLineAt).toString("latin1").split("\n");
  const size = /^old (0|[1-9]\d{0,15})$/.exec(first!)?.[1];
  if (size === undefined || !Number.isSafeInteger(Number(size))) throw new BadNote("not a line of the old size");
  if (hashes.length > MAX_PROOF_HASHES) throw new BadNote(`a proof of more than ${MAX_PROOF_HASHES} hashes`);
  const proof = hashes.map((line) => {
    const hash = Buffer.from(line, "base64");
    if (hash.length !== HASH_BYTES || hash.toString("base64") !== line) throw new BadNote("not a hash of a proof");
    return hash;
  });
  return { old: Number(size), proof, checkpoint: bytes.subarray(blankLineAt + 2) };
}
