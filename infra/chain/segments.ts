import { sha256hex } from "../canonical.ts";
import type { Store } from "../store/store.ts";
import type { SegmentRef } from "./commit.ts";
import { DamagedChain } from "./errors.ts";
import { dataKey } from "./keys.ts";

/** What a data file holds besides its bytes. */
export interface SegmentContent {
  rows: number;
  /** Records of the range that did not parse: how many, and the bytes of the file that keeps them with their reasons. */
  rejected?: { records: number; bytes: Uint8Array };
}

/** The data files of one chain, written by one process. */
export class Segments {
  readonly #store: Store;
  readonly #folder: string;
  readonly #writer: string;
  #written = 0;

  /** @param writer a random name no other process has. */
  constructor(store: Store, folder: string, writer: string) {
    this.#store = store;
    this.#folder = folder;
    this.#writer = writer;
  }

  /**
   * Store a file for the positions first .. last (both inclusive). It means nothing until a commit adds it. The name is
   * never used twice, not even for equal bytes: a rival who made the same file must not lose his when ours is dropped.
   */
  async put(bytes: Uint8Array, first: number, last: number, content: SegmentContent): Promise<SegmentRef> {
    const { rows, rejected } = content;
    const kept = rejected && rejected.records > 0 ? rejected : undefined;
    const ref = { first, last, rows, rejected: kept?.records ?? 0 };
    const data = await this.#create(bytes, first, last, "parquet");
    if (!kept) return { ...ref, ...data };
    return { ...ref, ...data, rejects: await this.#create(kept.bytes, first, last, "rejected") };
  }

  async #create(bytes: Uint8Array, first: number, last: number, kind: "parquet" | "rejected") {
    const sha256 = sha256hex(bytes);
    // Two tries in 2^32 meet an old name at worst; three in a row do not happen.
    for (let tries = 0; tries < 3; tries++) {
      const tag = sha256hex(`${sha256} ${this.#writer} ${this.#written++}`).slice(0, 8);
      const file = dataKey(this.#folder, first, last, tag, kind);
      const { result } = await this.#store.create(file, bytes, { contentType: "application/octet-stream" });
      if (result === "created") return { file, bytes: bytes.byteLength, sha256 };
    }
    throw new Error(`no free name for ${first} to ${last} in ${this.#folder}`);
  }

  /** The bytes of a file. @throws DamagedChain naming it when it is missing or not what was committed. */
  async read(file: { file: string; bytes: number; sha256: string }): Promise<Uint8Array> {
    const found = await this.#store.get(file.file, { maxBytes: Math.max(file.bytes, 1) });
    if (!found) throw new DamagedChain(file.file, "is missing");
    const sha256 = sha256hex(found.bytes);
    if (sha256 !== file.sha256) throw new DamagedChain(file.file, `has sha256 ${sha256}, committed was ${file.sha256}`);
    return found.bytes;
  }

  async remove(ref: SegmentRef): Promise<void> {
    await this.#store.delete(ref.file);
    if (ref.rejects) await this.#store.delete(ref.rejects.file);
  }
}
