import Decoder from "kafkajs/src/protocol/decoder.js";
import crc32C from "kafkajs/src/protocol/recordBatch/crc32C/crc32C.js";
import writeRecord from "kafkajs/src/protocol/recordBatch/record/v0/index.js";
import readBatch from "kafkajs/src/protocol/recordBatch/v0/decoder.js";
import writer from "kafkajs/src/protocol/recordBatch/v0/index.js";
import { describe, expect, it } from "vitest";
import "../../../../infra/log/kafka/client.ts";
import {
  DamagedBatch,
  decodeBatch,
  EVENT_ID,
  openBatch,
  splitBatches,
} from "../../../../infra/log/kafka/record-batch.ts";
import type { LogRecord } from "../../../../infra/log/log.ts";
import { fc } from "../../../helpers/histories.ts";

const [NONE, GZIP, ZSTD] = [0, 1, 4];
const CRC_AT = 17;
const ATTRIBUTES_AT = 21;

interface Written {
  first: number;
  time: number;
  compression: number;
  appendTime: boolean;
  control: boolean;
  records: { delta: number; timeDelta: number; key: Buffer | null; value: Buffer | null; headers: object }[];
}

/** kafkajs writes neither the broker's own time nor control batches: their flags are set, and the checksum made anew. */
async function bytesOf({ first, time, compression, appendTime, control, records }: Written): Promise<Buffer> {
  const { buffer } = await writer.RecordBatch({
    compression,
    firstOffset: BigInt(first),
    firstTimestamp: BigInt(time),
    maxTimestamp: BigInt(time + 1_000),
    producerId: -1n,
    lastOffsetDelta: records.at(-1)!.delta,
    records: records.map(({ delta, timeDelta, ...rest }) =>
      writeRecord({ offsetDelta: delta, timestampDelta: timeDelta, ...rest }),
    ),
  });
  const flags = (appendTime ? 0x08 : 0) | (control ? 0x20 : 0);
  buffer.writeInt16BE(buffer.readInt16BE(ATTRIBUTES_AT) | flags, ATTRIBUTES_AT);
  buffer.writeUInt32BE(crc32C(buffer.subarray(ATTRIBUTES_AT)), CRC_AT);
  return buffer;
}

/** What the reader made of kafkajs' messages before it read batches itself. */
async function byKafkajs(bytes: Buffer): Promise<LogRecord[]> {
  const { records } = await readBatch(new Decoder(bytes));
  return records
    .filter(({ isControlRecord }) => !isControlRecord)
    .map(({ offset, timestamp, key, value, headers }) => ({
      topic: "t",
      partition: 3,
      offset: Number(offset),
      eventId: headers[EVENT_ID]?.toString() ?? "",
      key: key?.toString("utf8") ?? "",
      value: value ?? new Uint8Array(),
      appendedAt: new Date(Number(timestamp)),
    }));
}

const plain = (records: readonly LogRecord[]) =>
  records.map((record) => ({ ...record, value: Buffer.from(record.value).toString("hex") }));

const octets = (maxLength: number) => fc.uint8Array({ maxLength }).map((bytes) => Buffer.from(bytes));
const text = fc.string({ unit: "binary", maxLength: 40 }).map((one) => Buffer.from(one, "utf8"));
const header = fc.oneof(text, fc.array(text, { minLength: 1, maxLength: 3 }));
const names = fc.oneof(
  fc.constant(EVENT_ID),
  fc.constantFrom("event_ie", "event_id2", "", "é"),
  fc.string({ maxLength: 12 }),
);
const record = fc.record({
  gap: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 100_000 })),
  timeDelta: fc.oneof(fc.integer({ min: -1_000, max: 100_000 }), fc.integer({ min: -(2 ** 40), max: 2 ** 40 })),
  key: fc.option(fc.oneof(text, octets(200))),
  value: fc.option(fc.oneof(octets(20), octets(9_000))),
  // A name of every object's own would be lost by whoever reads headers into an object, as kafkajs does.
  headers: fc.dictionary(
    names.filter((name) => !(name in Object.prototype)),
    header,
    { maxKeys: 4 },
  ),
});
const batch: fc.Arbitrary<Written> = fc
  .record({
    first: fc.oneof(fc.nat(), fc.integer({ min: 2 ** 31, max: 2 ** 52 })),
    time: fc.integer({ min: 2 ** 41, max: 2 ** 42 }),
    compression: fc.constantFrom(NONE, GZIP, ZSTD),
    appendTime: fc.boolean(),
    control: fc.oneof({ weight: 9, arbitrary: fc.constant(false) }, fc.constant(true)),
    drawn: fc.array(record, { minLength: 1, maxLength: 20 }),
  })
  .map(({ drawn, ...rest }) => {
    let delta = -1;
    const records = drawn.map(({ gap, ...one }) => {
      delta += gap;
      return { ...one, delta };
    });
    return { ...rest, records };
  });

const decoded = async (bytes: Buffer) => {
  const all = [];
  for (const one of splitBatches(bytes)) all.push(...(await decodeBatch("t", 3, one)));
  return all;
};

const SAMPLE: Written = {
  first: 7,
  time: 1_700_000_000_000,
  compression: NONE,
  appendTime: false,
  control: false,
  records: [
    { delta: 0, timeDelta: 0, key: Buffer.from("k"), value: Buffer.from("one"), headers: { [EVENT_ID]: "rec_1" } },
    { delta: 1, timeDelta: 5, key: Buffer.from("k"), value: Buffer.from("two"), headers: { [EVENT_ID]: "rec_2" } },
  ],
};

