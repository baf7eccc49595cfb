import { createRequire } from "node:module";
import kafkajs, { type Broker, type KafkaMessage } from "kafkajs";
import { describe, expect, test } from "vitest";
// Registers the codec.
import "../../../../infra/log/kafka/client.ts";
import { fetchBatches, recordOf } from "../../../../infra/log/kafka/reader.ts";
import { crc32c, decodeBatches, whyUnsupported } from "../../../../infra/log/kafka/record-batches.ts";
import { BadFrame, unpackFrames, ZstdPacking } from "../../../../infra/zstd.ts";
import * as fc from "../../../helpers/fast-check.ts";

/** kafkajs' own encoder and decoder, which it does not export. */
const require = createRequire(import.meta.url);
const Encoder = require("kafkajs/src/protocol/encoder");
const Long = require("kafkajs/src/utils/long");
const { RecordBatch } = require("kafkajs/src/protocol/recordBatch/v0");
const RecordOf = require("kafkajs/src/protocol/recordBatch/record/v0");
const MessageSet = require("kafkajs/src/protocol/messageSet");
const KafkajsBroker = require("kafkajs/src/broker");
const { decode, parse } = require("kafkajs/src/protocol/requests/fetch/v11/response");

const { None, GZIP, ZSTD } = kafkajs.CompressionTypes;
interface DrawnRecord {
  key: Uint8Array | null;
  value: Uint8Array | null;
  headers: Record<string, Uint8Array | Uint8Array[]>;
  ms: number;
  /** Offsets that compaction took before it. */
  gap: number;
}
interface DrawnBatch {
  records: DrawnRecord[];
  compression: number;
  ms: number;
  isAppendTime: boolean;
}

const bytes = (maxLength: number) => fc.uint8Array({ maxLength });
const text = fc.string({ maxLength: 12, unit: "grapheme" }).map((one) => Buffer.from(one));
const drawnRecord: fc.Arbitrary<DrawnRecord> = fc.record({
  key: fc.oneof(fc.constant(null), text, bytes(9)),
  value: fc.oneof(fc.constant(null), bytes(300)),
  headers: fc.dictionary(
    fc.constantFrom("event_id", "event_ie", "event", "", "trace"),
    fc.oneof(text, fc.array(text, { minLength: 1, maxLength: 3 })),
  ),
  ms: fc.integer({ min: -1e12, max: 1e12 }),
  gap: fc.constantFrom(0, 0, 0, 1, 200),
});
const drawnBatch: fc.Arbitrary<DrawnBatch> = fc.record({
  records: fc.array(drawnRecord, { maxLength: 8 }),
  compression: fc.constantFrom(None, ZSTD),
  ms: fc.integer({ min: 0, max: 4e12 }),
  isAppendTime: fc.boolean(),
});

/** The batches as a broker stores them, the first at `first`. */
async function encoded(first: number, batches: readonly DrawnBatch[]): Promise<Buffer[]> {
  let at = first;
  const all: Buffer[] = [];
  for (const { records, compression, ms, isAppendTime } of batches) {
    let delta = -1;
    const own = records.map(({ key, value, headers, ms: timestampDelta, gap }) => {
      delta += 1 + gap;
      const of = (one: Uint8Array | null) => (one === null ? null : Buffer.from(one));
      return RecordOf({
        ...{ key: of(key), value: of(value), headers, offsetDelta: delta, timestampDelta },
      });
    });
    // A batch keeps its last offset when compaction takes its records.
    const lastOffsetDelta = Math.max(0, delta);
    const [firstOffset, firstTimestamp] = [Long.fromValue(at), Long.fromValue(ms)];
    const maxTimestamp = Long.fromValue(ms + 5);
    const parts = { compression, firstOffset, firstTimestamp, maxTimestamp, lastOffsetDelta, records: own };
    const { buffer } = await RecordBatch(parts);
    all.push(isAppendTime ? changed(buffer, (copy) => copy.writeInt16BE(compression | 8, 21)) : Buffer.from(buffer));
    at += lastOffsetDelta + 1;
  }
  return all;
}

