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
import {
  ArchiveManifest,
  archiveFileKey,
  archiveManifestKey,
  manifestFormat,
  reproduceCommand,
} from "../record/archive.ts";
import { archiveId } from "../record/ids.ts";
import { addDays, rfc3339 } from "../record/time.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { type MadeFile, readBack, writeMadeFile } from "./read-back.ts";

/** Steps of the archive job, in order. Tests make the job fail at each step. */
export type ArchiveStep = "made" | "packed" | "put" | "read back" | "counted" | "signed" | "manifest put" | "published";

export interface FilingParts {
  publicStore: Store;
  /** Signs manifests. */
  cards: Signer;
  /** Reads the published keys, to verify a manifest that is already in the store. */
  jwks: () => Promise<Jwks | null>;
  /** Base address of the served files, without a trailing slash. */
  baseUrl: string;
  now: () => Date;
  onStep?: (step: ArchiveStep, subject: ArchiveSubject | null, day: string | null) => void | Promise<void>;
}

/** What a new archive file contains: the rows of one subject and UTC day below `positions`. */
export interface FileDescription {
  subject: ArchiveSubject;
  day: string;
  /** Id of the archive file that it replaces, and why it does; null if it replaces none. */
  supersedes: string | null;
  reason: string | null;
  positions: ArchiveDraft["positions"];
}

/** Makes a file without rows. A day without rows gets such a file, so that readers notice when a day is withheld. */
export const createEmptyFile = (lake: Pick<Lake, "workDir">): Promise<MadeFile> =>
  writeMadeFile(lake, new ZstdPacking(true), 0);

/**
 * Puts a file that was made on this machine into the public store, reads it back as any reader would, compares its
 * text and line count with the local file, and signs a manifest for it. The caller removes the local file.
 * @returns the archive leaf (log entry) to publish
 * @throws Unproven, PublicConflict and errors of the store; then nothing is published and no row is removed
 */
export async function storeMadeFile(
  parts: FilingParts,
  madeFile: MadeFile,
  description: FileDescription,
): Promise<ArchiveDraft> {
  const { publicStore, onStep = () => undefined } = parts;
  const { subject, day } = description;
  const reportStep = (name: ArchiveStep) => onStep(name, subject, day);
  const { rows, contentHash, unpackedBytes } = madeFile;
  const bytes = await readFile(madeFile.path);
  await reportStep("packed");
  const key = archiveFileKey(subject, day, contentHash);
  await putPacked(publicStore, key, bytes);
  await reportStep("put");
  const expected = { key, contentHash, unpackedBytes, rows };
  const packed = await readBack(publicStore, expected, () => reportStep("read back"));
  await reportStep("counted");
  const manifest = await putManifest(parts, description, { key, rows, contentHash, bytes: packed.length });
  await reportStep("manifest put");
  const { supersedes, reason, positions } = description;
  return {
    ...{ kind: "archive", manifest, sha256: sha256hex(packed), unpacked_bytes: unpackedBytes },
    ...{ supersedes, reason, positions },
  };
}

/**
 * Signs and stores the manifest. If the store already has one, left by a process that died, that one is returned
 * instead.
 * @throws PublicConflict when the stored manifest describes another file or is not signed with our keys
 */
async function putManifest(
  { cards, publicStore, jwks, baseUrl, now, onStep }: FilingParts,
  { subject, day, supersedes }: FileDescription,
  file: { key: string; rows: number; contentHash: string; bytes: number },
): Promise<ArchiveManifest> {
  const url = `${baseUrl}/${file.key}`;
  const id = archiveId(subject, day, file.contentHash);
  const unsigned = {
    ...{ schema: "svc.archive.v1" as const, id, subject },
    ...{ from: `${day}T00:00:00.000Z`, to: `${addDays(day, 1)}T00:00:00.000Z` },
    ...{ rows: file.rows, content_hash: file.contentHash, bytes: file.bytes, verified_at: rfc3339(now()) },
    ...{ format: manifestFormat(subject, supersedes), file: url, reproduce: reproduceCommand(url) },
  };
  const ownManifest = signObject(cards, unsigned);
  await onStep?.("signed", subject, day);
  const key = archiveManifestKey(id);
  const bytes = canonicalBytes(ownManifest, { published: true });
  await publicStore.create(key, bytes, headersOf(key));
  const stored = await publicStore.get(key);
  if (stored && bytes.equals(stored.bytes)) return ownManifest;
  const { data: storedManifest } = ArchiveManifest.safeParse(stored && parseJson(stored.bytes));
  // A manifest in the store is accepted if it describes this file. Only `verified_at` and the file's address may
  // differ.
  const { verified_at: _, file: __, reproduce: ___, ...fixedMembers } = unsigned;
  const isForThisFile =
    storedManifest?.file.endsWith(`/${file.key}`) &&
    storedManifest.reproduce === reproduceCommand(storedManifest.file) &&
    Object.entries(fixedMembers).every(([name, value]) => storedManifest[name as keyof typeof fixedMembers] === value);
  const keys = await jwks();
  const isSigned =
    storedManifest &&
    keys &&
    verifyObject(keys, storedManifest, { purpose: "cards", at: storedManifest.verified_at }).ok;
  if (!isForThisFile || !isSigned) throw new PublicConflict(key);
  return storedManifest;
}
