import { appendFile, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import { FoldFile, type StoredFold } from "../../../infra/log/fold-file.ts";
import type { Log, LogRecord } from "../../../infra/log/log.ts";
import { LogTail } from "../../../infra/log/tail.ts";

let dir: string;
let log: Log;
const told: string[] = [];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "folds-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: ["t"], partitions: 2 });
  told.length = 0;
});
afterEach(async () => {
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

/** A fold whose result hangs on every record, on its order within a key, and on none being applied twice. */
class TestFold implements StoredFold {
  readonly said = new Map<string, string[]>();
  applied = 0;
  constructor(readonly form = "said.1") {}

  apply({ key, eventId, value }: LogRecord): void {
    this.applied++;
    this.said.set(key, [...(this.said.get(key) ?? []), `${eventId} ${Buffer.from(value).toString()}`]);
  }
  *kept(): Generator<[string, string[]]> {
    yield* this.said;
  }
  restore(value: unknown): void {
    const [key, said] = value as [string, string[]];
    if (key === "unreadable") throw new Error("not of this fold");
    this.said.set(key, said);
  }
  clear(): void {
    this.said.clear();
  }
}

const path = () => join(dir, "folds", "said");
function tailOf(fold = new TestFold(), id = log.id) {
  const logger = { warn: (_: unknown, says?: string) => void told.push(says ?? "") };
  const file = new FoldFile(path(), fold, { logId: () => id, logger });
  return { fold, tail: new LogTail(log, "t", (record) => fold.apply(record), file) };
}

let serial = 0;
async function append(partition: number, text = "v", key = `k${partition}`): Promise<void> {
  await log.append([{ topic: "t", partition, eventId: `e${serial++}`, key, value: Buffer.from(text) }]);
}
async function keptOnce(): Promise<TestFold> {
  for (const partition of [0, 1, 0]) await append(partition, "one\u2028two\nthree");
  const { tail, fold } = tailOf();
  await tail.catchUp();
  await tail.keep();
  return fold;
}

/** Folded from the topic's start. */
async function whole(): Promise<Map<string, string[]>> {
  const fold = new TestFold();
  await new LogTail(log, "t", (record) => fold.apply(record)).catchUp();
  return fold.said;
}

test("what was kept and what came since is the fold of the whole topic, and only the tail is read", async () => {
  await keptOnce();
  await append(1);
  await append(0);
  const { fold, tail } = tailOf();
  expect(await tail.reach(0, 2, 60_000)).toBe("there");
  await tail.catchUp();
  expect([fold.applied, fold.said]).toEqual([2, await whole()]);
  expect(told).toEqual([]);
});

test("it is kept by itself once a thousand records were applied, and not again for one more", async () => {
  const { tail } = tailOf();
  const keep = vi.spyOn(tail, "keep");
  const many = (n: number) => ({
    topic: "t",
    partition: n % 2,
    eventId: `m${n}`,
    key: `k${n}`,
    value: Buffer.from("v"),
  });
  await log.append(Array.from({ length: 999 }, (_, n) => many(n)));
  await tail.catchUp();
  expect(keep).not.toHaveBeenCalled();
  for (let n = 0; n < 2; n++) {
    await append(0);
    await tail.catchUp();
  }
  expect(keep).toHaveBeenCalledTimes(1);
  await keep.mock.results[0]!.value;
  const { fold, tail: again } = tailOf();
  await again.catchUp();
  expect([fold.applied <= 1, fold.said]).toEqual([true, await whole()]);
});

test("records that come while it is kept are in the tail, not in both", async () => {
  const first = await keptOnce();
  const { tail } = tailOf(first);
  const keeping = tail.keep();
  await append(0);
  await Promise.all([tail.catchUp(), keeping, tail.reach(0, 2, 60_000)]);
  const { fold, tail: again } = tailOf();
  await again.catchUp();
  expect(fold.said).toEqual(await whole());
});

const DAMAGE: [string, () => Promise<unknown>, RegExp][] = [
  ["nothing in it", () => writeFile(path(), ""), /damaged/],
  ["its end cut off", async () => writeFile(path(), (await readFile(path())).subarray(0, -80)), /damaged/],
  ["something behind it", () => appendFile(path(), "x"), /damaged/],
  [
    "one byte changed",
    async () => {
      const bytes = await readFile(path());
      bytes[bytes.length - 80]! ^= 1;
      await writeFile(path(), bytes);
    },
    /damaged/,
  ],
];
test.each(DAMAGE)("a file with %s is passed over, and the next one is sound", async (_, damage, why) => {
  await keptOnce();
  await damage();
  const { fold, tail } = tailOf();
  await tail.catchUp();
  expect([fold.applied, fold.said]).toEqual([3, await whole()]);
  expect(told).toEqual([expect.stringMatching(why)]);
  await tail.keep();
  const { fold: next, tail: after } = tailOf();
  await after.catchUp();
  expect([next.applied, next.said]).toEqual([0, await whole()]);
});

test("a file of another log, or of another form, is passed over", async () => {
  await keptOnce();
  for (const one of [tailOf(new TestFold(), "another"), tailOf(new TestFold("said.2"))]) {
    await one.tail.catchUp();
    expect(one.fold.applied).toBe(3);
  }
  expect(told).toEqual([expect.stringMatching(/another log/), expect.stringMatching(/form said\.1/)]);
});

test("a file that has read what the log put back does not hold any more is passed over", async () => {
  const first = await keptOnce();
  expect(first.applied).toBe(3);
  await log.close();
  await rm(join(dir, "log"), { recursive: true });
  log = await openEmbeddedLog(join(dir, "log"), { topics: ["t"], partitions: 2 });
  const text = await readFile(path(), "utf8");
  const former = /"log":"([^"]+)"/.exec(text)![1]!;
  // Shorter than what was read, then as long with other records: an id alone would let both pass.
  for (const others of [1, 5]) {
    for (let n = 0; n < others; n++) await append(n % 2);
    const { fold, tail } = tailOf(new TestFold(), former);
    await tail.catchUp();
    expect(fold.said).toEqual(await whole());
  }
  expect(told).toEqual(Array(2).fill(expect.stringMatching(/does not hold/)));
});