/** A copy of a batch with other fields, and the checksum that belongs to them. */
function changed(batch: Buffer, change: (copy: Buffer) => void): Buffer {
  const copy = Buffer.from(batch);
  change(copy);
  copy.writeUInt32BE(crc32c(copy, 21), 17);
  return copy;
}

/** An answer to Fetch v11 as a broker writes it, behind its length and correlation id. */
function answerOf(recordSet: Buffer, { error = 0, partitions = 1 } = {}): Buffer {
  const partition = () => {
    const head = new Encoder().writeInt32(3).writeInt16(error).writeInt64(9).writeInt64(9).writeInt64(0);
    return head.writeArray([]).writeInt32(-1).writeBytes(recordSet);
  };
  const topic = new Encoder().writeString("t").writeArray(Array.from({ length: partitions }, partition));
  return new Encoder().writeInt32(0).writeInt16(0).writeInt32(0).writeArray([topic]).buffer;
}

/** What kafkajs makes of the answer. */
async function decoded(answer: Buffer): Promise<KafkaMessage[]> {
  const { responses } = await parse(await decode(answer));
  return responses[0].partitions[0].messages;
}

/** A broker that answers every fetch so, with kafkajs' own class around it. */
function brokerOf(answer: Buffer, version: number): Broker {
  const connectionPool = {
    send: async ({ response }: { response: { decode: typeof decode; parse: typeof parse } }) =>
      response.parse(await response.decode(answer)),
  };
  const broker = new KafkajsBroker({ connectionPool, logger: { namespace: () => undefined } });
  broker.lookupRequest = () => () => ({ request: { apiVersion: version }, response: { decode, parse } });
  return broker;
}

/** Fetches. @returns the batches that came as bytes, the messages that kafkajs decoded, and why it did */
async function passed(answer: Buffer, version = 11) {
  const warnings: string[] = [];
  const broker = fetchBatches(brokerOf(answer, version), (why) => warnings.push(why));
  const { responses } = (await broker.fetch({ topics: [] } as never)) as unknown as Awaited<ReturnType<typeof decode>>;
  const { partition, messages } = responses[0].partitions[0];
  expect(partition).toBe(3);
  const batches: Buffer | null = Buffer.isBuffer(messages) ? messages : null;
  return { warnings, batches, messages };
}

const good: DrawnBatch = {
  records: ["a", "b", "c"].map((id, n) => ({
    ...{ key: Buffer.from("key"), value: Buffer.from(`value ${id}`.repeat(20)), ms: n, gap: 0 },
    headers: { event_id: Buffer.from(id) },
  })),
  ...{ compression: ZSTD, ms: 1_700_000_000_000, isAppendTime: false },
};

test("drawn batches give what kafkajs makes of them, from any offset on, also when the last one is cut off", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(drawnBatch, { minLength: 1, maxLength: 4 }),
      fc.nat(2 ** 40),
      fc.nat(700),
      fc.nat(),
      async (batches, first, ahead, cut) => {
        const all = await encoded(first, batches);
        const whole = all.slice(0, -1).reduce((sum, one) => sum + one.length, 0);
        // As broker and disk cut it: the first batch is whole.
        const recordSet = Buffer.concat(all);
        const kept = all.length > 1 ? whole + (cut % (recordSet.length - whole + 1)) : recordSet.length;
        const answer = answerOf(recordSet.subarray(0, kept));
        const { batches: packed, warnings } = await passed(answer);
        expect([packed?.equals(recordSet.subarray(0, kept)), warnings]).toEqual([true, []]);
        const from = first + ahead;
        const theirs = (await decoded(answer)).map((message) => recordOf("topic", 3, message));
        expect(decodeBatches("topic", 3, packed!, from)).toEqual(theirs.filter(({ offset }) => offset >= from));
      },
    ),
    { numRuns: 100 },
  );
});

