import { Compressor, Decompressor } from "zstd-napi";

/**
 * Leaves of cards as this process keeps them: the first one it met is the dictionary of all others, which differ from it
 * in figures and hashes only. A string of one byte a character, which costs the heap its length and nothing besides.
 * Packed text never leaves the process, and is read by it alone.
 */
export type PackedLeaf = string & { readonly packed: unique symbol };

class LeafPacker {
  readonly #pack = new Compressor();
  readonly #unpack = new Decompressor();
  #ready = false;

  pack(bytes: Uint8Array): PackedLeaf {
    if (!this.#ready) {
      this.#pack.setParameters({ compressionLevel: 1, contentSizeFlag: true });
      this.#pack.loadDictionary(bytes);
      this.#unpack.loadDictionary(bytes);
      this.#ready = true;
    }
    return this.#pack.compress(bytes).toString("latin1") as PackedLeaf;
  }

  unpack(packed: PackedLeaf): string {
    return this.#unpack.decompress(Buffer.from(packed, "latin1")).toString("utf8");
  }
}

const packer = new LeafPacker();

/** @param bytes RFC 8785 text of a leaf */
export const packLeaf = (bytes: Uint8Array): PackedLeaf => packer.pack(bytes);

/** The same text again. */
export const unpackLeaf = (packed: PackedLeaf): string => packer.unpack(packed);