test("records that the log dropped after they were kept stay in the fold", async () => {
  const { said } = await keptOnce();
  await log.truncate("t", 0, 2);
  const { fold, tail } = tailOf();
  await tail.catchUp();
  expect([fold.applied, fold.said]).toEqual([0, said]);
});

test("a value that the fold does not take leaves nothing of the file behind", async () => {
  await append(0, "v", "before");
  await append(1, "v", "unreadable");
  const { tail } = tailOf();
  await tail.catchUp();
  await tail.keep();
  const { fold, tail: again } = tailOf();
  await again.catchUp();
  expect([fold.applied, fold.said]).toEqual([2, await whole()]);
  expect(told).toEqual([expect.stringMatching(/could not be read/)]);
});

test("a file that cannot be written stops nothing; drafts of the killed are cleared away", async () => {
  await writeFile(join(dir, "folds"), "a file where the folder should be");
  const { tail, fold } = tailOf();
  await append(0);
  await tail.catchUp();
  await tail.keep();
  expect(told.at(-1)).toMatch(/could not be kept/);
  await rm(join(dir, "folds"));
  await append(0);
  await tail.catchUp();
  await tail.keep();
  const old = join(dir, "folds", "said.1.draft");
  await writeFile(old, "half");
  await utimes(old, 0, 0);
  await tail.keep();
  expect(await readdir(join(dir, "folds"))).toEqual(["said"]);
  expect(fold.applied).toBe(2);
});

test("two processes of one pid, as in two containers on one folder, each keep a whole file", async () => {
  await append(0);
  await append(1, "v".repeat(100_000));
  const two = [tailOf(), tailOf()];
  for (const { tail } of two) await tail.catchUp();
  await Promise.all(two.map(({ tail }) => tail.keep()));
  expect([told, await readdir(join(dir, "folds"))]).toEqual([[], ["said"]]);
  const { fold, tail } = tailOf();
  await tail.catchUp();
  expect([fold.applied, fold.said]).toEqual([0, await whole()]);
});

test("a fold that could not be kept leaves no draft on the disk", async () => {
  const { tail, fold } = tailOf();
  await append(0);
  await tail.catchUp();
  fold.kept = () => {
    throw new Error("no");
  };
  await tail.keep();
  expect([told, await readdir(join(dir, "folds"))]).toEqual([[expect.stringMatching(/could not be kept/)], []]);
});

test("the log's failure while a file is looked at is the caller's, and the file is looked at again", async () => {
  await keptOnce();
  let down = true;
  const shaky = {
    partitions: 2,
    read: log.read.bind(log),
    bounds: async (topic: string, partition: number) => {
      if (down) throw new Error("down");
      return log.bounds(topic, partition);
    },
  };
  const fold = new TestFold();
  const file = new FoldFile(path(), fold, { logId: () => log.id, logger: { warn: () => {} } });
  const tail = new LogTail(shaky, "t", (record) => fold.apply(record), file);
  await expect(tail.catchUp()).rejects.toThrow("down");
  down = false;
  await tail.catchUp();
  expect([fold.applied, fold.said]).toEqual([0, await whole()]);
});
