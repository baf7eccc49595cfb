import { type OpenedBatch, openBatch } from "./kafka/record-batch.ts";
import type { Packed } from "./log.ts";

export type { OpenedBatch };

/**
 * The records of a batch that a log handed out packed, in offset order; its first ones may lie before the offset that
 * was asked for. Kafka's record batches are the only form there is. Needs no connection, so any thread may do it.
 * @throws DamagedBatch when the bytes are not what was written; what the codec throws
 */
export const openPacked = (topic: string, partition: number, packed: Packed): Promise<OpenedBatch> => {
  const { buffer, byteOffset, byteLength } = packed.bytes;
  return openBatch(topic, partition, { ...packed, bytes: Buffer.from(buffer, byteOffset, byteLength) });
};
