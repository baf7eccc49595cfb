import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import { RecordReader } from "../published/reader.ts";
import { objectsOf, type Source } from "../published/source.ts";
import { Check, type Finding } from "./findings.ts";

/** Another copy of the record, and its checkpoint, verified under the same keys. */
export interface Copy {
  source: Source;
  head: Checkpoint;
}

/** Two signed heads that no one log can have: whoever holds the log key has shown two histories. */
export interface ForkSeen {
  says: string;
  ours: string;
  theirs: string;
}

/**
 * Do these copies show one history? The smaller tree must be the beginning of the larger one, by a consistency proof
 * (RFC 6962) from the larger one's tiles.
 */
export async function auditCopies(
  own: Copy,
  others: readonly Copy[],
): Promise<{ finding: Finding; forks: ForkSeen[] }> {
  const check = new Check("other copies");
  const forks: ForkSeen[] = [];
  for (const other of others) {
    await check.look(async () => {
      const [small, large] = own.head.size <= other.head.size ? [own, other] : [other, own];
      if (await begins(small.head, large)) return;
      const says = `${small.source.name} (${small.head.size} leaves) is not the beginning of ${large.source.name} (${large.head.size})`;
      forks.push({ says, ours: own.head.bytes.toString("utf8"), theirs: other.head.bytes.toString("utf8") });
      check.bad({ key: other.source.name, expected: "one history", got: says });
    });
  }
  return { finding: check.finding, forks };
}

async function begins(small: Checkpoint, { source, head }: Copy): Promise<boolean> {
  if (small.size === head.size) return sameHash(small.root, head.root);
  return (await RecordReader.over(objectsOf(source), head)).extends(small);
}
