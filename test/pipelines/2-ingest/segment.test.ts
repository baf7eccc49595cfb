import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Lake, openLake } from "../../../infra/lake/duckdb.ts";
import { linePartsOf, type Row, writeSegment } from "../../../pipelines/2-ingest/day-segments.ts";
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
  ...{ appended_at: new Date(row.appendedMs), body: row.body.replace(/[\r\n]/g, " "), extra: row.extra },
});

async function bytesOf(rows: readonly Row[]): Promise<Uint8Array> {
  const [lines, segment] = [join(dir, "rows.lines"), join(dir, "made.parquet")];
  await writeFile(lines, rows.flatMap(linePartsOf).join(""));
  await writeSegment(lake, PLACE, { lines, segment });
  return readFile(segment);
}

const bufferOf = (bytes: Uint8Array): ArrayBuffer => new Uint8Array(bytes).buffer;
const readAlone = (bytes: Uint8Array) => parquetReadObjects({ file: bufferOf(bytes), compressors });

async function readByEngine(bytes: Uint8Array): Promise<object[]> {
  const path = join(dir, "own.parquet");
  await writeFile(path, bytes);
  return lake.all(`SELECT * FROM read_parquet('${path}', file_row_number = FALSE)`);
}

const words = fc
  .oneof(
    fc.string({ unit: "grapheme", minLength: 1 }),
    fc.string({ unit: "binary", minLength: 1 }),
    fc.constantFrom(
      "é",
      "\u2028",
      "x\ufeff",
      '"',
      "'",
      "#",
      " x ",
      ",",
      "\\",
      "\\n",
      "\u{1f600}",
      "null",
      "x".repeat(512),
    ),
  )
  // The other reader takes a byte order mark at the start of a text for none of it.
  .filter((text) => !/\p{Cc}|^\ufeff/u.test(text));
const bodies = fc.oneof(
  { weight: 6, arbitrary: fc.jsonValue({ maxDepth: 3 }).map((x) => JSON.stringify({ x })) },
  { weight: 2, arbitrary: words.map((x) => JSON.stringify({ x })) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 60_000 }).map((n) => `{"x":"${"é-".repeat(n / 2)}"}`) },
  {
    weight: 1,
    arbitrary: fc.jsonValue({ maxDepth: 2 }).map((x) => JSON.stringify({ x }, null, 1).replace("\n", "\r\n")),
  },
  { weight: 1, arbitrary: fc.constantFrom("{}", '{"\\u001f":"\\u001f"}') },
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
        return { ...row, offset, eventId: recordId("handshake", "cap", String(i)), body };
      });
    }),
  );

test("any rows read the same by the engine and by another reader, line breaks of bodies as spaces", async () => {
  await fc.assert(
    fc.asyncProperty(rowsOf, async (rows) => {
      const bytes = await bytesOf(rows);
      const wanted = rows.map(given);
      expect(await readAlone(bytes)).toEqual(wanted);
      expect(await readByEngine(bytes)).toEqual(wanted);
    }),
    { numRuns: 60 },
  );
});

const plain = (n: number, over: Partial<Row> = {}): Row => ({
  ...{ offset: n, eventId: recordId("handshake", "cap", String(n)), type: "handshake", key: `cap_${n}`, cap: null },
  ...{ observedMs: n * 60_000, producer: "test/1", v: 1, appendedMs: 5, body: `{"n":${n}}`, extra: null },
  ...over,
});

test("columns have the names and types that the docstring lists, also in a file without a row", async () => {
  const columns = [
    ...[
      "topic VARCHAR",
      "part USMALLINT",
      "offset BIGINT",
      "event_id VARCHAR",
      "type VARCHAR",
      "key VARCHAR",
      "cap VARCHAR",
    ],
    ...[
      "observed_at TIMESTAMP",
      "producer VARCHAR",
      "v USMALLINT",
      "appended_at TIMESTAMP",
      "body VARCHAR",
      "extra VARCHAR",
    ],
  ];
  for (const rows of [[], [plain(3), plain(9, { observedMs: -5 })]]) {
    await writeFile(join(dir, "named.parquet"), await bytesOf(rows));
    const found = await lake.all<{ column_name: string; column_type: string }>(
      `DESCRIBE FROM read_parquet('${join(dir, "named.parquet")}')`,
    );
    expect(found.map(({ column_name, column_type }) => `${column_name} ${column_type}`)).toEqual(columns);
  }
});

// Proves 65,537 keys.
test.each([1, 2, 255, 256, 257, 65_536, 65_537])("%i keys in one file, each where it belongs", async (keys) => {
  const rows = Array.from({ length: keys + 9 }, (_, n) => plain(n, { key: `key ${n % keys}` }));
  const bytes = await bytesOf(rows);
  const [path, wanted] = [join(dir, "keys.parquet"), rows.map(({ key }) => key).join()];
  await writeFile(path, bytes);
  const read = await lake.all<{ key: string }>(`SELECT key FROM read_parquet('${path}') ORDER BY "offset"`);
  expect(read.map(({ key }) => key).join() === wanted).toBe(true);
  const alone = await parquetReadObjects({ file: bufferOf(bytes), compressors, columns: ["key"] });
  expect(alone.map(({ key }) => key).join() === wanted).toBe(true);
});

test("bodies of one megabyte among small ones: pages grow and lose nothing", async () => {
  const sizes = [10, 1_048_000, 2, 70_000, 112 * 1024, 3, 1_048_000];
  const rows = Array.from({ length: 40 }, (_, n) =>
    plain(n, { body: String.fromCharCode(97 + (n % 26)).repeat(sizes[n % sizes.length]!) }),
  );
  const bytes = await bytesOf(rows);
  expect(await readAlone(bytes)).toEqual(rows.map(given));
  expect(await readByEngine(bytes)).toEqual(rows.map(given));
});
