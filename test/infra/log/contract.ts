import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  type AppendedRecord,
  type Log,
  MAX_BATCH_RECORDS,
  MAX_VALUE_BYTES,
  type NewRecord,
  OffsetGone,
  OffsetPastEnd,
} from "../../../infra/log/log.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";

/** One log; every `open` is another client of it, as another process would be. */
export interface LogUnderTest {
  open(): Promise<Log>;
  dispose(): Promise<void>;
  /** Whether the log drops records when told to (the embedded one); else it must refuse. */
  truncates: boolean;
}

let made = 0;

/** A record nobody else writes. */
export function record(topic: string, partition: number, value: Uint8Array = Buffer.from(`v${made}`)): NewRecord {
  return { topic, partition, eventId: `rec_${randomBytes(6).toString("hex")}_${made++}`, key: `key ${made}`, value };
}

const batch = (topic: string, partition: number, n: number) =>
  Array.from({ length: n }, () => record(topic, partition));
const offsets = (found: readonly { offset: number }[]) => found.map((r) => r.offset);
const ids = (found: readonly { eventId: string }[]) => found.map((r) => r.eventId);
const upFrom = (start: number, n: number) => Array.from({ length: n }, (_, i) => start + i);

/** What every log must do. Offsets are taken from where a partition stands, so one log may serve the whole suite. */
export function logContract(name: string, makeLog: () => Promise<LogUnderTest>): void {
  describe(`log contract: ${name}`, () => {
    let under: LogUnderTest;
    let log: Log;
    let other: Log;

    beforeAll(async () => {
      under = await makeLog();
      log = await under.open();
      other = await under.open();
    });
    afterAll(async () => {
      await log.close();
      await other.close();
      await under.dispose();
    });

    const end = async (topic: string, partition: number) => (await log.bounds(topic, partition)).end;

    it("has an id and a partition count that every client sees", () => {
      expect(log.id).not.toBe("");
      expect(other.id).toBe(log.id);
      expect(other.partitions).toBe(log.partitions);
      expect(log.partitions).toBeGreaterThanOrEqual(2);
    });

    it("gives back what was appended, to every client", async () => {
      const at = await end("listings", 0);
      const before = Date.now();
      const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
      const records = [
        record("listings", 0, all),
        record("listings", 0, new Uint8Array(0)),
        { ...record("listings", 0, all.subarray(40, 50)), key: 'ключ "1" 🗝' },
      ];
      const appended = await log.append(records);
      expect(appended).toEqual(
        records.map(({ topic, partition, eventId }, i) => ({ topic, partition, eventId, offset: at + i })),
      );
      const found = await other.read("listings", 0, at);
      expect(found.map((r) => ({ ...r, value: Buffer.from(r.value).toString("hex"), appendedAt: 0 }))).toEqual(
        records.map((r, i) => ({ ...r, value: Buffer.from(r.value).toString("hex"), offset: at + i, appendedAt: 0 })),
      );
      for (const { appendedAt } of found) expect(Math.abs(appendedAt.getTime() - before)).toBeLessThan(60_000);
    });

    it("keeps offsets dense and a batch in order, in every partition of every topic", async () => {
      const places = TOPICS.flatMap((topic) => upFrom(0, log.partitions).map((partition) => ({ topic, partition })));
      const starts = await Promise.all(places.map((p) => end(p.topic, p.partition)));
      // Round robin, so that each place's records lie apart in the batch.
      const records = upFrom(0, 3).flatMap(() => places.map((p) => record(p.topic, p.partition)));
      expect(ids(await log.append(records))).toEqual(ids(records));
      for (const [i, { topic, partition }] of places.entries()) {
        const found = await other.read(topic, partition, starts[i]!);
        expect(offsets(found)).toEqual(upFrom(starts[i]!, 3));
        expect(ids(found)).toEqual(ids(records.filter((r) => r.topic === topic && r.partition === partition)));
      }
    });

    it("mixes concurrent appends without losing or doubling one", async () => {
      const at = await end("asks", 1);
      const batches = upFrom(0, 30).map((i) => batch("asks", 1, 1 + (i % 4)));
      const done = await Promise.all(batches.map((records, i) => (i % 3 ? log : other).append(records)));
      const total = batches.flat().length;
      expect(offsets(done.flat()).sort((a, b) => a - b)).toEqual(upFrom(at, total));
      const found = await log.read("asks", 1, at);
      const where = new Map(found.map((r) => [r.eventId, r.offset]));
      for (const appended of done.flat()) expect(where.get(appended.eventId)).toBe(appended.offset);
      for (const own of done) expect(offsets(own)).toEqual(offsets(own).sort((a, b) => a - b));
      expect(await end("asks", 1)).toBe(at + total);
    });

    it("reads in the portions it was asked for", async () => {
      const at = await end("watchers", 0);
      await log.append(upFrom(0, 10).map(() => record("watchers", 0, Buffer.alloc(100))));
      const read = async (from: number, options?: { maxRecords?: number; maxBytes?: number }) =>
        offsets(await log.read("watchers", 0, from, options));
      expect(await read(at)).toEqual(upFrom(at, 10));
      expect(await read(at + 7)).toEqual(upFrom(at + 7, 3));
      expect(await read(at, { maxRecords: 4 })).toEqual(upFrom(at, 4));
      expect(await read(at + 2, { maxBytes: 350 })).toEqual(upFrom(at + 2, 3));
      expect(await read(at, { maxBytes: 300 })).toEqual(upFrom(at, 3));
      expect(await read(at, { maxBytes: 1 })).toEqual([at]);
      expect(await read(at + 10)).toEqual([]);
    });

    it("waits for a first record, and no longer than it was told to", async () => {
      const at = await end("orders", 0);
      const from = performance.now();
      expect(await log.read("orders", 0, at, { waitMs: 150 })).toEqual([]);
      expect(performance.now() - from).toBeGreaterThan(120);

      const own = log.read("orders", 0, at, { waitMs: 60_000 });
      const foreign = other.read("orders", 0, at, { waitMs: 60_000 });
      await new Promise((resolve) => setTimeout(resolve, 30));
      const appended = await log.append([record("orders", 0)]);
      for (const found of [await own, await foreign]) expect(ids(found)).toEqual(ids(appended));
      expect(performance.now() - from).toBeLessThan(50_000);
    });

    it("stops waiting when it is told to", async () => {
      const stop = new AbortController();
      const waiting = log.read("orders", 1, await end("orders", 1), { waitMs: 60_000, signal: stop.signal });
      setTimeout(() => stop.abort(new Error("enough")), 30);
      await expect(waiting).rejects.toThrow("enough");
      await expect(log.read("orders", 1, 0, { signal: stop.signal })).rejects.toThrow("enough");
    });

    it("takes an empty batch for nothing", async () => {
      expect(await log.append([])).toEqual([]);
    });

    it("takes values and batches up to their limits", async () => {
      const at = await end("observations.mcp", 0);
      const large = record("observations.mcp", 0, randomBytes(MAX_VALUE_BYTES));
      await log.append([large]);
      const [found] = await log.read("observations.mcp", 0, at, { maxBytes: 10 });
      expect(Buffer.from(found!.value).equals(large.value)).toBe(true);
      const many = await log.append(batch("observations.mcp", 0, MAX_BATCH_RECORDS));
      expect(offsets(many)).toEqual(upFrom(at + 1, MAX_BATCH_RECORDS));
    });

    it.each<[string, () => NewRecord[]]>([
      ["a topic it does not have", () => [record("dead-letters", 0)]],
      ["a partition past the last", () => [record("asks", log.partitions)]],
      ["a negative partition", () => [record("asks", -1)]],
      ["half a partition", () => [record("asks", 0.5)]],
      ["a value too large", () => [record("asks", 0, Buffer.alloc(MAX_VALUE_BYTES + 1))]],
      ["a batch too large", () => batch("asks", 0, MAX_BATCH_RECORDS + 1)],
      ["an empty event id", () => [{ ...record("asks", 0), eventId: "" }]],
      ["a key that is no text", () => [{ ...record("asks", 0), key: "\ud800" }]],
    ])("refuses %s and stores nothing of the batch", async (_what, bad) => {
      const at = await end("asks", 0);
      await expect(log.append([record("asks", 0), ...bad()])).rejects.toThrow(/log/);
      expect(await end("asks", 0)).toBe(at);
    });

    it("refuses to read where it has nothing", async () => {
      await expect(log.read("dead-letters", 0, 0)).rejects.toThrow();
      await expect(log.read("asks", log.partitions, 0)).rejects.toThrow();
      await expect(log.read("asks", 0, -1)).rejects.toThrow();
      await expect(log.read("asks", 0, 0, { maxRecords: 0 })).rejects.toThrow();
      await expect(log.bounds("dead-letters", 0)).rejects.toThrow();
    });

    it("refuses to read past the next offset to be given, at once", async () => {
      const at = await end("listings", 1);
      const from = performance.now();
      const past = await log.read("listings", 1, at + 1, { waitMs: 60_000 }).catch((e: unknown) => e);
      expect(past).toBeInstanceOf(OffsetPastEnd);
      expect(past).toMatchObject({ topic: "listings", partition: 1, requestedOffset: at + 1, end: at });
      expect(performance.now() - from).toBeLessThan(50_000);
      expect(offsets(await log.append([record("listings", 1)]))).toEqual([at]);
      expect(await log.read("listings", 1, at + 1)).toEqual([]);
    });

    it("drops what it is told to drop, or refuses", async () => {
      const at = await end("corrections", 1);
      const appended: AppendedRecord[] = await log.append(batch("corrections", 1, 10));
      if (!under.truncates) {
        await expect(log.truncate("corrections", 1, at + 5)).rejects.toThrow();
        expect(offsets(await log.read("corrections", 1, at))).toEqual(offsets(appended));
        return;
      }
      await log.truncate("corrections", 1, at + 5);
      expect(await other.bounds("corrections", 1)).toEqual({ start: at + 5, end: at + 10 });
      const gone = await other.read("corrections", 1, at + 4).catch((e: unknown) => e);
      expect(gone).toBeInstanceOf(OffsetGone);
      expect(gone).toMatchObject({ topic: "corrections", partition: 1, requestedOffset: at + 4, start: at + 5 });
      expect(offsets(await other.read("corrections", 1, at + 5))).toEqual(upFrom(at + 5, 5));

      await log.truncate("corrections", 1, at + 10);
      await log.truncate("corrections", 1, at + 3);
      expect(await other.bounds("corrections", 1)).toEqual({ start: at + 10, end: at + 10 });
      await expect(log.truncate("corrections", 1, at + 11)).rejects.toThrow();
      // An offset is never given twice, also not when nothing is left.
      const later = await under.open();
      expect(offsets(await later.append([record("corrections", 1)]))).toEqual([at + 10]);
      await later.close();
    });

    it("finishes what is under way when it closes, and takes nothing after", async () => {
      const closing = await under.open();
      const at = await end("observations.free", 0);
      const underWay = closing.append(batch("observations.free", 0, 3));
      await closing.close();
      expect(offsets(await underWay)).toEqual(upFrom(at, 3));
      await expect(closing.append([record("observations.free", 0)])).rejects.toThrow();
      await expect(closing.read("observations.free", 0, at)).rejects.toThrow();
      expect(await end("observations.free", 0)).toBe(at + 3);
    });
  });
}