test.each([None, ZSTD])(
  "a wrong bit anywhere behind the length of a batch (codec %i) is found, or makes it another format",
  async (compression) => {
    const [batch] = await encoded(40, [{ ...good, compression }]);
    // Bytes 12 to 15, the leader's epoch, are under no checksum and mean nothing here.
    for (let at = 16; at < batch!.length; at++) {
      for (const bit of [1, 128]) {
        const wrong = Buffer.from(batch!);
        wrong[at]! ^= bit;
        if (at === 16) expect(whyUnsupported(wrong)).toMatch("of format");
        else
          expect(() => decodeBatches("t", 0, wrong, 40)).toThrow(
            "the record batch at offset 40 is damaged: its checksum",
          );
      }
    }
  },
);

test.each([-12, -1, 0, 4, 48, 49, 9_999])("a batch whose length is %i is an error, not an end", async (length) => {
  const [batch] = await encoded(40, [good]);
  batch!.writeInt32BE(length, 8);
  const { batches } = await passed(answerOf(batch!));
  expect(() => decodeBatches("t", 0, batches!, 40)).toThrow(/damaged|no whole record batch/);
});

test.each<[string, (batch: Buffer) => unknown, RegExp]>([
  ["more records than there are", (batch) => batch.writeInt32BE(4, 57), /no number before byte/],
  ["fewer records than there are", (batch) => batch.writeInt32BE(2, 57), /\d+ bytes behind its last record/],
  ["fewer than none", (batch) => batch.writeInt32BE(-1, 57), /\d+ bytes behind its last record/],
  ["a record longer than its fields", (batch) => batch.writeUInt8(batch[61]! + 2, 61), /offset 0 ends at byte/],
  ["a number of eleven bytes", (batch) => batch.fill(255, 61, 71), /no number before byte 10/],
  ["a key of less than no bytes", (batch) => batch.writeUInt8(3, 66), /no -2 bytes at/],
  ["a key behind the end", (batch) => batch.fill(255, 66, 70).writeUInt8(1, 70), /no -?\d+ bytes at/],
])("%s, under a checksum that holds: an error", async (_, change, message) => {
  const [batch] = await encoded(0, [{ ...good, compression: None }]);
  const decodedFrom = (copy: Buffer) => decodeBatches("t", 0, copy, 0);
  expect(decodedFrom(changed(batch!, () => undefined))).toHaveLength(3);
  expect(() => decodedFrom(changed(batch!, change))).toThrow(message);
});

describe("a small batch that decompresses to more than 16 MiB", () => {
  const zeros = { ...good.records[0]!, value: Buffer.alloc(17 * 1024 * 1024) };

  test("is refused with its place; one below the limit is read", async () => {
    const [small] = await encoded(40, [
      { ...good, records: [{ ...zeros, value: zeros.value.subarray(0, 15 * 1024 * 1024) }] },
    ]);
    expect(decodeBatches("t", 3, small!, 40)[0]!.value.length).toBe(15 * 1024 * 1024);
    const [before, bomb, after] = await encoded(37, [good, { ...good, records: [zeros] }, good]);
    expect(bomb!.length).toBeLessThan(4_096);
    const refusal = expect.objectContaining({
      code: "unreadable",
      message: "log t/3: the record batch at offset 40 decompresses to more than 16777216 bytes",
    });
    expect(() => decodeBatches("t", 3, bomb!, 40)).toThrow(refusal);
    const all = Buffer.concat([before!, bomb!, after!]);
    expect(decodeBatches("t", 3, all, 38).map(({ offset }) => offset)).toEqual([38, 39]);
    expect(() => decodeBatches("t", 3, all, 40)).toThrow(refusal);
  });

  test("is refused, too, if its frame does not state the size", async () => {
    const packing = new ZstdPacking(true);
    await packing.add(zeros.value);
    const { packed } = await packing.end();
    expect(() => unpackFrames(packed, 16 * 1024 * 1024)).toThrow(BadFrame);
    // Vitest would compare the bytes one by one.
    expect(unpackFrames(packed, zeros.value.length).equals(zeros.value)).toBe(true);
    const cut = packed.subarray(0, -1);
    expect(() => unpackFrames(cut, zeros.value.length)).toThrow(BadFrame);
    expect(() => unpackFrames(Buffer.concat([packed, cut]), 2 * zeros.value.length)).toThrow(/cut off/);
    const two = unpackFrames(Buffer.concat([packed, packed]), 2 * zeros.value.length);
    expect(two.length).toBe(2 * zeros.value.length);
  });

  test.each([ZSTD, GZIP])("is refused by the codecs of kafkajs too (codec %i)", async (compression) => {
    const answer = answerOf(Buffer.concat(await encoded(0, [{ ...good, compression, records: [zeros] }])), {
      partitions: 2,
    });
    await expect(passed(answer)).rejects.toThrow(/decompresses to more|larger than 16777216/);
  });
});

