/** A value with its type, as the compact protocol tells them apart. */
export type ThriftValue =
  | { i32: number }
  | { i64: number }
  | { bytes: Uint8Array }
  | { bool: boolean }
  | { struct: ThriftStruct }
  | { list: readonly ThriftValue[] };
/** Fields by their number, in rising order; those that are undefined are left out. */
export type ThriftStruct = readonly (readonly [field: number, value: ThriftValue | undefined])[];

const TRUE = 1;
const FALSE = 2;
const I32 = 5;
const I64 = 6;
const BINARY = 8;
const LIST = 9;
const STRUCT = 12;
/** From this length on, a list says its length by itself. Steps between field numbers stay below it here. */
const SHORT = 15;

function typeOf(value: ThriftValue): number {
  if ("i32" in value) return I32;
  if ("i64" in value) return I64;
  if ("bytes" in value) return BINARY;
  if ("list" in value) return LIST;
  if ("struct" in value) return STRUCT;
  return value.bool ? TRUE : FALSE;
}

/** An unsigned number below 2^53, seven bits a byte, the low ones first. */
export function varint(value: number, out: number[] = []): number[] {
  let left = value;
  for (; left >= 128; left = Math.floor(left / 128)) out.push((left % 128) | 128);
  out.push(left);
  return out;
}

/** Signed numbers alternate, so that small ones of either sign stay short. */
const zigzag = (value: number, out: number[]): number[] => varint(value < 0 ? -2 * value - 1 : 2 * value, out);

function write(value: ThriftValue, out: number[]): void {
  if ("i32" in value) zigzag(value.i32, out);
  else if ("i64" in value) zigzag(value.i64, out);
  else if ("bytes" in value) {
    varint(value.bytes.length, out);
    for (const byte of value.bytes) out.push(byte);
  } else if ("struct" in value) writeStruct(value.struct, out);
  else if ("list" in value) writeList(value.list, out);
}

function writeList(list: readonly ThriftValue[], out: number[]): void {
  const type = list[0] ? typeOf(list[0]) : I32;
  out.push((Math.min(list.length, SHORT) << 4) | type);
  if (list.length >= SHORT) varint(list.length, out);
  for (const one of list) write(one, out);
}

function writeStruct(struct: ThriftStruct, out: number[]): void {
  let last = 0;
  for (const [field, value] of struct) {
    if (value === undefined) continue;
    out.push(((field - last) << 4) | typeOf(value));
    write(value, out);
    last = field;
  }
  out.push(0);
}

/**
 * A struct in Thrift's compact protocol (thrift-compact-protocol.md), as far as Parquet's page headers and footers need it:
 * no maps, no doubles, lists of numbers, bytes and structs.
 */
export function thriftBytes(struct: ThriftStruct): Uint8Array {
  const out: number[] = [];
  writeStruct(struct, out);
  return Uint8Array.from(out);
}
