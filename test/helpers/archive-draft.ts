import { compress } from "zstd-napi";
import { sha256hex } from "../../infra/canonical.ts";
import { type Signer, signObject } from "../../infra/keys/signer.ts";
import type { ArchiveDraft } from "../../pipelines/4-publish/filings.ts";
import { archiveFileKey, formatOf, reproduceOf } from "../../pipelines/record/archive.ts";
import { archiveId } from "../../pipelines/record/ids.ts";

const DAY = "2026-07-01";
const EMPTY = sha256hex("");
/** Of a day without a probe. */
export const EMPTY_DAY_ID = archiveId("liveness_probes", DAY, EMPTY);

/** The leaf of a day without a probe; its file is not put anywhere. */
export function emptyDayDraft(cards: Signer): ArchiveDraft {
  const packed = compress(Buffer.alloc(0));
  const file = `https://touchstone.test/${archiveFileKey("liveness_probes", DAY, EMPTY)}`;
  const manifest = signObject(cards, {
    ...{ schema: "svc.archive.v1" as const, id: EMPTY_DAY_ID, subject: "liveness_probes" as const },
    ...{ from: `${DAY}T00:00:00.000Z`, to: "2026-07-02T00:00:00.000Z", rows: 0, content_hash: EMPTY },
    ...{ bytes: packed.length, verified_at: "2026-11-21T11:00:00.000Z" },
    ...{ format: formatOf("liveness_probes", null), file, reproduce: reproduceOf(file) },
  });
  const none = { unpacked_bytes: 0, supersedes: null, reason: null, positions: {} };
  return { kind: "archive", manifest, sha256: sha256hex(packed), ...none };
}
