import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { NewRecord } from "../../infra/log/log.ts";
import { ZstdPacking } from "../../infra/zstd.ts";
import type { EvidenceDraft } from "../../pipelines/4-publish/filings.ts";
import { type Fact, linesOf } from "../../pipelines/5-archive/lines.ts";
import { evidenceKey } from "../../pipelines/published/objects.ts";
import type { Envelope } from "../../pipelines/record/envelope.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import type { PublicRecord } from "./public-record.ts";

interface Placed extends Fact {
  day: string;
}

/** Which call or record another one speaks of, as sql/evidence/records tells them. */
function aboutOf(type: string, eventId: string, body: Record<string, unknown>): string {
  if (type === "paid.result" || type === "settlement") return String(body.intent);
  return type === "paid.followup" ? String(body.of) : eventId;
}

function placed({ value, topic }: NewRecord, offset: number): Placed {
  const { type, event_id, cap, observed_at, body } = JSON.parse(Buffer.from(value).toString("utf8")) as Envelope;
  return {
    ...{ type, event_id, offset, topic, body, member: false, t: Date.parse(observed_at), cap: cap ?? "" },
    ...{ subjectId: aboutOf(type, event_id, body as Record<string, unknown>), day: observed_at.slice(0, 10) },
  };
}

/**
 * Publish the evidence of these records, which are one endpoint's in the order of its log: a file a UTC day, of the lines that
 * the archive makes of them.
 * @returns the leaves, oldest day first
 */
export async function publishEvidence(record: PublicRecord, records: readonly NewRecord[]): Promise<EvidenceDraft[]> {
  const facts = records.map(placed);
  const bucket = bucketOf(facts[0]!.cap);
  const drafts: EvidenceDraft[] = [];
  for (const day of [...new Set(facts.map((fact) => fact.day))].sort()) {
    const samples = new Set(facts.map(({ subjectId: of }) => of));
    const lines = [...samples].flatMap((of) =>
      linesOf(facts.filter((fact) => fact.subjectId === of).map((fact) => ({ ...fact, member: fact.day === day }))),
    );
    const packing = new ZstdPacking();
    await packing.add(Buffer.from(lines.map((line) => `${canonicalText(line)}\n`).join("")));
    const { packed, sha256, bytes } = await packing.end();
    const key = evidenceKey(day, bucket, sha256);
    await record.store.create(key, packed);
    drafts.push({
      ...{ kind: "evidence", day, freeze: 0, part: 1, parts: 1, holds: "rows", bucket, positions: {}, below: null },
      ...{ rows: lines.length, key, sha256: sha256hex(packed), bytes: packed.length },
      ...{ unpacked_sha256: sha256, unpacked_bytes: bytes },
    });
  }
  await record.publish(...drafts.map((draft) => [draft]));
  return drafts;
}
