import type { Jwks } from "../../infra/keys/jwk.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import { TILE_WIDTH, tilePath } from "../../infra/tree/path.ts";
import { MissingObject, Tampered, type Tile, TreeState } from "../../infra/tree/tiles.ts";
import { parseEntry, parseLeaf } from "../published/errors.ts";
import { toNewestIndex } from "../published/fold.ts";
import { type CardSignatures, chainOf, type KeyChain, readKeys } from "../published/keys.ts";
import { createObjectFetch, type ProvenBundle } from "../published/reader.ts";
import { ArchiveLeaf, EvidenceLeaf, IndexLeaf, KeysLeaf, type Leaf } from "../record/leaf.ts";
import type { ExposedStore } from "./copy.ts";
import type { WantedObject } from "./missing.ts";
import type { NamedObjectCopier } from "./objects.ts";
import type { MirrorCommit, NewestLeaves, RecordPart } from "./state.ts";

/**
 * Reads the copied leaves in order: hashes them into tiles, verifies the chain of keys documents and the signature of
 * every card with the keys that are valid at its position, and collects the objects that leaves name. Only the right
 * edge of the tree and the leaves that name objects are kept in memory.
 */
export class LeafWalk {
  /** Objects that the leaves name, in the order of the leaves. */
  readonly wantedObjects: WantedObject[] = [];
  /** Leaf of the newest index, if that has a Parquet file. The Parquet files of older indexes are not copied. */
  #newestTable: IndexLeaf | null = null;
  readonly newest: NewestLeaves;
  /** The newest partial tile of each level. They are written at the end, since most become full before that. */
  readonly #partialTiles = new Map<number, Tile>();

  private constructor(
    private readonly exposed: ExposedStore,
    private readonly copier: NamedObjectCopier,
    private readonly cardSignatures: CardSignatures | null,
    private tree: TreeState,
    private chain: KeyChain | null,
    newest: NewestLeaves,
    private readonly onlyPart: RecordPart | undefined,
  ) {
    this.newest = { ...newest };
  }

  /**
   * Starts after the leaves below the head of the trusted commit. Without a trusted commit, or if the mirror's own
   * tiles or newest keys document are damaged, it starts at the first leaf and so writes them again.
   */
  static async start(
    exposed: ExposedStore,
    copier: NamedObjectCopier,
    cardSignatures: CardSignatures | null,
    trusted: (MirrorCommit & { newestIndex: NewestLeaves["index"] }) | null,
    onlyPart?: RecordPart,
  ): Promise<LeafWalk> {
    const fromFirstLeaf = () =>
      new LeafWalk(exposed, copier, cardSignatures, TreeState.empty, null, { keys: null, index: null }, onlyPart);
    if (!trusted) return fromFirstLeaf();
    try {
      const { head, keys, newestIndex: index } = trusted;
      const tree = await TreeState.load(head.size, Buffer.from(head.root, "hex"), createObjectFetch(exposed.store));
      const document = keys && (await readKeys(exposed.store, keys));
      if (keys && !document) return fromFirstLeaf();
      const chain = keys && document && chainOf(document, keys.sha256);
      return new LeafWalk(exposed, copier, cardSignatures, tree, chain, { keys, index }, onlyPart);
    } catch (error) {
      if (error instanceof MissingObject || error instanceof Tampered) return fromFirstLeaf();
      throw error;
    }
  }

  /** Number of leaves that were read, including those of earlier runs. */
  get size(): number {
    return this.tree.size;
  }

  /**
   * Reads the next leaves. The caller has proven them.
   * @param hashes the leaves' hashes
   * @throws Unproven, and errors of copying keys documents
   */
  async addLeaves(entries: readonly Buffer[], hashes: readonly Buffer[]): Promise<void> {
    for (const [i, entry] of entries.entries()) await this.#readLeaf(this.tree.size + i, entry);
    await this.#append(hashes);
  }

  /**
   * Reads a proven bundle, except leaves that were read before.
   * @throws Unproven, and errors of copying keys documents
   */
  addBundle({ n, entries, hashes }: ProvenBundle): Promise<void> {
    const leavesReadBefore = this.tree.size - n * TILE_WIDTH;
    return this.addLeaves(entries.slice(leavesReadBefore), hashes.slice(leavesReadBefore));
  }

  /**
   * Called after the last leaf: checks that the root is the head's and that the signature of every card is valid.
   * @throws Tampered, Unproven
   */
  async end(head: { size: number; root: Buffer }): Promise<void> {
    const root = this.tree.root();
    if (!sameHash(root, head.root)) {
      throw new Tampered(`tree of ${head.size} leaves`, head.root.toString("hex"), root.toString("hex"));
    }
    await this.cardSignatures?.drain();
    for (const tile of this.#partialTiles.values()) await this.#write(tile);
    if (this.#newestTable) this.wantedObjects.push({ what: "table", leaf: this.#newestTable });
  }

  async #append(hashes: readonly Buffer[]): Promise<void> {
    const { state, tiles } = this.tree.append(hashes);
    await this.#keepTiles(tiles);
    this.tree = state;
  }

  async #keepTiles(tiles: readonly Tile[]): Promise<void> {
    for (const tile of tiles) {
      if (tile.width < TILE_WIDTH) {
        this.#partialTiles.set(tile.level, tile);
        continue;
      }
      if (this.#partialTiles.get(tile.level)?.n === tile.n) this.#partialTiles.delete(tile.level);
      await this.#write(tile);
    }
  }

  #write = ({ level, n, width, bytes }: Tile): Promise<void> => this.exposed.put(tilePath(level, n, width), bytes);

  async #readLeaf(index: number, entry: Buffer): Promise<void> {
    const leaf = parseEntry(index, entry);
    const jwks: Jwks | null = this.chain?.jwks ?? null;
    switch (leaf.kind) {
      case "grade":
        await this.cardSignatures?.add(leaf, entry, jwks);
        return;
      case "keys":
        await this.#readKeysLeaf(parseLeaf(KeysLeaf, leaf));
        return;
      case "index":
      case "evidence":
      case "archive":
        if (this.onlyPart === undefined || this.onlyPart === leaf.kind) this.#addWanted(leaf, jwks);
    }
  }

  async #readKeysLeaf(leaf: KeysLeaf): Promise<void> {
    this.chain = await this.copier.copyKeys(leaf, this.chain);
    this.newest.keys = { n: leaf.n, key: leaf.key, sha256: leaf.sha256, leaf: leaf.index };
  }

  /** Adds the object that a leaf names. The leaf is parsed, since the mirror saves its members for later runs. */
  #addWanted(leaf: Leaf & { kind: RecordPart }, jwks: Jwks | null): void {
    switch (leaf.kind) {
      case "index":
        this.#addIndex(parseLeaf(IndexLeaf, leaf), jwks);
        return;
      case "evidence":
        this.wantedObjects.push({ what: "evidence", leaf: parseLeaf(EvidenceLeaf, leaf) });
        return;
      case "archive":
        this.wantedObjects.push({ what: "archive", leaf: parseLeaf(ArchiveLeaf, leaf) });
    }
  }

  #addIndex(leaf: IndexLeaf, jwks: Jwks | null): void {
    this.wantedObjects.push({ what: "index", leaf, jwks });
    this.newest.index = toNewestIndex(leaf);
    this.#newestTable = leaf.table ? leaf : null;
  }
}
