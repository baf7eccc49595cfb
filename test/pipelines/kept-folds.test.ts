import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FoldFile, type StoredFold } from "../../infra/log/fold-file.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { LogTail } from "../../infra/log/tail.ts";
import { createWatcherRecord } from "../../pipelines/6-notify/notice.ts";
import { type Watcher, WatcherTable } from "../../pipelines/6-notify/watcher-table.ts";
import { booksOf } from "../../pipelines/orders/ledger.ts";
import type { Order } from "../../pipelines/orders/order.ts";
import { OrderTable } from "../../pipelines/orders/order-table.ts";
import { stakesOf } from "../../pipelines/orders/stakes.ts";
import { FakeLog } from "../helpers/fake-log.ts";
import { fc } from "../helpers/histories.ts";
import { history, lived } from "./orders/histories.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "kept-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

type Folded = StoredFold & { apply(record: LogRecord): unknown };

/** The log as it stood when a part of each partition was there. */
const upTo = (log: FakeLog, parts: readonly number[]): Pick<FakeLog, "read" | "bounds" | "partitions"> => {
  const end = async (topic: string, partition: number) =>
    Math.floor((await log.bounds(topic, partition)).end * parts[partition]!);
  return {
    partitions: log.partitions,
    bounds: async (topic, partition) => ({ start: 0, end: await end(topic, partition) }),
    read: async (topic, partition, from) =>
      (await log.read(topic, partition, from)).slice(0, Math.max(0, (await end(topic, partition)) - from)),
  };
};

let files = 0;
/** fold(snapshot + tail): one process folds a part and keeps it, another begins from the file and reads on. */
async function begunFrom<T extends Folded>(make: () => T, log: FakeLog, topic: string, parts: number[]): Promise<T> {
  const path = join(dir, String(files++));
  const told: unknown[] = [];
  const folder = { logId: () => "log", logger: { warn: (...says: unknown[]) => void told.push(says) } };
  const tailOf = (on: Pick<FakeLog, "read" | "bounds" | "partitions">, fold: T) =>
    new LogTail(on, topic, (record) => void fold.apply(record), new FoldFile(path, fold, folder));
  const first = make();
  const earlier = tailOf(upTo(log, parts), first);
  await earlier.catchUp();
  await earlier.keep();
  const fold = make();
  // With what was there already nothing may change.
  await tailOf(upTo(log, parts), fold).catchUp();
  expect([...fold.kept()]).toEqual([...first.kept()]);
  fold.clear();
  expect([...fold.kept()].flatMap((value) => Object.values(value as object).flat())).toEqual([]);
  await tailOf(log, fold).catchUp();
  expect(told).toEqual([]);
  return fold;
}

async function fromStart<T extends Folded>(fold: T, log: FakeLog, topic: string): Promise<T> {
  await new LogTail(log, topic, (record) => void fold.apply(record)).catchUp();
  return fold;
}

const parts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 2, maxLength: 2 });
const sorted = (values: Iterable<unknown>): string[] => [...values].map((value) => JSON.stringify(value)).sort();
const money = (_: string, value: unknown) => (typeof value === "bigint" ? `${value}n` : value);
const text = (value: unknown): string => JSON.stringify(value, money);

/** Names of all sums that these orders add to. */
const sumsOf = (orders: readonly Order[]): string[] =>
  [...new Set(orders.flatMap((order) => stakesOf(order).map(([name]) => name)))].sort();

/** Everything that a table of orders is asked. */
function answersOf(table: OrderTable): string[] {
  const orders = [...table.all()].sort((a, b) => (a.id < b.id ? -1 : 1));
  const payers = [...new Set(orders.map(({ payer }) => payer))];
  const books = booksOf(orders).map(({ accounts, ...book }) => ({ ...book, accounts: [...accounts].sort() }));
  return [
    ...orders.map((order) => text([order, table.get(order.id) === order, table.ofKey(order.key) === order])),
    ...payers.map((payer) => text([payer, table.ofPayer(payer)])),
    text([[...table.countByState()].sort(), [...table.repayments()].map(text).sort(), books]),
    ...[[...table.losses()], [...table.owedBySellers()], table.open()].flatMap((list) => [...list].map(text).sort()),
    ...sumsOf(orders).map((name) => text([name, table.sum(name)])),
  ];
}

test("in any history of orders a table from a file and the tail says what one from the start says", async () => {
  let closed = 0;
  await fc.assert(
    fc.asyncProperty(history, parts, fc.constantFrom(2, 100_000), async (drawn, cut, maxClosed) => {
      const { log } = await lived(drawn);
      const table = await begunFrom(() => new OrderTable(maxClosed), log, "orders", cut);
      const whole = await fromStart(new OrderTable(maxClosed), log, "orders");
      // Which of the closed are forgotten hangs on the order in which partitions were read; what sellers owe does not.
      if (maxClosed > 2) expect(answersOf(table)).toEqual(answersOf(whole));
      else expect([...table.owedBySellers()].map(text).sort()).toEqual([...whole.owedBySellers()].map(text).sort());
      for (const { order, leg } of whole.losses()) {
        const seller = whole.get(order)!.legs[leg]!;
        expect(table.isOwedBy(seller)).toBe(whole.isOwedBy(seller));
      }
      closed += [...whole.losses()].length;
    }),
    { numRuns: 40 },
  );
  expect(closed).toBeGreaterThan(0);
});

