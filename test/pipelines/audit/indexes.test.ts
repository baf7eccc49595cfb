import { afterAll, beforeAll, expect, test } from "vitest";
import { writeIndex } from "../../../pipelines/4-publish/index-build.ts";
import { PackedBytesCheck } from "../../../pipelines/audit/findings.ts";
import { LogReading } from "../../../pipelines/audit/log-reading.ts";
import { RecordReader, readCheckpoint } from "../../../pipelines/published/reader.ts";
import { DirectorySource, type Source } from "../../../pipelines/published/source.ts";
import { PublicRecord } from "../../helpers/public-record.ts";
import { grow, publishKeys, sourceDir } from "../mirror/testbed.ts";

let record: PublicRecord;

/** Three indexes; the leaf of each stands behind others that it does not know. */
beforeAll(async () => {
  record = await PublicRecord.open();
  await publishKeys(record);
  for (const name of ["a", "b", "c"]) {
    await grow(record, name, 20);
    const draft = await writeIndex(record.store, record.committer.fold, record.keys.cards);
    await grow(record, `${name}-more`, 3);
    await record.publish([draft!]);
  }
});
afterAll(() => record.close());

async function reading(source: Source, maxHeld?: number) {
  const { size, root } = (await readCheckpoint(record.store, record.trust))!;
  const { leaves } = await RecordReader.open(record.store, { size, root }).then((reader) => ({
    leaves: reader.leaves(),
  }));
  const log = new LogReading(source, size, new PackedBytesCheck("strict"), maxHeld);
  for await (const { bytes } of leaves) await log.add(bytes);
  await log.end({ size, root }, () => undefined);
  return log.findings.filter(({ check }) => check.startsWith("index"));
}

test.each([
  ["as they go by", undefined],
  ["a second time, where their leaves stand further behind than what is held", 1],
])("indexes are rebuilt %s", async (_, maxHeld) => {
  const asked: string[] = [];
  const inner = new DirectorySource(sourceDir(record));
  const source: Source = {
    name: "noting",
    get: (key, maxBytes) => {
      asked.push(key);
      return inner.get(key, maxBytes);
    },
    close: () => inner.close(),
  };
  expect(await reading(source, maxHeld)).toMatchObject([
    { check: "indexes, rebuilt from the log", result: "ok", checked: 3 },
    { check: "index shards", result: "ok", checked: 3 },
    { check: "index tables (Parquet)", result: "ok", checked: 3 },
  ]);
  expect(asked.filter((key) => key.startsWith("tile/entries/")).length > 0).toBe(maxHeld === 1);
});
