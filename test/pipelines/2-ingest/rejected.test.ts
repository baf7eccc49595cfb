import { readFile, writeFile } from "node:fs/promises";
import { afterEach, describe, expect, test } from "vitest";
import { openChain } from "../../../infra/chain/commits.ts";
import { Failure } from "../../../infra/errors.ts";
import { type Log, type LogRecord, MAX_VALUE_BYTES, type NewRecord } from "../../../infra/log/log.ts";
import { encodeRejected, parseRejected } from "../../../pipelines/2-ingest/batch.ts";
import { linePartsOf, type Row, writeSegment } from "../../../pipelines/2-ingest/day-segments.ts";
import { Partition } from "../../../pipelines/2-ingest/partition.ts";
import { type Rejected, readRow, scanMember } from "../../../pipelines/2-ingest/row.ts";
import { redrivePartition } from "../../../pipelines/2-ingest/tidy.ts";
import type { IngestedTopic } from "../../../pipelines/record/topics.ts";
import { fc } from "../../helpers/histories.ts";
import { type Breach, failing } from "./failing.ts";
import { proveIngest, tablesOf } from "./prove-ingest.ts";
import { at, capOf, handshake, later, seal } from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

let world: World | undefined;
afterEach(async () => {
  await world?.close();
  world = undefined;
});

const read = (record: NewRecord) => readRow({ ...record, offset: 7, appendedAt: new Date(0) });
/** A handshake whose envelope text was changed. */
function changed(change: (text: string) => string): LogRecord {
  const record = handshake("a", at("02:00:00"));
  return {
    ...record,
    value: Buffer.from(change(Buffer.from(record.value).toString())),
    offset: 7,
    appendedAt: new Date(0),
  };
}

