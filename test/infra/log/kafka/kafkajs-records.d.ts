/** How kafkajs 2.2.4 (pinned exactly) writes and reads record batches: what ours is held against. */
declare module "kafkajs/src/protocol/recordBatch/v0/index.js" {
  const batches: { RecordBatch(batch: Record<string, unknown>): Promise<{ buffer: Buffer }> };
  export default batches;
}

declare module "kafkajs/src/protocol/recordBatch/record/v0/index.js" {
  export default function write(record: Record<string, unknown>): unknown;
}

declare module "kafkajs/src/protocol/recordBatch/v0/decoder.js" {
  interface Message {
    offset: string;
    timestamp: string;
    key: Buffer | null;
    value: Buffer | null;
    headers: Record<string, Buffer | (Buffer | null)[] | null>;
    isControlRecord: boolean;
  }

  import type Decoder from "kafkajs/src/protocol/decoder.js";
  export default function read(decoder: Decoder): Promise<{ records: Message[] }>;
}

declare module "kafkajs/src/protocol/encoder.js" {
  export default class Encoder {
    writeString(text: string): this;
    writeInt32(number: number): this;
  }
}
