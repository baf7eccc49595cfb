import { readFile } from "node:fs/promises";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { type Signer, signObject } from "../../infra/keys/signer.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import { ZstdPacking } from "../../infra/zstd.ts";
import type { ArchiveDraft } from "../4-publish/filings.ts";
import { PublicConflict, putPacked } from "../4-publish/writes.ts";
import { parseJson } from "../published/errors.ts";
import { headersOf } from "../published/objects.ts";
import { ArchiveManifest, archiveFileKey, archiveManifestKey, formatOf, reproduceOf } from "../record/archive.ts";
import { archiveId } from "../record/ids.ts";
import { addDays, rfc3339 } from "../record/time.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { type MadeFile, madeFile, readBack } from "./read-back.ts";

/** Boundaries of the job, in order: a test lets it fail at each. */
export type ArchiveStep = "made" | "packed" | "put" | "read back" | "counted" | "signed" | "manifest put" | "published";

export interface FilingParts {
  publicStore: Store;
  /** Signs manifests. */
  cards: Signer;
  /** Published keys: who may have signed a manifest that is there already. */
  jwks: () => Promise<Jwks | null>;
  /** Address that files are served at, without a trailing slash. */
  baseUrl: string;
  now: () => Date;
  onStep?: (step: ArchiveStep, subject: ArchiveSubject | null, day: string | null) => void | Promise<void>;
}

export interface What {
  subject: ArchiveSubject;
  day: string;
  supersedes: string | null;
  reason: string | null;
  positions: ArchiveDraft["positions"];
}

/** A file of no row: a day that is missing would be one that was kept back. */
export const emptyFile = (lake: Pick<Lake, "workDir">): Promise<MadeFile> => madeFile(lake, new ZstdPacking(true), 0);

/**
 * Put one made file, read it back as any reader gets it, hold its text and lines against what was made, and sign for it.
 * @returns the leaf; the made file is the caller's to remove
 * @throws ArchiveUnproven, PublicConflict and what the store throws: nothing is published then and no row is gone
 */
export async function fileOne(parts: FilingParts, made: MadeFile, what: What): Promise<ArchiveDraft> {
  const { publicStore, onStep = () => undefined } = parts;
  const { subject, day } = what;
  const step = (name: ArchiveStep) => onStep(name, subject, day);
  const { rows, contentHash, unpackedBytes } = made;
  const bytes = await readFile(made.path);
  await step("packed");
  const key = archiveFileKey(subject, day, contentHash);
  await putPacked(publicStore, key, bytes);
  await step("put");
  const expected = { key, contentHash, unpackedBytes, rows };
  const packed = await readBack(publicStore, expected, () => step("read back"));
  await step("counted");
  const manifest = await manifestOf(parts, what, { key, rows, contentHash, bytes: packed.length });
  await step("manifest put");
  const { supersedes, reason, positions } = what;
  return {
    ...{ kind: "archive", manifest, sha256: sha256hex(packed), unpacked_bytes: unpackedBytes },
    ...{ supersedes, reason, positions },
  };
}

/** The signed manifest: ours, or the one that a writer who died left there. @throws PublicConflict */
async function manifestOf(
  { cards, publicStore, jwks, baseUrl, now, onStep }: FilingParts,
  { subject, day, supersedes }: What,
  file: { key: string; rows: number; contentHash: string; bytes: number },
): Promise<ArchiveManifest> {
  const url = `${baseUrl}/${file.key}`;
  const id = archiveId(subject, day, file.contentHash);
  const unsigned = {
    ...{ schema: "svc.archive.v1" as const, id, subject },
    ...{ from: `${day}T00:00:00.000Z`, to: `${addDays(day, 1)}T00:00:00.000Z` },
    ...{ rows: file.rows, content_hash: file.contentHash, bytes: file.bytes, verified_at: rfc3339(now()) },
    ...{ format: formatOf(subject, supersedes), file: url, reproduce: reproduceOf(url) },
  };
  const ours = signObject(cards, unsigned);
  await onStep?.("signed", subject, day);
  const key = archiveManifestKey(id);
  const bytes = canonicalBytes(ours, { published: true });
  await publicStore.create(key, bytes, headersOf(key));
  const there = await publicStore.get(key);
  if (there && bytes.equals(there.bytes)) return ours;
  const { data: theirs } = ArchiveManifest.safeParse(there && parseJson(there.bytes));
  // Adopted when it says the same of the same file: when it was read back, and by which address, may differ.
  const { verified_at: _, file: __, reproduce: ___, ...same } = unsigned;
  const agrees =
    theirs?.file.endsWith(`/${file.key}`) &&
    theirs.reproduce === reproduceOf(theirs.file) &&
    Object.entries(same).every(([name, value]) => theirs[name as keyof typeof same] === value);
  const keys = await jwks();
  const signed = theirs && keys && verifyObject(keys, theirs, { purpose: "cards", at: theirs.verified_at }).ok;
  if (!agrees || !signed) throw new PublicConflict(key);
  return theirs;
}