describe("what a segment takes", () => {
  test("a time is what Date.parse reads if it prints the same text, else none", () => {
    const digits = (most: number, width: number) =>
      fc.integer({ min: 0, max: most }).map((n) => String(n).padStart(width, "0"));
    const drawn = fc.tuple(
      digits(9_999, 4),
      digits(14, 2),
      digits(33, 2),
      digits(25, 2),
      digits(61, 2),
      digits(61, 2),
      digits(999, 3),
    );
    fc.assert(
      fc.property(drawn, ([year, month, day, hour, minute, second, ms]) => {
        const text = `${year}-${month}-${day}T${hour}:${minute}:${second}.${ms}Z`;
        const parsed = Date.parse(text);
        const exists = !Number.isNaN(parsed) && new Date(parsed).toISOString() === text;
        const result = readRow(changed((record) => record.replace("2026-11-10T02:00:00.000Z", text)));
        expect(result.ok ? result.row.observedMs : result.rejected.reason).toBe(
          exists ? parsed : "observed_at is no time",
        );
      }),
      { numRuns: 2_000 },
    );
  });

  test.each([
    ["not JSON", (text: string) => text.slice(1), /not JSON/],
    ["a version of tomorrow", (text: string) => text.replace('"v":1', '"v":2'), /future/],
    ["a type of tomorrow", (text: string) => text.replace('"type":"handshake"', '"type":"handclasp"'), /unknown type/],
    ["another topic's type", (text: string) => text.replace('"handshake"', '"listing"'), /listing/],
    ["another id", (text: string) => text.replace(/rec_./, (id) => `rec_${id.endsWith("0") ? 1 : 0}`), /event_id/],
    [
      "a key with a control character",
      (text: string) => text.replace(/"producer":"/, '"producer":"\\u001f'),
      /control/,
    ],
    ["31 February", (text: string) => text.replace("2026-11-10T", "2026-02-31T"), /no time/],
    ["hour 24", (text: string) => text.replace("T02:00:00.000Z", "T24:00:00.000Z"), /no time/],
    ["half a surrogate pair", (text: string) => text.replace('"differs"', '"x":"\\ud83d","differs"'), /surrogate/],
    ["a number past a double", (text: string) => text.replace('"differs"', '"x":1e999,"differs"'), /Infinity/],
    [
      "65 levels",
      (text: string) => text.replace('"differs"', `"x":${"[".repeat(65)}${"]".repeat(65)},"differs"`),
      /deeper/,
    ],
    [
      "a name twice in one object",
      (text: string) => text.replace('"differs"', '"x":[{"a":{},"b":1,"a":2}],"differs"'),
      /"a" twice in one object/,
    ],
    [
      "a name twice, once with an escape",
      (text: string) => text.replace('"differs"', '"x":{"price":1,"pri\\u0063e":2},"differs"'),
      /"price" twice/,
    ],
    [
      "more than 1 MiB",
      (text: string) => text.replace('"differs"', `"x":"${"a".repeat(MAX_VALUE_BYTES)}","differs"`),
      /longer than 1048576 bytes/,
    ],
    [
      "unknown members that get too long when they are printed again",
      (text: string) => `{"tomorrow":[${Array(200_000).fill("1e20")}],${text.slice(1)}`,
      /unknown members are too long/,
    ],
  ])("not %s", (_what, change, reason) => {
    const record = changed(change);
    const result = readRow(record);
    expect(result).toMatchObject({
      ok: false,
      rejected: { offset: 7, topic: "observations.free", event_id: record.eventId },
    });
    if (result.ok) return;
    expect(result.rejected.reason).toMatch(reason);
    // Not toEqual, which takes seconds for the elements of a megabyte.
    expect(Buffer.from(result.rejected.raw, "base64").equals(record.value)).toBe(true);
  });

  test("members that nobody knows yet, with the bytes of the body as they came", () => {
    const record = changed(
      (text) => `{ "tomorrow": [1.10], ${text.slice(1).replace('"differs"', '"x" : 1.50,"differs"')}`,
    );
    const result = readRow(record);
    if (!result.ok) throw new Error(result.rejected.reason);
    expect(result.row.body.startsWith('{"x" : 1.50,"differs"')).toBe(true);
    expect(JSON.parse(result.row.extra!)).toEqual({ tomorrow: [1.1] });
  });

  test("any JSON object: the scan finds the member that JSON.parse finds", () => {
    const object = fc.dictionary(fc.constantFrom("body", "a", '"', "\\", "{"), fc.jsonValue({ maxDepth: 3 }));
    const spaced = fc.constantFrom(undefined, 1, "\t");
    fc.assert(
      fc.property(object, spaced, (value, space) => {
        const text = JSON.stringify(value, null, space);
        const found = scanMember(text, "body").text;
        expect(found === undefined ? undefined : JSON.parse(found)).toEqual((JSON.parse(text) as typeof value).body);
      }),
    );
    expect(scanMember('{"body":1,"body":{"a":"}"}}', "body")).toEqual({
      ...{ text: '{"a":"}"}', depth: 2, odd: false, repeated: null },
    });
    expect(scanMember('{"a":{"b":[{"a":1},{"a":1}]},"c":{"a":"a"},"b":1}', "c")).toMatchObject({ repeated: null });
    expect(scanMember('{"a":1,"b":[0,{"c":":","c":1}]}', "a")).toMatchObject({ text: "1", repeated: "c" });
    expect(scanMember('{"body":{"a":1e5}}', "body").odd).toBe(true);
    expect(read(handshake("a", at("02:00:00"))).ok).toBe(true);
  });
});

test("a tally of 31 February is rejected, and left out where an earlier version took it", async () => {
  world = await openTestWorld();
  const body = { day: "2026-02-28", replica: "r1", asked: [{ cap: capOf("a"), clients: 1 }] };
  const sealed = seal("demand", "demand/r1", "tally", at("12:00:00"), body);
  const wrongDay = (text: string) => text.replace(body.day, "2026-02-31");
  const tally = { ...sealed, value: Buffer.from(wrongDay(Buffer.from(sealed.value).toString())) };
  await world.append(tally);
  const [record] = await world.log.read("asks", tally.partition, 0);
  expect(readRow(record!)).toMatchObject({ ok: false, rejected: { reason: expect.stringMatching(/day/) } });
  const { eventId, key } = tally;
  const observedMs = Date.parse(at("12:00:00"));
  await commitLine(world, tally, {
    ...{ offset: 0, eventId, type: "demand", key, cap: null, observedMs, producer: "test/1", v: 1 },
    ...{ appendedMs: observedMs, body: wrongDay(JSON.stringify(body)), extra: null },
  });
  await world.ingest.pass();
  await world.ingest.rebuild();
  expect(await world.lake.all("SELECT topic FROM loaded")).toEqual([{ topic: "asks" }]);
  expect(await world.lake.all("FROM demand")).toEqual([]);
});

const placeOf = (w: World, { topic, partition }: { topic: string; partition: number }): Partition =>
  new Partition(
    { log: w.log, privateStore: w.store, lake: w.lake, clock: w.clock, ownHosts: new Set() },
    topic as IngestedTopic,
    partition,
  );

/** Commits the first record of a partition as a segment of this row. */
async function commitLine(w: World, at: { topic: string; partition: number }, row: Row): Promise<void> {
  const place = placeOf(w, at);
  const [lines, segment] = [place.path("lines"), place.path("parquet")];
  await writeFile(lines, linePartsOf(row).join(""));
  await writeSegment(w.lake, place, { lines, segment });
  const ref = await place.chain.putSegment(await readFile(segment), 0, 0, { rows: 1 });
  await place.commit({ first: 0, next: 1, lastEventId: row.eventId, add: [ref], remove: [] });
}

/** A chain as a build of yesterday left it: it took one of three records, and rejected two that we can read. */
async function written(w: World): Promise<{ place: Partition; records: NewRecord[] }> {
  const records = [1, 2, 3].map((hour) => handshake("a", at(`0${hour}:00:00`)));
  await w.append(...records);
  const { topic, partition } = records[0]!;
  const place = placeOf(w, { topic, partition });
  const kept = await w.log.read(topic, partition, 0);
  const taken = readRow(kept[1]!);
  if (!taken.ok) throw new Error("unreadable");
  const rejected = [kept[0]!, kept[2]!].map(
    (record): Rejected => ({
      ...{ topic, partition, offset: record.offset, reason: "unknown type", event_id: record.eventId, key: record.key },
      ...{ appended_at: record.appendedAt.toISOString(), raw: Buffer.from(record.value).toString("base64") },
    }),
  );
  const [lines, segment] = [place.path("lines"), place.path("parquet")];
  await writeFile(lines, linePartsOf(taken.row).join(""));
  await writeSegment(w.lake, place, { lines, segment });
  const content = { rows: 1, rejected: { records: 2, bytes: encodeRejected(rejected) } };
  const ref = await place.chain.putSegment(await readFile(segment), 0, 2, content);
  await place.commit({ first: 0, next: 3, lastEventId: kept[2]!.eventId, add: [ref], remove: [] });
  return { place, records };
}

test("records before a place that cannot be read are committed; the pass fails there", async () => {
  world = await openTestWorld();
  const records = [1, 2, 3].map((hour) => handshake("a", at(`0${hour}:00:00`)));
  await world.append(...records);
  const { topic, partition } = records[0]!;
  const unreadable = new Failure("unreadable", "the record batch at offset 2 decompresses to too much");
  const read: Log["read"] = async (topicName, part, from, options) => {
    if (topicName === topic && from >= 2) throw unreadable;
    const found = await world!.log.read(topicName, part, from, options);
    return found.filter(({ offset }) => topicName !== topic || offset < 2);
  };
  const log = new Proxy(world.log, {
    get: (whole, name) =>
      name === "read" ? read : (Reflect.get(whole, name).bind?.(whole) ?? Reflect.get(whole, name)),
  });
  const ingest = await world.rival({ log, lake: world.lake });
  await expect(ingest.pass()).rejects.toBe(unreadable);
  expect(await placeOf(world, { topic, partition }).chain.head()).toMatchObject({ next: 2 });
  await world.ingest.pass();
  await proveIngest(world);
});

describe("redrive", () => {
  test("what passes now is appended again, once, past what was read, and the lake rebuilt is the same", async () => {
    world = await openTestWorld();
    const { place } = await written(world);
    await world.ingest.pass();
    await proveIngest(world);
    expect(await world.lake.all("FROM every_sample")).toHaveLength(1);
    expect(await world.ingest.redrive()).toEqual({ found: 2, left: 0 });
    expect(await world.ingest.redrive()).toEqual({ found: 0, left: 0 });
    await proveIngest(world);
    const { live } = await place.chain.head();
    expect(live).toMatchObject([
      { first: 0, last: 2, rows: 1, rejected: 2 },
      { first: 3, last: 4, rows: 2, rejected: 0 },
    ]);
    const marked = parseRejected(await place.chain.readSegment(live[0]!.rejects!));
    expect(marked.map(({ offset, moved_to }) => [offset, moved_to])).toEqual([
      [0, 3],
      [2, 4],
    ]);
    const loaded = await world.lake.all<{ file: string }>("SELECT file FROM loaded");
    expect(loaded.map(({ file }) => file).sort()).toEqual(live.map(({ file }) => file).sort());
    const tables = await tablesOf(world.lake);
    expect(tables.samples).toHaveLength(3);
    await world.ingest.rebuild();
    expect(await tablesOf(world.lake)).toEqual(tables);
  });

  test.each([0, 1].flatMap((n) => (["before", "after"] as const).map((when) => [when, n] as const)))(
    "broken off %s write %i, done again",
    async (when, n) => {
      world = await openTestWorld();
      await written(world);
      await world.ingest.pass();
      const { broken, reached } = failing(world.store, { method: "create", n, when } satisfies Breach<
        typeof world.store
      >);
      await expect((await world.rival({ privateStore: broken, lake: world.lake })).redrive()).rejects.toThrow("broken");
      expect(reached()).toBe(true);
      const next = await world.rival({ lake: world.lake });
      await next.redrive();
      await proveIngest(world);
      expect(await world.lake.all("FROM every_sample")).toHaveLength(3);
    },
  );

  test("of more bytes than one append takes: all are appended again", async () => {
    world = await openTestWorld();
    const records = Array.from({ length: 66 }, (_, n) => handshake("a", later(at("00:00:00"), n)));
    const member = `"x":"${"a".repeat(MAX_VALUE_BYTES - 8_192)}","differs"`;
    const rejected = records.map(({ topic, partition, eventId, key, value }, offset): Rejected => {
      const raw = Buffer.from(Buffer.from(value).toString().replace('"differs"', member)).toString("base64");
      return { topic, partition, offset, reason: "?", event_id: eventId, key, appended_at: at("00:00:00"), raw };
    });
    const place = placeOf(world, records[0]!);
    const content = { rows: 0, rejected: { records: 66, bytes: encodeRejected(rejected) } };
    const ref = await place.chain.putSegment(Buffer.from("no rows"), 0, 65, content);
    await place.commit({ first: 0, next: 66, lastEventId: records[65]!.eventId, add: [ref], remove: [] });
    expect(await redrivePartition(place, world.log)).toEqual({ found: 66, left: 0 });
    expect(await world.log.bounds(place.topic, place.partition)).toEqual({ start: 0, end: 66 });
  });

  test("a rejected file comes back as it was written, by anybody who has the chain", async () => {
    world = await openTestWorld();
    const { place } = await written(world);
    const { topic, partition } = place;
    const chain = openChain(world.store, { logId: world.log.id, topic, partition });
    const [ref] = (await chain.head()).live;
    const lines = parseRejected(await chain.readSegment(ref!.rejects!));
    expect(lines.map((line) => [line.offset, line.reason])).toEqual([
      [0, "unknown type"],
      [2, "unknown type"],
    ]);
  });
});
