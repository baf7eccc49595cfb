import { expect, test } from "vitest";
import { type LogRecord, OffsetGone } from "../../../infra/log/log.ts";
import { FirstIntents } from "../../../pipelines/1-observe/first-intents.ts";
import { END, firstPaidOnly, listAndPlan, START } from "./day.ts";
import { fakeWorld, honest, SELLER } from "./world.ts";

/** Real intents of one slot, each with another nonce: the same call made by processes that do not know of each other. */
async function intents(n: number): Promise<LogRecord[]> {
  const made: LogRecord[] = [];
  for (let i = 0; i < n; i++) {
    const world = fakeWorld();
    await world.observer.observeSpan(firstPaidOnly(await listAndPlan(world, honest(world.rail), SELLER)), START, END);
    made.push(world.log.records.find(({ value }) => JSON.parse(Buffer.from(value).toString()).type === "paid.intent")!);
  }
  return made;
}
const read = (record: LogRecord) => {
  const { cap, body } = JSON.parse(Buffer.from(record.value).toString());
  return { cap: cap as string, eventId: record.eventId, nonce: body.nonce as string };
};
/** A log of one partition. */
const logOf = (records: LogRecord[], start = 0) => ({
  partitions: 1,
  records,
  bounds: async () => ({ start, end: records.length }),
  async read(_topic: string, _partition: number, from: number) {
    if (from < start) throw new OffsetGone("observations.paid", 0, from, start);
    await new Promise((resolve) => setImmediate(resolve));
    return records.slice(from).map((record, i) => ({ ...record, offset: from + i }));
  },
});

test("of several intents of one slot the first in the log wins; a copy of it is as good", async () => {
  const [one, two] = (await intents(2)) as [LogRecord, LogRecord];
  expect(one.eventId).toBe(two.eventId);
  const log = logOf([]);
  const firsts = await FirstIntents.open(log);
  // An unsure append made a copy of the first.
  log.records.push(one, two, one);
  const won = async (record: LogRecord) => {
    const { cap, eventId, nonce } = read(record);
    return firsts.isFirst(cap, eventId, nonce);
  };
  expect(await Promise.all([won(one), won(two)])).toEqual([true, false]);
  expect(await won(one)).toBe(true);
});

test("it waits for its own record; what lies before the start is memory's to know", async () => {
  const [one, two] = (await intents(2)) as [LogRecord, LogRecord];
  const log = logOf([one]);
  const firsts = await FirstIntents.open(log);
  const { cap, eventId, nonce } = read(two);
  const asked = firsts.isFirst(cap, eventId, nonce);
  setTimeout(() => log.records.push({ ...one, eventId: "rec_OTHER" }, two), 20);
  expect(await asked).toBe(true);
});

test("a log that has dropped what was not read yet is read on from its beginning", async () => {
  const [one] = (await intents(1)) as [LogRecord];
  const log = logOf([]);
  const firsts = await FirstIntents.open(log);
  const cut = logOf([one, one, one], 1);
  Object.assign(log, { read: cut.read });
  const { cap, eventId, nonce } = read(one);
  expect(await firsts.isFirst(cap, eventId, nonce)).toBe(true);
});
