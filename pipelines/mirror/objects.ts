import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { parseJson, SourceDown, Unproven } from "../published/errors.ts";
import {
  archiveFileOf,
  checkCallBytes,
  fetchCall,
  fetchFile,
  fetchNamed,
  type NamedCall,
  type NamedFile,
  type NamedObject,
  publishedCallsOf,
  readFile,
} from "../published/files.ts";
import { fetchShard, parseIndexList, type ShardLine, unpackShard } from "../published/index-lines.ts";
import { type KeyChain, verifyKeysDocument, verifySignature } from "../published/keys.ts";
import { callKey, kindOfKey, type ObjectKind, shardKey } from "../published/objects.ts";
import type { PartFolder } from "../published/sink.ts";
import type { Source } from "../published/source.ts";
import { archiveManifestKey } from "../record/archive.ts";
import type { ArchiveLeaf, IndexLeaf, KeysLeaf } from "../record/leaf.ts";
import type { CopyCounts, ExposedStore } from "./copy.ts";

/**
 * Copies objects that leaves name, and objects that these name in turn. Each is checked by hash and size, then by its
 * content, and only then written to the folder that the mirror exposes.
 */
export class NamedObjectCopier {
  constructor(
    private readonly source: Source,
    private readonly exposed: ExposedStore,
    private readonly counts: CopyCounts,
    private readonly partFolder: PartFolder | null = null,
  ) {}

  /** Returns a copier that adopts objects in the mirror. For any other object it throws SourceDown with this reason. */
  withoutSource(reason: string): NamedObjectCopier {
    const { name } = this.source;
    const get = async (key: string) => Promise.reject(new SourceDown(name, key, reason));
    return new NamedObjectCopier({ name, get, close: async () => undefined }, this.exposed, this.counts);
  }

  /** Copies the next keys document. @throws Unproven when it does not continue the chain */
  async copyKeys(leaf: KeysLeaf, previousChain: KeyChain | null): Promise<KeyChain> {
    const bytes = await this.#readNamed(leaf, "keys");
    const chain = verifyKeysDocument(leaf, bytes, previousChain);
    await this.exposed.put(leaf.key, bytes);
    return chain;
  }

  /** Copies the signed list of an index's shards. @returns the shards that the list names */
  async copyIndexList(leaf: IndexLeaf, jwks: Jwks | null): Promise<ShardLine[]> {
    const bytes = await this.#readNamed(leaf, "indexList");
    const list = parseIndexList(leaf.key, parseJson(bytes));
    if (list.tree_size !== leaf.tree_size) {
      throw new Unproven(leaf.key, `tree_size ${leaf.tree_size}`, String(list.tree_size));
    }
    verifySignature(leaf.key, jwks, list, list.computed_at);
    await this.exposed.put(leaf.key, bytes);
    return list.shards;
  }

  /** Copies the Parquet file of an index. */
  async copyTable({ index, table }: IndexLeaf): Promise<void> {
    if (table) await this.exposed.put(table.key, await this.#readNamed({ ...table, index }, "indexTable"));
  }

  /**
   * Copies a file of the evidence.
   * @returns the published bought calls that its lines name; their bytes are further objects
   */
  async copyEvidence(file: NamedFile): Promise<NamedCall[]> {
    const calls = new Map<string, NamedCall>();
    await this.copyFile(file, (line) => {
      for (const call of publishedCallsOf(line)) calls.set(call.sha256, call);
    });
    return [...calls.values()];
  }

  /** Copies a file of lines (evidence or archive) after checking the hashes of its packed and unpacked bytes. */
  async copyFile(file: NamedFile, onLine?: (line: Buffer) => void): Promise<void> {
    const stored = await this.exposed.readStored(file.key);
    const isAdopted = stored !== null && sha256hex(stored) === file.sha256;
    const bytes = isAdopted ? stored : await fetchFile(this.source, file, this.partFolder);
    await readFile(bytes, file, onLine);
    if (isAdopted) this.exposed.adopt(file.key);
    else await this.exposed.put(file.key, bytes);
    this.counts[isAdopted ? "adopted" : "fetched"]++;
  }

  /** Copies a file of the archive, and writes its manifest, which the leaf contains. */
  async copyArchive(leaf: ArchiveLeaf): Promise<void> {
    await this.copyFile(archiveFileOf(leaf));
    await this.exposed.put(archiveManifestKey(leaf.manifest.id), canonicalBytes(leaf.manifest));
  }

  /**
   * Copies one shard after checking hash, length and lines of its unpacked bytes. The zstd frame is stored as the
   * source sent it.
   */
  async copyShard(line: ShardLine): Promise<void> {
    const key = shardKey(line.sha256);
    await this.#copyPacked(
      key,
      (stored) => unpackShard(stored, line),
      async () => {
        const packed = await fetchShard(this.source, line);
        await unpackShard(packed, line);
        return packed;
      },
    );
  }

  /** Copies the request or answer of a published call after checking hash and length of its unpacked bytes. */
  copyCall(call: NamedCall): Promise<void> {
    return this.#copyPacked(
      callKey(call.sha256),
      (stored) => checkCallBytes(stored, call),
      () => fetchCall(this.source, call),
    );
  }

  /** Deletes an object in the mirror that does not match, when the source has no matching one. */
  deleteObject(key: string): Promise<void> {
    return this.exposed.deleteObject(key);
  }

  /**
   * Copies an object whose key contains the hash of its unpacked bytes.
   * @param check throws Unproven for bytes that are not of this object
   */
  async #copyPacked(
    key: string,
    check: (packed: Uint8Array) => Promise<unknown>,
    fetch: () => Promise<Uint8Array>,
  ): Promise<void> {
    const stored = await this.exposed.readStored(key);
    const isAdopted = stored !== null && (await isProven(() => check(stored)));
    if (isAdopted) this.exposed.adopt(key);
    else await this.exposed.put(key, await fetch());
    this.counts[isAdopted ? "adopted" : "fetched"]++;
  }

  /**
   * Reads an object that a leaf names: the stored bytes if they match, else those of the source.
   * @throws MissingObject, Unproven, Oversized
   */
  async #readNamed(leaf: NamedObject, kind: ObjectKind): Promise<Uint8Array> {
    const stored = kindOfKey(leaf.key) === kind ? await this.exposed.readStored(leaf.key) : null;
    if (stored && sha256hex(stored) === leaf.sha256) {
      this.counts.adopted++;
      return stored;
    }
    const bytes = await fetchNamed(this.source, leaf, kind);
    this.counts.fetched++;
    return bytes;
  }
}

async function isProven(check: () => Promise<unknown>): Promise<boolean> {
  try {
    await check();
    return true;
  } catch (error) {
    if (error instanceof Unproven) return false;
    throw error;
  }
}
