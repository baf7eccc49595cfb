import type { Jwks } from "../../infra/keys/jwk.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import { TILE_WIDTH, tilePath } from "../../infra/tree/path.ts";
import { MissingObject, Tampered, type Tile, TreeState } from "../../infra/tree/tiles.ts";
import { parseJson, parseLeaf, Unproven } from "../published/errors.ts";
import { toNewestIndex } from "../published/fold.ts";
import { type CardSignatures, jwksOf, type KeyChain, readKeys } from "../published/keys.ts";
import { createObjectFetch, type ProvenBundle } from "../published/reader.ts";
import { ArchiveLeaf, EvidenceLeaf, IndexLeaf, type Leaf } from "../record/leaf.ts";
import type { ExposedStore } from "./copy.ts";
import type { WantedObject } from "./missing.ts";
import type { NamedObjects } from "./objects.ts";
import type { Newest, Part, Trusted } from "./state.ts";

/**
 * Reads the copied leaves in order: hashes them into tiles, follows the chain of keys documents, has the signature of
 * every card checked with the keys of its position, and collects the objects beside the tree that leaves name. In
 * memory are the right edge of the tree and the leaves that name objects.
 */
export class Walk {
  readonly wanted: WantedObject[] = [];
  /** The newest index, if it has a Parquet file. The files of older indexes are not copied. */
  #table: IndexLeaf | null = null;
  readonly newest: Newest;
  /** The newest partial tile of each level. They are written at the end, since most become full on the way. */
  readonly #partial = new Map<number, Tile>();

  private constructor(
    private readonly exposed: ExposedStore,
    private readonly objects: NamedObjects,
    private readonly cards: CardSignatures | null,
    private tree: TreeState,
    private chain: KeyChain | null,
    newest: Newest,
    private readonly only: Part | undefined,
  ) {
    this.newest = { ...newest };
  }

  /**
   * Starts after the leaves that were proven before, or at the first leaf. It also starts at the first leaf when our own
   * tiles are damaged, which writes them again.
   */
  static async from(
    exposed: ExposedStore,
    objects: NamedObjects,
    cards: CardSignatures | null,
    trusted: (Trusted & { newestIndex: Newest["index"] }) | null,
    only?: Part,
  ): Promise<Walk> {
    const nothing = () => new Walk(exposed, objects, cards, TreeState.empty, null, { keys: null, index: null }, only);
    if (!trusted) return nothing();
    try {
      const { head, keys, newestIndex: index } = trusted;
      const tree = await TreeState.load(head.size, Buffer.from(head.root, "hex"), createObjectFetch(exposed.store));
      const document = keys && (await readKeys(exposed.store, keys));
      if (keys && !document) return nothing();
      const chain = keys && document && { jwks: jwksOf(document), sha256: keys.sha256 };
      return new Walk(exposed, objects, cards, tree, chain, { keys, index }, only);
    } catch (error) {
      if (error instanceof MissingObject || error instanceof Tampered) return nothing();
      throw error;
    }
  }

  /** Number of leaves that were read. */
  get size(): number {
    return this.tree.size;
  }

  /** Reads the next leaves, which were proven. @param hashes the leaves' hashes @throws Unproven, what objects throw */
  async leaves(entries: readonly Buffer[], hashes: readonly Buffer[]): Promise<void> {
    for (const [i, entry] of entries.entries()) await this.#readLeaf(this.tree.size + i, entry);
    await this.#append(hashes);
  }

  /** Reads a proven bundle, except for leaves that were read before. @throws Unproven, what objects throw */
  bundle({ n, entries, hashes }: ProvenBundle): Promise<void> {
    const read = this.tree.size - n * TILE_WIDTH;
    return this.leaves(entries.slice(read), hashes.slice(read));
  }

  /**
   * Called after the last leaf: checks that the root is the head's and that every card is signed.
   * @throws Tampered, Unproven
   */
  async end(head: { size: number; root: Buffer }): Promise<void> {
    const got = this.tree.root();
    if (!sameHash(got, head.root)) {
      throw new Tampered(`tree of ${head.size} leaves`, head.root.toString("hex"), got.toString("hex"));
    }
    await this.cards?.drain();
    for (const tile of this.#partial.values()) await this.#write(tile);
    if (this.#table) this.wanted.push({ what: "table", leaf: parseLeaf(IndexLeaf, this.#table) });
  }

  async #append(hashes: readonly Buffer[]): Promise<void> {
    const { state, tiles } = this.tree.append(hashes);
    await this.#keepTiles(tiles);
    this.tree = state;
  }

  async #keepTiles(tiles: readonly Tile[]): Promise<void> {
    for (const tile of tiles) {
      if (tile.width < TILE_WIDTH) {
        this.#partial.set(tile.level, tile);
        continue;
      }
      if (this.#partial.get(tile.level)?.n === tile.n) this.#partial.delete(tile.level);
      await this.#write(tile);
    }
  }

  #write = ({ level, n, width, bytes }: Tile): Promise<void> => this.exposed.put(tilePath(level, n, width), bytes);

  async #readLeaf(index: number, entry: Buffer): Promise<void> {
    const leaf = parseJson(entry) as Leaf | null | undefined;
    if (leaf?.index !== index)
      throw new Unproven(`leaf ${index}`, "JSON with its index", entry.toString("utf8", 0, 80));
    const jwks: Jwks | null = this.chain?.jwks ?? null;
    switch (leaf.kind) {
      case "grade":
        await this.cards?.add(leaf, entry, jwks);
        return;
      case "keys":
        this.chain = await this.objects.keys(leaf, this.chain);
        this.newest.keys = { n: leaf.n, key: leaf.key, sha256: leaf.sha256, leaf: index };
        return;
      case "index":
      case "evidence":
      case "archive":
        if (this.only === undefined || this.only === leaf.kind) this.#addWanted(leaf, jwks);
    }
  }

  #addWanted(leaf: Leaf & { kind: Part }, jwks: Jwks | null): void {
    switch (leaf.kind) {
      case "index":
        this.wanted.push({ what: "index", leaf, jwks });
        this.newest.index = toNewestIndex(leaf);
        this.#table = leaf.table ? leaf : null;
        return;
      case "evidence":
        this.wanted.push({ what: "evidence", leaf: parseLeaf(EvidenceLeaf, leaf) });
        return;
      case "archive":
        this.wanted.push({ what: "archive", leaf: parseLeaf(ArchiveLeaf, leaf) });
    }
  }
}
