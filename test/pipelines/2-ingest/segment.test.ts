import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parquetMetadata, parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Lake, openLake } from "../../../infra/lake/duckdb.ts";
import { bodyBytes, type Row, Segment } from "../../../pipelines/2-ingest/segment.ts";
import { recordId } from "../../../pipelines/record/ids.ts";
import { fc } from "../../helpers/histories.ts";

const PLACE = { topic: "observations.free", partition: 3 };
let dir: string;
let lake: Lake;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "segment-"));
  lake = await openLake(join(dir, "lake.duckdb"), {
    memoryLimit: "512MB",
    threads: 2,
    init: ["SET GLOBAL TimeZone = 'UTC'", "SET GLOBAL enable_external_file_cache = false"],
  });
});
afterAll(async () => {
  await lake.close();
  await rm(dir, { recursive: true, force: true });
});

/** A row as every reader is to give it back, its moments in ms. */
const given = (row: Row) => ({
  ...{ topic: PLACE.topic, part: PLACE.partition, offset: BigInt(row.offset), event_id: row.eventId, type: row.type },
  ...{ key: row.key, cap: row.cap, observed_at: new Date(row.observedMs), producer: row.producer, v: row.v },
  ...{ appended_at: new Date(row.appendedMs), body: Buffer.from(bodyBytes(row.body)).toString(), extra: row.extra },
});

function bytesOf(rows: readonly Row[]): Uint8Array {
  const segment = new Segment(PLACE);
  for (const row of rows) segment.add(row);
  expect(segment.rows).toBe(rows.length);
  return segment.close();
}

const bufferOf = (bytes: Uint8Array): ArrayBuffer => new Uint8Array(bytes).buffer;
const readAlone = (bytes: Uint8Array) => parquetReadObjects({ file: bufferOf(bytes), compressors });

async function readByEngine(bytes: Uint8Array): Promise<object[]> {
  const path = join(dir, "own.parquet");
  await writeFile(path, bytes);
  return lake.all(`SELECT * FROM read_parquet('${path}', file_row_number = FALSE)`);
}

/** As segments were made before: a line of JSON a row, read and written by the engine. Old segments are such files. */
async function writtenByEngine(rows: readonly Row[]): Promise<string> {
  const [lines, path] = [join(dir, "rows.ndjson"), join(dir, "engine.parquet")];
  const text = rows.map((row) => {
    const { topic, part, offset, ...rest } = given(row);
    return `${JSON.stringify({ ...rest, offset: Number(offset) })}\n`;
  });
  await writeFile(lines, text.join(""));
  await lake.run(`COPY (
    SELECT '${PLACE.topic}' AS topic, ${PLACE.partition}::USMALLINT AS part, "offset", event_id, type, key, cap, observed_at,
      producer, v, appended_at, body, extra
    FROM read_json('${lines}', format = 'newline_delimited', maximum_object_size = 16777216, columns = {
      "offset": 'BIGINT', event_id: 'VARCHAR', type: 'VARCHAR', key: 'VARCHAR', cap: 'VARCHAR', observed_at: 'TIMESTAMP',
      producer: 'VARCHAR', v: 'USMALLINT', appended_at: 'TIMESTAMP', body: 'VARCHAR', extra: 'VARCHAR'})
  ) TO '${path}' (FORMAT parquet, COMPRESSION zstd)`);
  return path;
}

const words = fc.oneof(
  fc.string({ unit: "grapheme", minLength: 1 }),
  fc.string({ unit: "binary", minLength: 1 }),
  fc.constantFrom("é", "\u2028", '"', "\\", "\u{1f600}", "null", "x".repeat(512)),
);
const bodies = fc.oneof(
  { weight: 6, arbitrary: fc.jsonValue({ maxDepth: 3 }).map((x) => JSON.stringify({ x })) },
  { weight: 2, arbitrary: words.map((x) => JSON.stringify({ x })) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 60_000 }).map((n) => `{"x":"${"é-".repeat(n / 2)}"}`) },
  { weight: 1, arbitrary: fc.constantFrom("{}", "") },
);
const moments = fc.oneof(
  fc.integer({ min: Date.parse("0001-01-01T00:00:00.000Z"), max: Date.parse("9999-12-31T23:59:59.999Z") }),
  fc.constantFrom(0, -1, 1, Date.parse("2024-02-29T23:59:59.999Z")),
);
const rowsOf = fc
  .array(
    fc.record({
      gap: fc.integer({ min: 1, max: 5 }),
      type: fc.constantFrom("handshake", "paid.intent", "ask"),
      key: words,
      cap: fc.option(fc.constantFrom("cap_a", "cap_b")),
      observedMs: moments,
      producer: fc.constantFrom("bench/1", "", "é"),
      v: fc.integer({ min: 0, max: 65_535 }),
      appendedMs: moments,
      body: bodies,
      extra: fc.option(words, { freq: 2 }),
    }),
    { maxLength: 60 },
  )
  .chain((drawn) =>
    fc.integer({ min: 0, max: 2 ** 52 }).map((first) => {
      let offset = first;
      return drawn.map(({ gap, body, ...row }, i): Row => {
        offset += gap;
        return { ...row, offset, eventId: recordId("handshake", "cap", String(i)), body: Buffer.from(body) };
      });
    }),
  );

