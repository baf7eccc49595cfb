import { type ArchiveManifest, archiveFileKey, dayOfManifest } from "../../pipelines/record/archive.ts";
import type { ArchiveLeaf } from "../../pipelines/record/leaf.ts";
import type { ArchiveSubject } from "../../pipelines/record/vocabulary.ts";

/**
 * Every manifest of the archive, in the order of the log, which is the order in which the files were made. It only grows,
 * and says nothing that the tree does not say for good, so views share it; each looks at the leaves below its own size.
 */
export class ArchiveFiles {
  readonly #leaves: ArchiveLeaf[] = [];
  readonly #byId = new Map<string, ArchiveLeaf>();
  readonly #sha256 = new Map<string, string>();

  /** The next leaf; one that is there already adds nothing. */
  add(leaf: ArchiveLeaf): void {
    const { manifest } = leaf;
    if (this.#byId.has(manifest.id)) return;
    this.#leaves.push(leaf);
    this.#byId.set(manifest.id, leaf);
    const key = archiveFileKey(manifest.subject, dayOfManifest(manifest), manifest.content_hash);
    this.#sha256.set(key, leaf.sha256);
  }

  /** Manifests below a size of the tree, oldest first; of one subject where one is named. */
  manifests(size: number, subject?: ArchiveSubject): ArchiveManifest[] {
    const below = this.#leaves.filter(({ index }) => index < size).map(({ manifest }) => manifest);
    return subject === undefined ? below : below.filter((manifest) => manifest.subject === subject);
  }

  of(id: string): ArchiveManifest | undefined {
    return this.#byId.get(id)?.manifest;
  }

  /** sha256 (hex) of the bytes under a key of the archive, as the log names them. */
  sha256Of(key: string): string | undefined {
    return this.#sha256.get(key);
  }
}