describe("record batches", () => {
  it("are read as kafkajs reads them", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(batch, { minLength: 1, maxLength: 3 }), async (written) => {
        const each = [];
        for (const one of written) each.push(await bytesOf(one));
        const expected = [];
        for (const one of each) expected.push(...(await byKafkajs(one)));
        const bytes = Buffer.concat(each);
        expect(plain(await decoded(bytes))).toEqual(plain(expected));
        const opened = [];
        for (const one of splitBatches(bytes)) {
          const batch = await openBatch("t", 3, one);
          for (let i = 0; i < batch.count; i++) {
            const record = batch.opened(i);
            opened.push(record);
            const { offset, eventId, appendedAt } = record;
            expect([batch.offset(i), batch.eventId(i), batch.appendedMs(i)]).toEqual([offset, eventId, +appendedAt]);
            const { pieceAt } = batch;
            const partOf = (from: number, end: number) => batch.piece(i).slice(from - pieceAt, end - pieceAt);
            expect(partOf(batch.valueAt(i), batch.valueEnd(i))).toBe(record.characters);
            expect(Buffer.from(partOf(batch.keyAt(i), batch.keyEnd(i)), "latin1").toString()).toBe(record.key);
            if (batch.idAt(i) >= 0) expect(batch.bytes.toString("utf8", batch.idAt(i), batch.idEnd(i))).toBe(eventId);
          }
        }
        for (const { characters, value } of opened) expect(characters).toBe(Buffer.from(value).toString("latin1"));
        expect(plain(opened.map(({ characters: _, ...one }) => one))).toEqual(plain(expected));
      }),
    );
  });

  it("say where they begin and where the next one does, also with holes at their end", async () => {
    const [found] = splitBatches(
      await bytesOf({ ...SAMPLE, records: SAMPLE.records.map((one) => ({ ...one, delta: 9 })) }),
    );
    expect(found).toMatchObject({ first: 7, next: 17 });
  });

  it("may be cut off anywhere at the end of a fetch", async () => {
    const bytes = await bytesOf(SAMPLE);
    for (let cut = 0; cut < bytes.length; cut++) {
      const found = splitBatches(Buffer.concat([bytes, bytes.subarray(0, cut)]));
      expect(found.map(({ first, next }) => [first, next])).toEqual([[7, 9]]);
    }
  });

  it.each([
    ["none", NONE],
    ["zstd", ZSTD],
  ])("are refused with any bit changed that the checksum covers (codec %s)", async (_, compression) => {
    const bytes = await bytesOf({ ...SAMPLE, compression });
    const [raw] = splitBatches(bytes);
    for (let at = CRC_AT; at < bytes.length; at++) {
      const changed = Buffer.from(bytes);
      changed[at]! ^= 1 << (at % 8);
      await expect(decodeBatch("t", 3, { ...raw!, bytes: changed })).rejects.toThrow("fails its checksum");
    }
  });

  it("never reach over their end, whatever bytes stand in them under a good checksum", async () => {
    const bytes = await bytesOf(SAMPLE);
    await fc.assert(
      fc.asyncProperty(fc.nat(bytes.length - 62), fc.nat(255), async (place, byte) => {
        const changed = Buffer.from(bytes);
        changed[61 + place] = byte;
        changed.writeUInt32BE(crc32C(changed.subarray(ATTRIBUTES_AT)), CRC_AT);
        // Either it is still a batch of two records, or it is said to be none.
        const found = await decoded(changed).catch((error: unknown) => error);
        if (found instanceof Error) expect(found).toBeInstanceOf(DamagedBatch);
        else expect(found).toHaveLength(2);
      }),
      { numRuns: 500 },
    );
  });

  it.each<[string, (bytes: Buffer) => void, string]>([
    ["an older form", (bytes) => bytes.writeInt8(1, 16), "has the form 1"],
    ["a length of nothing", (bytes) => bytes.writeInt32BE(0, 8), "shorter than its head"],
    ["a negative length", (bytes) => bytes.writeInt32BE(-50, 8), "shorter than its head"],
    ["a negative offset", (bytes) => bytes.writeBigInt64BE(-1n, 0), "no offsets"],
    ["an end before its beginning", (bytes) => bytes.writeInt32BE(-2, 23), "no offsets"],
  ])("are refused with %s", async (_, change, word) => {
    const bytes = await bytesOf(SAMPLE);
    change(bytes);
    expect(() => splitBatches(bytes)).toThrow(word);
  });

  it.each<[string, (bytes: Buffer) => void, string]>([
    ["an unknown codec", (bytes) => bytes.writeInt16BE(6, ATTRIBUTES_AT), "unknown codec 6"],
    ["fewer records than there are", (bytes) => bytes.writeInt32BE(1, 57), "more than its records"],
    ["more records than there are", (bytes) => bytes.writeInt32BE(3, 57), "reaches over its end"],
  ])("are refused with %s", async (_, change, word) => {
    const bytes = await bytesOf(SAMPLE);
    change(bytes);
    bytes.writeUInt32BE(crc32C(bytes.subarray(ATTRIBUTES_AT)), CRC_AT);
    await expect(decoded(bytes)).rejects.toThrow(word);
  });
});
