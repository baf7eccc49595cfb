import { compress } from "zstd-napi";
import { sha256hex } from "../../infra/canonical.ts";
import { type Signer, signObject } from "../../infra/keys/signer.ts";
import type { ArchiveDraft } from "../../pipelines/4-publish/filings.ts";
import { archiveFileKey, manifestFormat, reproduceCommand } from "../../pipelines/record/archive.ts";
import { archiveId } from "../../pipelines/record/ids.ts";
import { addDays } from "../../pipelines/record/time.ts";
import { ARCHIVE_SUBJECTS, type ArchiveSubject } from "../../pipelines/record/vocabulary.ts";

/** The leaf of a file of the archive with this text, and the packed file; neither is put anywhere. */
export function archiveDraft(cards: Signer, subject: ArchiveSubject, day: string, text: string) {
  const [packed, content_hash] = [compress(Buffer.from(text)), sha256hex(text)];
  const key = archiveFileKey(subject, day, content_hash);
  const file = `https://touchstone.test/${key}`;
  const manifest = signObject(cards, {
    ...{ schema: "svc.archive.v1" as const, id: archiveId(subject, day, content_hash), subject },
    ...{ from: `${day}T00:00:00.000Z`, to: `${addDays(day, 1)}T00:00:00.000Z`, content_hash },
    ...{ rows: text.split("\n").length - 1, bytes: packed.length, verified_at: "2026-11-21T11:00:00.000Z" },
    ...{ format: manifestFormat(subject, null), file, reproduce: reproduceCommand(file) },
  });
  const none = { supersedes: null, reason: null, positions: {} };
  const draft: ArchiveDraft = {
    ...{ kind: "archive", manifest, sha256: sha256hex(packed), unpacked_bytes: Buffer.byteLength(text), ...none },
  };
  return { draft, key, packed };
}

/** The four files of a day on which only these probes were observed. */
export const archiveDay = (cards: Signer, day: string, probes: string) =>
  ARCHIVE_SUBJECTS.map((subject) => archiveDraft(cards, subject, day, subject === "liveness_probes" ? probes : ""));

const DAY = "2026-07-01";
/** Of a day without a probe. */
export const EMPTY_DAY_ID = archiveId("liveness_probes", DAY, sha256hex(""));

/** The leaf of a day without a probe; its file is not put anywhere. */
export const emptyDayDraft = (cards: Signer): ArchiveDraft => archiveDraft(cards, "liveness_probes", DAY, "").draft;
