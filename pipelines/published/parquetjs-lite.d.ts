/** Types of the part of parquetjs-lite that is used; the package has none. */
declare module "parquetjs-lite" {
  interface Field {
    type: "UTF8" | "JSON" | "TIMESTAMP_MILLIS" | "INT32" | "INT64" | "DOUBLE" | "BOOLEAN";
    optional?: boolean;
    repeated?: boolean;
    compression?: "GZIP" | "SNAPPY" | "UNCOMPRESSED";
  }
  class ParquetSchema {
    constructor(fields: Record<string, Field>);
  }
  class ParquetWriter {
    static openStream(
      schema: ParquetSchema,
      stream: NodeJS.WritableStream,
      options?: { rowGroupSize?: number },
    ): Promise<ParquetWriter>;
    static openFile(schema: ParquetSchema, path: string, options?: { rowGroupSize?: number }): Promise<ParquetWriter>;
    appendRow(row: Record<string, unknown>): Promise<void>;
    setMetadata(key: string, value: string): void;
    close(): Promise<void>;
  }
  /** A CommonJS module whose exports Node does not find by name, so it is imported as a whole. */
  const parquet: { ParquetSchema: typeof ParquetSchema; ParquetWriter: typeof ParquetWriter };
  export default parquet;
}
