import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { Unproven } from "../published/errors.ts";
import {
  archiveFileOf,
  fetchFile,
  fetchNamed,
  type NamedFile,
  type NamedObject,
  readFile,
} from "../published/files.ts";
import { chainOf, type KeyChain, refuseUnsigned } from "../published/keys.ts";
import { kindOfKey, type ObjectKind, shardKey } from "../published/objects.ts";
import { parseJson } from "../published/parse.ts";
import { fetchShard, IndexList, type ShardLine, unpackShard } from "../published/shards.ts";
import type { PartFolder } from "../published/sink.ts";
import type { Source } from "../published/source.ts";
import { archiveManifestKey } from "../record/archive.ts";
import type { ArchiveLeaf, IndexLeaf, KeysLeaf } from "../record/leaf.ts";
import type { Exposed, Tally } from "./copy.ts";

/** Copies what leaves name: hash and size first, then what the object itself says, and only then is it exposed. */
export class NamedObjects {
  constructor(
    private readonly source: Source,
    private readonly exposed: Exposed,
    private readonly tally: Tally,
    private readonly parts: PartFolder | null = null,
  ) {}

  /** The next keys document. @throws Unproven when it does not continue the chain */
  async keys(leaf: KeysLeaf, before: KeyChain | null): Promise<KeyChain> {
    const bytes = await this.#named(leaf, "keys");
    const chain = chainOf(leaf, bytes, before);
    await this.exposed.put(leaf.key, bytes);
    return chain;
  }

  /** A signed list of shards. @returns the shards that it names */
  async index(leaf: IndexLeaf, jwks: Jwks | null): Promise<ShardLine[]> {
    const bytes = await this.#named(leaf, "indexList");
    const { data: list } = IndexList.safeParse(parseJson(bytes));
    if (!list) throw new Unproven(leaf.key, "a list of shards", "something else");
    if (list.tree_size !== leaf.tree_size) {
      throw new Unproven(leaf.key, `tree_size ${leaf.tree_size}`, String(list.tree_size));
    }
    refuseUnsigned(leaf.key, jwks, list, list.computed_at);
    await this.exposed.put(leaf.key, bytes);
    return list.shards;
  }

  /** A file of lines, evidence or archive, as its leaf names it packed and unpacked. */
  async file(file: NamedFile): Promise<void> {
    const held = await this.exposed.held(file.key);
    const adopted = held !== null && sha256hex(held) === file.sha256;
    const bytes = adopted ? held : await fetchFile(this.source, file, this.parts);
    await readFile(bytes, file);
    if (adopted) this.exposed.adopt(file.key);
    else await this.exposed.put(file.key, bytes);
    this.tally[adopted ? "adopted" : "fetched"]++;
  }

  /** A file of the archive, and its manifest, which the leaf carries whole: nobody has to be asked for that. */
  async archive(leaf: ArchiveLeaf): Promise<void> {
    await this.file(archiveFileOf(leaf));
    await this.exposed.put(archiveManifestKey(leaf.manifest.id), canonicalBytes(leaf.manifest));
  }

  /** One shard, by the hash, length and lines of its unpacked bytes; handed on as it came, one frame, as segments are. */
  async shard(line: ShardLine): Promise<void> {
    const key = shardKey(line.sha256);
    const held = await this.exposed.held(key);
    if (held && (await this.#isShard(held, line))) {
      this.exposed.adopt(key);
      this.tally.adopted++;
      return;
    }
    const packed = await fetchShard(this.source, line);
    await unpackShard(packed, line);
    await this.exposed.put(key, packed);
    this.tally.fetched++;
  }

  async #isShard(held: Uint8Array, line: ShardLine): Promise<boolean> {
    try {
      await unpackShard(held, line);
      return true;
    } catch (error) {
      if (error instanceof Unproven) return false;
      throw error;
    }
  }

  /** Bytes of what a leaf names, from here if an earlier run left them. @throws MissingObject, Unproven, Oversized */
  async #named(leaf: NamedObject, kind: ObjectKind): Promise<Uint8Array> {
    const held = kindOfKey(leaf.key) === kind ? await this.exposed.held(leaf.key) : null;
    if (held && sha256hex(held) === leaf.sha256) {
      this.tally.adopted++;
      return held;
    }
    const bytes = await fetchNamed(this.source, leaf, kind);
    this.tally.fetched++;
    return bytes;
  }
}