const at = "2026-11-23T10:00:00.000Z";
const CAPS = ["cap_one", "cap_two"];
const cardFacts = (n: number) => ({
  ...{
    band: (["A", "B", "UNRATED"] as const)[n % 3]!,
    tier: "DELIVERY_VERIFIED" as const,
    composite: n,
    computed_at: at,
  },
  flags: n % 2 ? ["no_example"] : [],
});
const happening = fc.record({
  type: fc.constantFrom("created", "delivered", "delivered", "failed", "failed", "stopped", "disabled"),
  ...{ watcher: fc.nat(5), cap: fc.nat(1), leaf: fc.nat(30), attempt: fc.integer({ min: 1, max: 4 }) },
});

function recordOf(
  { type, watcher, cap, leaf, attempt }: typeof happening extends fc.Arbitrary<infer H> ? H : never,
  n: number,
) {
  const id = `wat_${watcher}`;
  const by = { now: new Date(Date.parse(at) + n), producer: "test" };
  const notified = {
    ...{ id, notice: `ntc_${n}`, capability_id: CAPS[cap]!, seq: n + 1, leaf, change: "band" as const, attempt, at },
  };
  if (type === "created") {
    const watched = [{ asked: "https://s.example/a", matched: "exact" as const, capability_ids: CAPS }];
    const standing = [{ capability_id: CAPS[cap]!, ...cardFacts(n) }];
    const body = { id, url: `https://r${watcher % 2}.example/in`, watched, tree_size: leaf, standing };
    return createWatcherRecord("watcher.created", { ...body, token_sha256: "0".repeat(64), created_at: at }, by, 2);
  }
  if (type === "delivered")
    return createWatcherRecord("watcher.delivered", { ...notified, status: 204, to: cardFacts(n) }, by, 2);
  if (type === "failed") {
    return createWatcherRecord("watcher.failed", { ...notified, status: null, says: "no answer", retry_at: at }, by, 2);
  }
  if (type === "stopped") return createWatcherRecord("watcher.stopped", { id, why: "asked", at }, by, 2);
  return createWatcherRecord("watcher.disabled", { id, since: at, says: "refused", at }, by, 2);
}

test("in any history of watchers a table from a file and the tail says what one from the start says", async () => {
  let ended = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(happening, { minLength: 1, maxLength: 60, size: "max" }), parts, async (drawn, cut) => {
      const log = new FakeLog();
      for (let watcher = 0; watcher < 3; watcher++) {
        await log.append([recordOf({ type: "created", watcher, cap: 0, leaf: 0, attempt: 1 }, 0)]);
      }
      await log.append(drawn.map((one, n) => recordOf(one, n + 1)));
      const table = await begunFrom(() => new WatcherTable(), log, "watchers", cut);
      const whole = await fromStart(new WatcherTable(), log, "watchers");
      expect(sorted([...table.kept()].slice(0, -1))).toEqual(sorted([...whole.kept()].slice(0, -1)));
      expect(table.size).toBe(whole.size);
      expect(sorted([...table.activeWatchers()].map(({ id }) => id))).toEqual(
        sorted([...whole.activeWatchers()].map(({ id }) => id)),
      );
      for (const domain of ["r0.example", "r1.example"])
        expect(table.countForDomain(domain)).toBe(whole.countForDomain(domain));
      for (let n = 0; n < 6; n++) expect(table.get(`wat_${n}`)).toEqual(whole.get(`wat_${n}`));
      ended += [...whole.kept()].length - 1 - whole.size;
    }),
    { numRuns: 80 },
  );
  expect(ended).toBeGreaterThan(0);
});

/**
 * Files name the form of what they hold. Whoever changes a member here, or what a record does to a table, gives the form
 * another name in the same commit, or a start would go on from what the old rules had made.
 */
test("what the forms orders.8 and watchers.4 hold", async () => {
  const [drawn] = fc.sample(history, { numRuns: 1, seed: 7 });
  const { log } = await lived(drawn!);
  const table = await fromStart(new OrderTable(), log, "orders");
  const orders = [...table.kept()].flatMap((value) =>
    "order" in (value as object) ? [(value as { order: Order }).order] : [],
  );
  const order = orders.find(({ legs }) => legs.length > 0)!;
  expect([table.form, Object.keys(order).join(" "), Object.keys(order.legs[0]!).join(" ")]).toMatchInlineSnapshot(`
    [
      "orders.8",
      "id key partition claimedAt intentAt operation scheme network asset payer payTo nonce validBefore sinceBlock paymentSha256 requestSha256 quote publish expect identifier client credit createdAt state epoch by changedAt movedAt steps legs own says problem charged hold refund refunded gas sent refusedAt failedByPayer unchargedFault bytes final expired recorded",
      "leg cap url method payTo price wallet nonce validBefore sinceBlock lettered judgedBy class fate tx recovered recoveredAmount result checked",
    ]
  `);
  const watchers = new WatcherTable();
  const made = new FakeLog();
  await made.append([recordOf({ type: "created", watcher: 1, cap: 1, leaf: 1, attempt: 1 }, 1)]);
  await fromStart(watchers, made, "watchers");
  const [kept] = [...watchers.kept()] as unknown as [{ watcher: Watcher }];
  expect([watchers.form, Object.keys(kept.watcher).join(" ")]).toMatchInlineSnapshot(`
    [
      "watchers.4",
      "id url domain platform by partition watched usedAt hmacKey tokenSha256 createdAt next caps state why endedAt failing late",
    ]
  `);
});
