import { createPrivateKey } from "node:crypto";
import { signerOf } from "../../infra/keys/signer.ts";
import { formatAddCheckpoint } from "../../infra/tree/add-checkpoint.ts";
import { bodyOf } from "../../infra/tree/checkpoint.ts";
import { ED25519, type NoteSigner, signatureLine } from "../../infra/tree/note.ts";
import { naiveConsistency, naiveLeaf, naiveRoot } from "../infra/tree/naive.ts";

/** A key that is always the same for its seed. */
export function noteSigner(name: string, seed: number): NoteSigner {
  const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, seed)]);
  const { publicKey, sign } = signerOf(createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" }), "witness");
  return { name, publicKey, sign };
}

/** A log in memory that may tell two histories: leaves from `forkAt` on are other ones in the fork. */
export class SmallLog {
  constructor(readonly key: NoteSigner) {}

  leaves(size: number, fork = "", forkAt = 0): Buffer[] {
    return Array.from({ length: size }, (_, i) => naiveLeaf(Buffer.from(`${i >= forkAt ? fork : ""}${i}`)));
  }

  /** A signed checkpoint. */
  note(size: number, leaves = this.leaves(size), key = this.key, origin = this.key.name): Buffer {
    const text = bodyOf({ origin, size, root: naiveRoot(leaves) });
    return Buffer.from(`${text}\n${signatureLine(key, ED25519, key.sign(Buffer.from(text)))}`);
  }

  /** The body of add-checkpoint from `old` to `size`. */
  request(old: number, size: number, fork = "", forkAt = 0): Buffer {
    const leaves = this.leaves(size, fork, forkAt);
    const proof = old > 0 && old < size ? naiveConsistency(old, leaves) : [];
    return formatAddCheckpoint({ old, proof, checkpoint: this.note(size, leaves) });
  }
}
