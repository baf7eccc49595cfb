import type { Column } from "./columns.ts";
import type { Pages } from "./pages.ts";
import { type ThriftStruct, type ThriftValue, thriftBytes } from "./thrift.ts";

/** What the values of a column are, to the engine: BIGINT, TIMESTAMP (microseconds, no zone), INTEGER, USMALLINT, VARCHAR. */
export type ColumnKind = "long" | "moment" | "int" | "short" | "text";

export interface NamedColumn {
  name: string;
  kind: ColumnKind;
  column: Column;
}

/** Numbers of parquet.thrift: Type, ConvertedType, and LogicalType where the older one does not say it all. */
const KINDS: Record<ColumnKind, { type: number; converted: number; logical?: ThriftStruct }> = {
  long: { type: 2, converted: 18 },
  moment: {
    ...{ type: 2, converted: 10 },
    // TimestampType {isAdjustedToUTC, unit: MICROS}
    logical: [
      [
        8,
        {
          struct: [
            [1, { bool: false }],
            [2, { struct: [[2, { struct: [] }]] }],
          ],
        },
      ],
    ],
  },
  int: { type: 1, converted: 17 },
  short: { type: 1, converted: 12 },
  text: { type: 6, converted: 0 },
};
const OPTIONAL = 1;
const ZSTD = 6;
const MAGIC = Buffer.from("PAR1");
const CREATED_BY = "touchstone";

const text = (value: string): ThriftValue => ({ bytes: Buffer.from(value) });

/**
 * A Parquet file (format 2.x of apache/parquet-format, data pages of version 1, zstd) with all rows in one row group;
 * without rows it has none. Every column may hold nulls, as those that the engine writes.
 * @param columns in order, each with the same number of rows
 */
export function parquetFile(rows: number, columns: readonly NamedColumn[]): Uint8Array {
  const pieces: Uint8Array[] = [MAGIC];
  const chunks: ThriftValue[] = [];
  const total = { packed: 0, unpacked: 0 };
  for (const { name, kind, column } of rows > 0 ? columns : []) {
    const pages = column.close();
    chunks.push(chunkOf(name, kind, { rows, column, pages, at: MAGIC.length + total.packed }));
    for (const piece of pages.bytes) pieces.push(piece);
    total.packed += pages.packed;
    total.unpacked += pages.unpacked;
  }
  const group: ThriftStruct = [
    [1, { list: chunks }],
    [2, { i64: total.unpacked }],
    [3, { i64: rows }],
    [5, { i64: MAGIC.length }],
    [6, { i64: total.packed }],
  ];
  const footer = thriftBytes([
    [1, { i32: 1 }],
    [2, { list: [rootOf(columns.length), ...columns.map(({ name, kind }) => elementOf(name, kind))] }],
    [3, { i64: rows }],
    [4, { list: rows > 0 ? [{ struct: group }] : [] }],
    [6, text(CREATED_BY)],
  ]);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(footer.length);
  return Buffer.concat([...pieces, footer, length, MAGIC]);
}

const rootOf = (children: number): ThriftValue => ({
  struct: [
    [4, text("schema")],
    [5, { i32: children }],
  ],
});

function elementOf(name: string, kind: ColumnKind): ThriftValue {
  const { type, converted, logical } = KINDS[kind];
  const element: ThriftStruct = [
    [1, { i32: type }],
    [3, { i32: OPTIONAL }],
    [4, text(name)],
    [6, { i32: converted }],
    [10, logical && { struct: logical }],
  ];
  return { struct: element };
}

/** A column's place and what its pages are; `at` is where they begin. */
function chunkOf(
  name: string,
  kind: ColumnKind,
  { rows, column, pages, at }: { rows: number; column: Column; pages: Pages; at: number },
): ThriftValue {
  const { range, nulls } = column;
  const statistics: ThriftStruct = [
    [3, { i64: nulls }],
    [5, range ? { bytes: range.most } : undefined],
    [6, range ? { bytes: range.least } : undefined],
  ];
  const meta: ThriftStruct = [
    [1, { i32: KINDS[kind].type }],
    [2, { list: [...pages.encodings].map((encoding) => ({ i32: encoding })) }],
    [3, { list: [text(name)] }],
    [4, { i32: ZSTD }],
    [5, { i64: rows }],
    [6, { i64: pages.unpacked }],
    [7, { i64: pages.packed }],
    [9, { i64: at + pages.dictionary }],
    [11, pages.dictionary > 0 ? { i64: at } : undefined],
    [12, { struct: statistics }],
  ];
  return {
    struct: [
      [2, { i64: 0 }],
      [3, { struct: meta }],
    ],
  };
}
