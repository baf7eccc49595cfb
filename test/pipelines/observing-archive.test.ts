import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FixedClock } from "../../infra/clock.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import type { Log } from "../../infra/log/log.ts";
import { Followed } from "../../pipelines/4-publish/followed.ts";
import { addDays } from "../../pipelines/record/time.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import type { Pipeline } from "../../pipelines/roles/pipeline.ts";
import { handshake, later } from "./2-ingest/records.ts";
import { TRUST } from "./4-publish/world.ts";
import { Deployment } from "./roles/deployment.ts";
import { dayOf, PARTITIONS, placed, SELLERS } from "./roles/records.ts";

/** An observer's lake holds all partitions and archives nothing: its rows leave by what another process filed. */
const START = "2026-10-05T00:00:00.000Z";
const DAY = 86_400_000;
const DAYS = 4;
const clock = new FixedClock(START);
const at = (days: number): Date => new Date(later(START, days * DAY));

let dir: string;
let log: Log;
let place: Deployment;
let files: Pipeline;
let observes: Pipeline;
let followed: Followed;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "observing-archive-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  place = await Deployment.open(join(dir, "stores"), log, clock);
  files = await place.pipeline({ rowsAFile: 10 });
  observes = await place.pipeline();
  followed = new Followed(place.publicStore, () => TRUST);
  for (let day = 0; day < DAYS; day++) await log.append(dayOf(START, day));
  clock.set(at(DAYS));
  await files.grade(clock.now());
});
afterAll(async () => {
  await place.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

/** Everything that a lake says, but for the order that records came in. */
async function says(lake: Lake): Promise<Record<string, string[]>> {
  const said: Record<string, string[]> = {};
  const samples = "(SELECT * EXCLUDE (row) FROM every_sample)";
  for (const table of ["event", samples, "seen", "quoted", "payee", "endpoint", "listing", "paid_intent"]) {
    const rows = await lake.all<{ row: string }>(`SELECT to_json(t)::VARCHAR AS row FROM ${table} t`);
    said[table] = rows.map(({ row }) => row).sort();
  }
  return said;
}
const count = async (lake: Lake, what: string): Promise<number> =>
  Number((await lake.all<{ n: bigint }>(`SELECT count(*) AS n FROM event WHERE ${what}`))[0]!.n);

test("what was filed leaves its lake, and nothing else; a late row of a filed day ends the same", async () => {
  const [filing, observing] = place.lakes as [Lake, Lake];
  await observes.ingest();
  const before = await says(observing);
  expect(before).toEqual(await says(filing));
  // Nothing is filed yet: nothing leaves.
  expect(await observes.evictArchived((await followed.current()).archive)).toBe(0);
  expect(await says(observing)).toEqual(before);

  const paid = await count(observing, "type = 'paid.intent'");
  clock.set(at(112));
  for (let days = 1; days > 0; ) days = (await files.evidence(clock.now())).days.length;
  await files.archive(clock.now());
  const left = await observes.evictArchived((await followed.current()).archive);
  expect(left).toBe(before.event!.length - (await says(observing)).event!.length);
  expect(left).toBeGreaterThan(0);
  expect(await count(observing, `type = 'handshake' AND observed_at < DATE '${addDays(START.slice(0, 10), 2)}'`)).toBe(
    0,
  );
  expect(await count(observing, "type = 'paid.intent'")).toBe(paid);
  expect(await says(observing)).toEqual(await says(filing));
  expect(await observes.evictArchived((await followed.current()).archive)).toBe(0);

  // Of a day that is filed: a row like any other, until a further file has it.
  await log.append([placed(handshake(SELLERS[0]!.name, later(START, DAY - 1_000), {}, "late"))]);
  await files.ingest();
  await files.archive(clock.now());
  await observes.evictArchived((await followed.current()).archive);
  expect(await says(observing)).toEqual(await says(filing));
});
