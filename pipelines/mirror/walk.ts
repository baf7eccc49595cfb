import { sha256hex } from "../../infra/canonical.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import type { Store } from "../../infra/store/store.ts";
import { unpackBundle } from "../../infra/tree/bundle.ts";
import { leafHash, sameHash } from "../../infra/tree/hash.ts";
import { entriesPath, TILE_WIDTH, tilePath } from "../../infra/tree/path.ts";
import { type Tile, TreeState } from "../../infra/tree/state.ts";
import { MissingObject, Tampered } from "../../infra/tree/tiles.ts";
import { KeysDocument } from "../4-publish/keys.ts";
import { fetchFrom } from "../4-publish/read.ts";
import { EvidenceLeaf, type Leaf } from "../record/leaf.ts";
import { expose } from "./copy.ts";
import { Unproven } from "./errors.ts";
import { type IndexLeaf, type KeyChain, type NamedObjects, refuseUnsigned } from "./objects.ts";
import { type Newest, parseJson, type Trusted } from "./state.ts";

/** An index leaf and the keys that vouch at its place. */
export interface IndexAt {
  leaf: IndexLeaf;
  jwks: Jwks | null;
}

/**
 * Reads the copied bundles in order: hashes leaves into tiles, follows the chain of keys documents, verifies every card
 * under the keys of its place, and gathers the index and evidence leaves. Memory is one bundle and the right edge of the tree.
 */
export class Walk {
  readonly indexes: IndexAt[] = [];
  readonly evidence: EvidenceLeaf[] = [];
  readonly newest: Newest;
  /** The newest partial tile of each level; written at the end, since most are completed on the way. */
  readonly #partial = new Map<number, Tile>();

  private constructor(
    private readonly store: Store,
    private readonly objects: NamedObjects,
    private tree: TreeState,
    private chain: KeyChain | null,
    newest: Newest,
  ) {
    this.newest = { ...newest };
  }

  /** From what was proven before, or from the first leaf: also when our own tiles are damaged, which heals them. */
  static async from(store: Store, objects: NamedObjects, trusted: Trusted | null): Promise<Walk> {
    const nothing = () => new Walk(store, objects, TreeState.empty, null, { keys: null, index: null });
    if (!trusted) return nothing();
    try {
      const { head, keys, index } = trusted;
      const tree = await TreeState.load(head.size, Buffer.from(head.root, "hex"), fetchFrom(store));
      return new Walk(store, objects, tree, keys && (await ownChain(store, keys)), { keys, index });
    } catch (error) {
      if (error instanceof MissingObject || error instanceof Tampered) return nothing();
      throw error;
    }
  }

  /** Leaves read so far. */
  get size(): number {
    return this.tree.size;
  }

  /** @throws Unproven, Tampered when the leaves do not make this tree, what objects and store throw */
  async to(head: { size: number; root: Buffer }, onBundle: (size: number) => void): Promise<void> {
    while (this.tree.size < head.size) {
      const n = Math.floor(this.tree.size / TILE_WIDTH);
      const width = Math.min(TILE_WIDTH, head.size - n * TILE_WIDTH);
      const key = entriesPath(n, width);
      const bundle = await this.store.get(key);
      if (!bundle) throw new MissingObject(key);
      const entries = (await unpackBundle(bundle.bytes, width)).slice(this.tree.size - n * TILE_WIDTH);
      for (const [i, entry] of entries.entries()) await this.#leaf(this.tree.size + i, entry);
      await this.#append(entries);
      onBundle(this.tree.size);
    }
    const got = this.tree.root();
    if (!sameHash(got, head.root)) {
      throw new Tampered(`tree of ${head.size} leaves`, head.root.toString("hex"), got.toString("hex"));
    }
    for (const tile of this.#partial.values()) await this.#write(tile);
  }

  async #append(entries: readonly Buffer[]): Promise<void> {
    const { state, tiles } = this.tree.append(entries.map(leafHash));
    for (const tile of tiles) {
      if (tile.width < TILE_WIDTH) {
        this.#partial.set(tile.level, tile);
        continue;
      }
      if (this.#partial.get(tile.level)?.n === tile.n) this.#partial.delete(tile.level);
      await this.#write(tile);
    }
    this.tree = state;
  }

  #write = ({ level, n, width, bytes }: Tile): Promise<void> => expose(this.store, tilePath(level, n, width), bytes);

  async #leaf(index: number, entry: Buffer): Promise<void> {
    const leaf = parseJson(entry) as Leaf | null | undefined;
    if (leaf?.index !== index)
      throw new Unproven(`leaf ${index}`, "JSON with its index", entry.toString("utf8", 0, 80));
    if (leaf.kind === "grade") {
      refuseUnsigned(`card of leaf ${index}`, this.chain?.jwks ?? null, leaf.card, String(leaf.card?.computed_at));
    } else if (leaf.kind === "keys") {
      this.chain = await this.objects.keys(leaf, this.chain);
      this.newest.keys = { n: leaf.n, key: leaf.key, sha256: leaf.sha256, leaf: index };
    } else if (leaf.kind === "index") {
      this.indexes.push({ leaf, jwks: this.chain?.jwks ?? null });
      this.newest.index = { tree_size: leaf.tree_size, key: leaf.key, leaf: index };
    } else if (leaf.kind === "evidence") {
      const { data: evidence, error } = EvidenceLeaf.safeParse(leaf);
      if (!evidence) throw new Unproven(`leaf ${index}`, "an evidence leaf", error.issues[0]!.message);
      this.evidence.push(evidence);
    }
  }
}

/** Our own copy of the newest keys document. @throws MissingObject, Tampered */
async function ownChain(store: Store, { key, sha256 }: { key: string; sha256: string }): Promise<KeyChain> {
  const object = await store.get(key);
  if (!object) throw new MissingObject(key);
  const got = sha256hex(object.bytes);
  if (got !== sha256) throw new Tampered(key, sha256, got);
  const { keys } = KeysDocument.parse(parseJson(object.bytes));
  return { jwks: { keys: keys as unknown as Jwks["keys"] }, sha256 };
}
