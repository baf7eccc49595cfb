import { Compressor } from "zstd-napi";
import { type ThriftStruct, thriftBytes, varint } from "./thrift.ts";

/** Numbers of parquet.thrift (Encoding, PageType). */
export const PLAIN = 0;
const RLE = 3;
export const RLE_DICTIONARY = 8;
const DATA_PAGE = 0;
const DICTIONARY_PAGE = 2;

/** Level 1 takes a quarter less CPU than the usual 3 and gives files of the same size; a compaction packs them again. */
const compressor = new Compressor();
compressor.setParameters({ compressionLevel: 1 });

/** The packed pages of one column in one row group: its dictionary first, where it has one. */
export class Pages {
  readonly bytes: Uint8Array[] = [];
  readonly encodings = new Set<number>();
  /** Bytes of all pages with their headers, packed and as they were. */
  packed = 0;
  unpacked = 0;
  /** Bytes that the dictionary takes. */
  dictionary = 0;

  /** Values of a dictionary, as PLAIN has them. */
  addDictionary(values: number, bytes: Uint8Array): void {
    const numbers: ThriftStruct = [
      [1, { i32: values }],
      [2, { i32: PLAIN }],
    ];
    this.encodings.add(PLAIN);
    this.#add(DICTIONARY_PAGE, [7, { struct: numbers }], bytes);
    this.dictionary = this.packed;
  }

  /** Rows of the column: definition levels and values, in one piece. */
  addData(rows: number, encoding: number, bytes: Uint8Array): void {
    const numbers: ThriftStruct = [
      [1, { i32: rows }],
      [2, { i32: encoding }],
      [3, { i32: RLE }],
      [4, { i32: RLE }],
    ];
    this.encodings.add(RLE).add(encoding);
    this.#add(DATA_PAGE, [5, { struct: numbers }], bytes);
  }

  #add(type: number, numbers: ThriftStruct[number], bytes: Uint8Array): void {
    const packed = compressor.compress(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    const head = thriftBytes([[1, { i32: type }], [2, { i32: bytes.length }], [3, { i32: packed.length }], numbers]);
    this.bytes.push(head, packed);
    this.packed += head.length + packed.length;
    this.unpacked += head.length + bytes.length;
  }
}

/** Bytes before definition levels that say how many there are. */
const LEVELS_HEAD = 4;
/** Most bytes that the levels of a page take whose rows all have a value. */
export const FULL_LEVELS = LEVELS_HEAD + 5 + 1;

/**
 * Which rows have a value, as runs (Parquet's RLE/bit-packing hybrid, of which only the runs are used, with the length
 * before it that data pages of version 1 want).
 * @param runs lengths, in turns with a value and without one
 */
export function levelBytes(runs: readonly number[]): Uint8Array {
  const out = [0, 0, 0, 0];
  runs.forEach((length, i) => {
    if (length > 0) varint(2 * length, out).push(i % 2 === 0 ? 1 : 0);
  });
  const bytes = Buffer.from(out);
  bytes.writeUInt32LE(out.length - LEVELS_HEAD);
  return bytes;
}
