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

/** Steps of the job, in order. Tests make it fail at each. */
export type ArchiveStep = "made" | "packed" | "put" | "read back" | "counted" | "signed" | "manifest put" | "published";

export interface FilingParts {
  publicStore: Store;
  /** Signs manifests. */
  cards: Signer;
  /** The published keys, which verify a manifest that is in the store already. */
  jwks: () => Promise<Jwks | null>;
  /** Base address of the served files, without a trailing slash. */
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

/** A file without rows. A day without rows gets one too, so that a missing day is noticed as kept back. */
export const emptyFile = (lake: Pick<Lake, "workDir">): Promise<MadeFile> => madeFile(lake, new ZstdPacking(true), 0);

/**
 * Puts one made file into the store, reads it back as any reader gets it, compares its text and lines with what was
 * made, and signs a manifest for it. The caller removes the made file.
 * @returns the leaf
 * @throws Unproven, PublicConflict and what the store throws: then nothing is published and no row is removed
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

/** The signed manifest: ours, or one that a writer which died has left. @throws PublicConflict */
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
  // A manifest in the store is adopted if it describes this file; its time of reading back and its address may differ.
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
