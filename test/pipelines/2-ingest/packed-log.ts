import writeRecord from "kafkajs/src/protocol/recordBatch/record/v0/index.js";
import writer from "kafkajs/src/protocol/recordBatch/v0/index.js";
import "../../../infra/log/kafka/codecs.ts";
import { EVENT_ID } from "../../../infra/log/kafka/record-batch.ts";
import type { Log, LogRecord, Packed } from "../../../infra/log/log.ts";

/** The same as a log in Kafka would keep it, by kafkajs' own writer. Records lie one after the other. */
export async function packedOf(records: readonly LogRecord[], compression = 4): Promise<Packed> {
  const [first, last] = [records[0]!, records.at(-1)!];
  const time = first.appendedAt.getTime();
  const { buffer } = await writer.RecordBatch({
    compression,
    firstOffset: BigInt(first.offset),
    firstTimestamp: BigInt(time),
    maxTimestamp: BigInt(last.appendedAt.getTime()),
    producerId: -1n,
    lastOffsetDelta: last.offset - first.offset,
    records: records.map(({ offset, key, value, eventId, appendedAt }) =>
      writeRecord({
        offsetDelta: offset - first.offset,
        timestampDelta: appendedAt.getTime() - time,
        key: Buffer.from(key),
        value: Buffer.from(value),
        headers: { [EVENT_ID]: eventId },
      }),
    ),
  });
  return { first: first.offset, next: last.offset + 1, bytes: buffer };
}

/**
 * A log that also hands out what it keeps in packed batches, as one in Kafka does.
 * @param sizeOf records of the batch that begins at an offset; a batch comes whole, wherever a reader begins
 */
export function packing(log: Log, sizeOf: (first: number) => number, compression?: number): Log {
  async function* packed(topic: string, partition: number, from: number) {
    let { start: at } = await log.bounds(topic, partition);
    for (;;) {
      const size = sizeOf(at);
      const next = at + size;
      if (next > from) {
        const records = await log.read(topic, partition, at, { maxRecords: size, maxBytes: Number.MAX_SAFE_INTEGER });
        if (records.length === 0) return;
        yield [await packedOf(records, compression)];
      }
      at = next;
    }
  }
  return new Proxy(log, {
    get(target, name) {
      if (name === "packed") return packed;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
