import { access } from "node:fs/promises";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { createWatcherRecord } from "../../pipelines/6-notify/notice.ts";
import { capOf } from "../helpers/public-record.ts";
import { readWatcher, SUM, WatcherTestbed, watch } from "../helpers/watchers.ts";

const at = "2026-11-21T06:00:00.000Z";

/** Some that nobody asks about, so that the topic is long enough for its fold to be kept. */
function strangers(many: number, partitions: number) {
  const watched = [{ asked: SUM.url, matched: "exact" as const, capability_ids: [capOf(SUM)] }];
  return Array.from({ length: many }, (_, n) => {
    const made = { id: `wat_${n}`, url: `https://r${n}.example/in`, watched, tree_size: 0, standing: [] };
    const body = { ...made, token_sha256: "0".repeat(64), created_at: at };
    return createWatcherRecord("watcher.created", body, { now: new Date(at), producer: "test" }, partitions);
  });
}

test("a replica that begins from a kept fold answers byte for byte what one from the topic's start answers", async () => {
  const bed = await WatcherTestbed.open();
  try {
    const folds = { dir: join(bed.dir, "folds"), logId: () => bed.log.id, logger: bed.logger };
    await bed.log.append(strangers(1_200, bed.log.partitions));
    const first = await bed.serving({ folds });
    const receiver = await bed.receiver();
    const before = await watch(first, receiver.url, [SUM.url]);
    await vi.waitFor(() => access(join(folds.dir, "watchers")), { timeout: 150_000 });
    // The tail: one more, and one of before that was stopped.
    const after = await watch(first, receiver.url, [SUM.url]);
    await bed.log.append([
      createWatcherRecord(
        "watcher.stopped",
        { id: before.watcher_id, why: "asked", at },
        { now: new Date(at), producer: "test" },
        bed.log.partitions,
      ),
    ]);
    const read = vi.spyOn(bed.log, "read");
    const [kept, whole] = [await bed.serving({ folds }), await bed.serving()];
    const records = async () => (await Promise.all(read.mock.results.map(({ value }) => value))).flat().length;
    for (const one of [before, after]) {
      const texts = [];
      for (const on of [kept, whole]) texts.push(await (await readWatcher(on, one)).text());
      expect(texts[0]).toBe(texts[1]);
      expect(JSON.parse(texts[0]!)).toMatchObject({ state: one === before ? "stopped" : "active" });
    }
    // Without a kept fold a partition is read from its start, in the background: a quarter of the topic, about 300 records, as
    // ids fall; both watchers may be in one partition.
    await vi.waitFor(async () => expect(await records()).toBeGreaterThan(200), { timeout: 150_000 });
    read.mockClear();
    await watch(await bed.serving({ folds }), receiver.url, [SUM.url]);
    // The record before each partition's place is looked at, and what came since: the topic is not read again.
    expect(await records()).toBeLessThan(20);
  } finally {
    await bed.close();
  }
});
