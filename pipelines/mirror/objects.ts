import { z } from "zod";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import { linesIn } from "../../infra/lines-in.mjs";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { KeysDocument } from "../4-publish/keys.ts";
import { kindOfKey, type ObjectKind, shardKey } from "../4-publish/objects.ts";
import { archiveManifestKey } from "../record/archive.ts";
import type { ArchiveLeaf, Leaf } from "../record/leaf.ts";
import { archiveFileOf } from "./archive.ts";
import type { Exposed, Tally } from "./copy.ts";
import { Unproven } from "./errors.ts";
import { fetchEvidence, type NamedFile, readEvidence, refuseOtherFile } from "./evidence.ts";
import { MAX, packedBound } from "./limits.ts";
import type { SegmentThreads } from "./segment-threads.ts";
import type { PartFolder } from "./sink.ts";
import type { Source } from "./source.ts";
import { parseJson } from "./state.ts";
import { BadFrame, unpackFrame } from "./unpack.ts";

export const ShardLine = z.looseObject({
  sha256: Sha256Hex,
  lines: z.int().min(0),
  bytes: z.int().min(0).max(MAX.named),
});
export type ShardLine = z.infer<typeof ShardLine>;

export const IndexList = z.looseObject({ tree_size: z.int(), computed_at: z.string(), shards: z.array(ShardLine) });

/** The keys that vouch at a place of the log, and the hash of their document, which the next one names. */
export interface KeyChain {
  jwks: Jwks;
  sha256: string;
}

export type KeysLeaf = Extract<Leaf, { kind: "keys" }>;
export type IndexLeaf = Extract<Leaf, { kind: "index" }>;
type NamingLeaf = Pick<KeysLeaf, "index" | "key" | "sha256" | "bytes">;

/** Packed bytes that are unpacked where they are before threads are begun for more, and the most that is copied to one. */
const FEW_BYTES = 1024 * 1024;
const MAX_COPIED = 32 * 1024 * 1024;

/** Copies what leaves name: hash and size first, then what the object itself says, and only then is it exposed. */
export class NamedObjects {
  #unpacked = 0;

  /** @param threads unpack and hash where there is much of it; without them it is done here */
  constructor(
    private readonly source: Source,
    private readonly exposed: Exposed,
    private readonly tally: Tally,
    private readonly parts: PartFolder | null = null,
    private readonly threads: SegmentThreads | null = null,
  ) {}

  /** The threads, if these bytes are for them. */
  #threadsFor(packed: Uint8Array): SegmentThreads | null {
    this.#unpacked += packed.length;
    return this.#unpacked > FEW_BYTES && packed.length <= MAX_COPIED ? this.threads : null;
  }

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
    const bytes = adopted ? held : await fetchEvidence(this.source, file, this.parts);
    const threads = this.#threadsFor(bytes);
    if (threads) refuseOtherFile(await threads.frame(bytes, file.unpacked_bytes), file);
    else await readEvidence(bytes, file);
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
    if (held && (await this.#otherShard(held, line)) === null) {
      this.exposed.adopt(key);
      this.tally.adopted++;
      return;
    }
    const packed = await this.source.get(key, packedBound(line.bytes));
    if (!packed) throw new MissingObject(key);
    const other = await this.#otherShard(packed, line);
    if (other !== null) throw new Unproven(key, `${line.bytes} bytes in ${line.lines} lines of that hash`, other);
    await this.exposed.put(key, packed);
    this.tally.fetched++;
  }

  /** What a shard holds instead of what its list says, or null where it holds that. */
  async #otherShard(packed: Uint8Array, line: ShardLine): Promise<string | null> {
    const threads = this.#threadsFor(packed);
    const shard = threads ? await threads.frame(packed, line.bytes) : await shardOf(packed, line);
    if ("got" in shard) return shard.got;
    if ("text" in shard) return null;
    const { size, lines, sha256 } = shard;
    const same = sha256 === line.sha256 && size === line.bytes && lines === line.lines;
    return same ? null : `${size} bytes in ${lines} lines of ${sha256}`;
  }

  /** Bytes of what a leaf names, from here if an earlier run left them. @throws MissingObject, Unproven, Oversized */
  async #named(leaf: NamingLeaf, kind: ObjectKind): Promise<Uint8Array> {
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

/** Bytes of what a leaf names, by length and hash. @throws MissingObject, Unproven, Oversized, SourceDown */
export async function fetchNamed(source: Source, leaf: NamingLeaf, kind: ObjectKind): Promise<Uint8Array> {
  const { key } = leaf;
  if (kindOfKey(key) !== kind) throw new Unproven(`leaf ${leaf.index}`, `a key of ${kind}`, JSON.stringify(key));
  if (!(leaf.bytes >= 0 && leaf.bytes <= MAX.named)) {
    throw new Unproven(`leaf ${leaf.index}`, `at most ${MAX.named} bytes`, String(leaf.bytes));
  }
  const bytes = await source.get(key, leaf.bytes);
  if (!bytes) throw new MissingObject(key);
  const got = sha256hex(bytes);
  if (got === leaf.sha256 && bytes.length === leaf.bytes) return bytes;
  throw new Unproven(key, `${leaf.sha256} of ${leaf.bytes} bytes`, `${got} of ${bytes.length}`);
}

/** A keys document names the one before it and is signed by a key of it; the first one by its own. @throws Unproven */
export function chainOf(leaf: KeysLeaf, bytes: Uint8Array, before: KeyChain | null): KeyChain {
  const { data: document } = KeysDocument.safeParse(parseJson(bytes));
  if (!document) throw new Unproven(leaf.key, "a keys document", "something else");
  if (document.n !== leaf.n || document.previous !== (before?.sha256 ?? null)) {
    const want = `document ${leaf.n} after ${before?.sha256 ?? "none"}`;
    throw new Unproven(leaf.key, want, `${document.n} after ${document.previous ?? "none"}`);
  }
  const own = { keys: document.keys as unknown as Jwks["keys"] };
  refuseUnsigned(leaf.key, before?.jwks ?? own, document, document.computed_at);
  return { jwks: own, sha256: leaf.sha256 };
}

/** @throws Unproven unless a cards key that was valid at `at` signed the object. */
export function refuseUnsigned(what: string, jwks: Jwks | null, object: unknown, at: string): void {
  const verdict = jwks && verifyObject(jwks, object, { purpose: "cards", at });
  if (!verdict?.ok) throw new Unproven(what, `a signature valid at ${at}`, verdict?.reason ?? "no keys before it");
}

export async function shardOf(packed: Uint8Array, line: ShardLine): Promise<{ text: Buffer } | { got: string }> {
  let text: Buffer;
  try {
    text = await unpackFrame(packed, line.bytes);
  } catch (error) {
    if (error instanceof BadFrame) return { got: error.message };
    throw error;
  }
  const got = sha256hex(text);
  const lines = linesIn(text);
  if (got === line.sha256 && text.length === line.bytes && lines === line.lines) return { text };
  return { got: `${text.length} bytes in ${lines} lines of ${got}` };
}