test("any rows read the same by the engine, by another reader, and as the engine's own file of their lines", async () => {
  await fc.assert(
    fc.asyncProperty(rowsOf, async (rows) => {
      const bytes = bytesOf(rows);
      const wanted = rows.map(given);
      expect(await readAlone(bytes)).toEqual(wanted);
      const read = await readByEngine(bytes);
      expect(read).toEqual(wanted);
      if (rows.length > 0) expect(await lake.all(`FROM read_parquet('${await writtenByEngine(rows)}')`)).toEqual(read);
    }),
    { numRuns: 60 },
  );
});

/** Names, types, nulls allowed: what tells a column of one file from that of another. */
const shape = (bytes: ArrayBuffer) =>
  parquetMetadata(bytes)
    .schema.slice(1)
    .map(({ name, type, repetition_type, converted_type, logical_type }) => {
      return { name, type, repetition_type, converted_type, logical_type };
    });

const plain = (n: number, over: Partial<Row> = {}): Row => ({
  ...{ offset: n, eventId: recordId("handshake", "cap", String(n)), type: "handshake", key: `cap_${n}`, cap: null },
  ...{ observedMs: n * 60_000, producer: "test/1", v: 1, appendedMs: 5, body: Buffer.from(`{"n":${n}}`), extra: null },
  ...over,
});

test("columns have the names, types and order of the engine's files, and the same smallest and largest values", async () => {
  const rows = [plain(3), plain(9), plain(11, { observedMs: -5 })];
  const [own, engine] = [bufferOf(bytesOf(rows)), bufferOf(await readFile(await writtenByEngine(rows)))];
  expect(shape(own)).toEqual(shape(engine));
  expect(shape(bufferOf(bytesOf([])))).toEqual(shape(engine));
  const ranges = (file: ArrayBuffer) =>
    parquetMetadata(file).row_groups[0]!.columns.flatMap(({ meta_data: meta }) => {
      const { min_value, max_value, null_count } = meta?.statistics ?? {};
      return meta?.type === "INT64" ? [{ name: meta.path_in_schema, min_value, max_value, null_count }] : [];
    });
  expect(ranges(own)).toEqual(ranges(engine));
});

test.each([1, 2, 255, 256, 257, 65_536, 65_537])("%i keys in one file, each where it belongs", async (keys) => {
  const rows = Array.from({ length: keys + 9 }, (_, n) => plain(n, { key: `key ${n % keys}` }));
  const bytes = bytesOf(rows);
  const [path, wanted] = [join(dir, "keys.parquet"), rows.map(({ key }) => key).join()];
  await writeFile(path, bytes);
  const read = await lake.all<{ key: string }>(`SELECT key FROM read_parquet('${path}') ORDER BY "offset"`);
  expect(read.map(({ key }) => key).join() === wanted).toBe(true);
  const alone = await parquetReadObjects({ file: bufferOf(bytes), compressors, columns: ["key"] });
  expect(alone.map(({ key }) => key).join() === wanted).toBe(true);
});

test("bodies of one megabyte among small ones: pages grow and lose nothing", async () => {
  const sizes = [10, 1_048_000, 0, 70_000, 112 * 1024, 3, 1_048_000];
  const rows = Array.from({ length: 40 }, (_, n) =>
    plain(n, { body: Buffer.from(String.fromCharCode(97 + (n % 26)).repeat(sizes[n % sizes.length]!)) }),
  );
  const bytes = bytesOf(rows);
  expect(await readAlone(bytes)).toEqual(rows.map(given));
  expect(await readByEngine(bytes)).toEqual(rows.map(given));
});