test("the checksum is Castagnoli's, of every length", () => {
  // RFC 3720, B.4; the check value of the catalogues of polynomials.
  expect(crc32c(Buffer.alloc(32), 0)).toBe(0x8a9136aa);
  expect(crc32c(Buffer.alloc(32, 255), 0)).toBe(0x62a8ab43);
  expect(crc32c(Buffer.from(Array.from({ length: 32 }, (_, n) => n)), 0)).toBe(0x46dd794e);
  expect(crc32c(Buffer.from("x123456789"), 1)).toBe(0xe3069283);
  const theirs = require("kafkajs/src/protocol/recordBatch/crc32C");
  for (let n = 0; n < 40; n++) expect(crc32c(Buffer.alloc(n, n), 0)).toBe(theirs(Buffer.alloc(n, n)));
});

describe("kafkajs decodes an answer", () => {
  const set = async (change?: (batch: Buffer) => void) => {
    const [first, second] = await encoded(0, [good, good]);
    return Buffer.concat([first!, change ? changed(second!, change) : second!]);
  };
  const oldFormat = () =>
    MessageSet({
      messageVersion: 1,
      entries: [
        { key: "k", value: "v" },
        { key: "k", value: "v" },
      ],
    }).buffer;

  test.each<[string, () => Promise<Buffer>, string[], number?]>([
    [
      "with gzip",
      async () => answerOf(Buffer.concat(await encoded(0, [good, { ...good, compression: GZIP }]))),
      ["record batches of codec 1"],
    ],
    [
      "of a transaction",
      async () => answerOf(await set((batch) => batch.writeInt16BE(ZSTD | 16, 21))),
      ["record batches of transactions"],
    ],
    [
      "with a control batch",
      async () => answerOf(await set((batch) => batch.writeInt16BE(ZSTD | 32, 21))),
      ["record batches of transactions"],
    ],
    ["of format 1", async () => answerOf(oldFormat()), ["record batches of format 1"]],
    ["of two partitions", async () => answerOf(await set(), { partitions: 2 }), ["an answer of several partitions"]],
    ["to another version", async () => answerOf(await set()), ["version 12 of Fetch"], 12],
    ["without records", async () => answerOf(Buffer.alloc(0)), []],
  ])("%s", async (_, made, why, version) => {
    const answer = await made();
    const { messages, warnings, batches } = await passed(answer, version);
    expect([messages, batches, warnings]).toEqual([await decoded(answer), null, why]);
  });

  test("with an error of the broker", async () => {
    const answer = answerOf(await set(), { error: 6 });
    await expect(passed(answer)).rejects.toMatchObject({ type: "NOT_LEADER_FOR_PARTITION" });
  });

  test("cut at any byte: nothing is taken of it", async () => {
    const answer = answerOf(await set());
    for (let end = 0; end < answer.length; end++) {
      const theirs = await decoded(answer.subarray(0, end)).catch((error: Error) => error.message);
      const ours = await passed(answer.subarray(0, end)).then(
        ({ messages }) => messages,
        (error: Error) => error.message,
      );
      expect(ours).toEqual(theirs);
    }
  });
});
