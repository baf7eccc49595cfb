import { Check } from "./findings.ts";

/** Objects whose packed bytes no leaf names: only what they unpack to stands under the root. */
export type PackedKind = "entry bundles" | "segments" | "index shards";

/** `content`: only what objects unpack to is compared, for an auditor whose zlib or zstd is not the publisher's. */
export type PackingMode = "strict" | "content";

/** So many objects in a row that we pack otherwise were packed by another build; fewer were changed since. */
const ANOTHER_BUILD = 8;

/**
 * Some bits of a gzip or zstd stream change nothing of what it unpacks to, so a flipped one is only seen against the bytes
 * that our own packer makes of the same contents, as the publisher's did (docs/audit.md, Packed bytes). Packers differ
 * between versions and processors: a long row of objects that differ is open, not broken.
 */
export class Packing {
  readonly #check = new Check("packed bytes");
  readonly #rows = new Map<PackedKind, string[]>();

  constructor(private readonly mode: PackingMode) {}

  /** The next object of its kind, in log order; its contents were found right. */
  add(kind: PackedKind, key: string, theirs: Uint8Array, ours: Uint8Array): void {
    if (this.mode === "content") return;
    if (Buffer.compare(theirs, ours) === 0) {
      this.#endRow(kind);
      this.#check.ok();
      return;
    }
    const row = this.#rows.get(kind) ?? [];
    this.#rows.set(kind, row);
    if (row.length < ANOTHER_BUILD) row.push(key);
    else this.#open();
  }

  get finding() {
    for (const kind of this.#rows.keys()) this.#endRow(kind);
    return this.#check.finding;
  }

  /** The row of this kind has ended. */
  #endRow(kind: PackedKind): void {
    const row = this.#rows.get(kind) ?? [];
    this.#rows.delete(kind);
    for (const key of row) {
      if (row.length >= ANOTHER_BUILD) this.#open();
      else {
        const got =
          "others that unpack to the same: a changed bit, or another build of zlib or zstd (--packing content)";
        this.#check.bad({ key, expected: "the bytes that our packer makes of its contents", got });
      }
    }
  }

  #open(): void {
    this.#check.open("packed by another build of zlib or zstd, their contents hold");
  }
}
