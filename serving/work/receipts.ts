import type { Clock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Holder } from "../../infra/shares.ts";
import { TILE_WIDTH } from "../../infra/tree/path.ts";
import { inclusionProof } from "../../infra/tree/proof.ts";
import type { Snapshot } from "../../pipelines/published/reader.ts";
import { createReceiptRecord } from "../../pipelines/record/commitment.ts";
import { sealEnvelope } from "../../pipelines/record/envelope.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { Problem } from "../http/problem.ts";
import type { EvidenceAnswer, ReceiptProof } from "../schemas/evidence.ts";
import type { EvidenceBodies } from "./evidence-bodies.ts";

/** Name by which the records of receipts name this program in the log. */
const PRODUCER = "serving";
/** Time within which answers promise a receipt in the Merkle tree, ms: twice the 60 s of docs/design/publication.md. */
const PROVEN_WITHIN_MS = 120_000;
/** Largest body that an answer includes as base64, bytes. A larger one is only stored. */
const MAX_INLINE_BYTES = 2 ** 20;

export interface ReceiptsDeps {
  log: Pick<Log, "append" | "partitions">;
  bodies: EvidenceBodies;
  clock: Pick<Clock, "now">;
  baseUrl: string;
}

/**
 * Stores the bodies of signed receipts and records the receipts' hashes. This process never writes the Merkle tree: it
 * appends a hash to the log of records, and the publisher (another process) adds it to the tree as a leaf at its next
 * run.
 */
export class Receipts {
  constructor(private readonly deps: ReceiptsDeps) {}

  /**
   * Refuses work while the store of bodies is full, or the buyer's share of it; called before anything is fetched.
   * @throws Problem unavailable
   */
  refuseWhenFull(buyer?: Holder): void {
    this.deps.bodies.refuseWhenFull(buyer);
  }

  /** Stores a body durably. @returns the member `body` of an answer @throws Problem unavailable */
  async keep(body: Uint8Array, buyer?: Holder): Promise<EvidenceAnswer["body"]> {
    if (body.length === 0) return { base64: "", href: null, kept_until: null };
    const { id, until } = await this.deps.bodies.keep(body, buyer);
    return {
      base64: body.length <= MAX_INLINE_BYTES ? Buffer.from(body).toString("base64") : null,
      href: `${this.deps.baseUrl}/v1/web/evidence/bodies/${id}`,
      kept_until: until,
    };
  }

  /**
   * Appends the hash of a receipt to the log, durably.
   * @returns the member `proof` of an answer
   * @throws Problem log_unavailable if the hash may be missing in the log; if it is in the log nevertheless, it does no
   * harm
   */
  async recordHash(sha256: string): Promise<EvidenceAnswer["proof"]> {
    const { log, clock, baseUrl } = this.deps;
    const now = clock.now();
    const record = sealEnvelope(createReceiptRecord(sha256, now, PRODUCER), log.partitions);
    await log.append([record]).catch(() => {
      throw new Problem("log_unavailable", "the receipt cannot be written to the log now; nothing is charged", {
        headers: { "retry-after": "5" },
      });
    });
    const provenBy = rfc3339(new Date(now.getTime() + PROVEN_WITHIN_MS));
    return { href: `${baseUrl}/v1/web/evidence/receipts/${sha256}`, by: provenBy };
  }

  /** Returns a stored body; null when there is none with this id or its time is over. @throws Problem unavailable */
  readBody(id: string): Promise<Buffer | null> {
    return this.deps.bodies.read(id);
  }
}

/**
 * Returns the proof that the Merkle tree of a checkpoint (its signed size and root hash) contains the leaf at `index`.
 * @throws MissingObject, Tampered when a published object is missing or does not match the checkpoint
 */
export async function proofOfLeaf(index: number, { head, reader }: Snapshot): Promise<ReceiptProof> {
  const n = Math.floor(index / TILE_WIDTH);
  const leaf = (await reader.entries(n))[index - n * TILE_WIDTH]!;
  const path = await inclusionProof(index, head.size, reader.tiles.node);
  return {
    schema: "svc.evidence.proof.v1",
    leaf: leaf.toString("utf8"),
    index,
    tree_size: head.size,
    path: path.map((hash) => Buffer.from(hash).toString("hex")),
    checkpoint: head.bytes.toString("utf8"),
  };
}
