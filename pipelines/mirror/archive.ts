import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { Unproven } from "./errors.ts";
import type { NamedFile } from "./evidence.ts";
import { MAX } from "./limits.ts";

/** The file that an archive leaf names; its key follows from the manifest. @throws Unproven for one nobody would hold */
export function archiveFileOf({ index, manifest, sha256, unpacked_bytes }: ArchiveLeaf): NamedFile {
  const { subject, content_hash, bytes, rows } = manifest;
  if (bytes > MAX.named || unpacked_bytes > MAX.unpacked) {
    const got = `${bytes}, ${unpacked_bytes}`;
    throw new Unproven(`leaf ${index}`, `at most ${MAX.named} and ${MAX.unpacked} bytes`, got);
  }
  const key = archiveFileKey(subject, dayOfManifest(manifest), content_hash);
  return { key, sha256, bytes, unpacked_sha256: content_hash, unpacked_bytes, rows };
}
